"""The three nevers under random interleavings: deliveries, repeats, conflicts, attempts, deadlines, judge faults, restarts.

A reward that differs from one already returned; a reward that is not the judge's; a rollout that waits for ever.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from hypothesis import settings as tried
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from cohortd.judges.http import TransportFault
from cohortd.mock_judge import score_pair
from tests.support.requests import verify_body
from tests.support.service import MemoryJudge, Running, happens, running, verdict_text

N = 3
COLLECTION_S, EVALUATION_S = 100, 50
GROUPS = ("a", "b")
FAULTS: dict[str, Any] = {
    "nonsense": "no verdict here",
    "503": 503,
    "reset": TransportFault("reset", "reset"),
    "400": 400,
}
PROFILES: dict[str, dict[str, Any]] = {
    "plain": {},
    "early": {"judge_start": "as_pairs_arrive"},
    "present": {"on_incomplete": "judge_present", "judge_start": "as_pairs_arrive"},
    "strict": {"on_unparseable": "fail", "on_failed_retry": "same_identity"},
}
COMMON: dict[str, Any] = {
    "num_rollouts_per_prompt": N, "cohort_collection_timeout_s": COLLECTION_S, "judge_answer_retries": 1,
    "cohort_evaluation_timeout_s": EVALUATION_S, "judge_transport_retries": 0, "judge_eject_after": 1000,
}  # fmt: skip
_numbers = itertools.count()


@dataclass(frozen=True)
class Sent:
    """A request: which rollout it is, and which of the possible answers it brings."""

    group: str
    attempt: int
    slot: int
    variant: int

    @property
    def answer(self) -> str:
        """The rollout's answer."""
        return f"Answer {self.slot}.{self.variant} of {self.group}, attempt {self.attempt}."


class Nevers(RuleBasedStateMachine):
    """What clients do and what the world does to the service; every reply is checked against everything before it."""

    database_url = ""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.campaign = f"model-{next(_numbers)}"
        self.rewards: dict[tuple[str, int, int], tuple[float, bool]] = {}
        self.newest: dict[str, int] = {}
        self.pending: dict[asyncio.Task[httpx.Response], Sent] = {}
        self.fault: str | None = None
        self.judge = MemoryJudge(self._answer)

    def _answer(self, first: str, second: str) -> Any:
        return verdict_text(first, second) if self.fault is None else FAULTS[self.fault]

    @initialize(profile=st.sampled_from(sorted(PROFILES)))
    def begin(self, profile: str) -> None:
        self.settings = COMMON | PROFILES[profile]
        self.loop.run_until_complete(self._start())

    async def _start(self) -> None:
        self.stack = contextlib.AsyncExitStack()
        self.service: Running = await self.stack.enter_async_context(
            running(self.database_url, judge=self.judge, settings=self.settings)
        )

    async def _quiet(self) -> None:
        """Everybody is answered or parked, and every parked one's verdicts of now are in."""
        await happens(lambda: sum(not task.done() for task in self.pending) == self.service.service.waiters.count)
        for task in [task for task in self.pending if task.done()]:
            self._check(self.pending.pop(task), task)

    def _check(self, sent: Sent, task: asyncio.Task[httpx.Response]) -> None:
        if isinstance(task.exception(), BaseException):
            return  # its connection was closed without a reply
        reply = task.result()
        body = reply.json()
        assert reply.status_code in (200, 409, 503), reply.text
        if reply.status_code != 200:
            assert "reward" not in body
            return
        if body.get("failure_kind"):
            assert (body["reward"], body["mask_sample"]) == (0.0, True)
            return
        key = (sent.group, sent.attempt, sent.slot)
        said = (body["reward"], body["mask_sample"])
        assert self.rewards.setdefault(key, said) == said, "a reward differs from one already returned"

    @rule(
        group=st.sampled_from(GROUPS), ahead=st.sampled_from([0, 0, 0, 0, 1, -1]), slot=st.integers(0, N - 1),
        variant=st.sampled_from([0, 0, 0, 0, 1]),
    )  # fmt: skip
    def deliver(self, group: str, ahead: int, slot: int, variant: int) -> None:
        attempt = max(0, self.newest.get(group, 0) + ahead)
        self.loop.run_until_complete(self._deliver(Sent(group, attempt, slot, variant)))

    @rule(group=st.sampled_from(GROUPS))
    def deliver_all(self, group: str) -> None:
        for slot in range(N):
            self.loop.run_until_complete(self._deliver(Sent(group, self.newest.get(group, 0), slot, 0)))

    async def _deliver(self, sent: Sent) -> None:
        stale = sent.attempt < self.newest.get(sent.group, 0)
        prompt = [{"role": "user", "content": f"Prompt of {sent.group}."}]
        body = verify_body(sent.group, sent.slot, text=sent.answer, attempt=sent.attempt, prompt=prompt)
        path = f"/campaigns/{self.campaign}/verify"
        task = asyncio.create_task(self.service.client.post(path, json=body))
        self.pending[task] = sent
        await self._quiet()
        if stale:
            assert task.result().json()["code"] == "stale_attempt"
        elif not task.done() or task.result().status_code == 200:
            self.newest[sent.group] = max(sent.attempt, self.newest.get(sent.group, 0))

    @rule(seconds=st.sampled_from([1, 30, EVALUATION_S + 1, COLLECTION_S + 1]))
    def time_passes(self, seconds: int) -> None:
        async def work() -> None:
            await self.service.pass_time(seconds)
            await self.service.service.sweeper.sweep()
            await self._quiet()

        self.loop.run_until_complete(work())

    @rule(fault=st.sampled_from([None, None, *FAULTS]))
    def the_judge_changes(self, fault: str | None) -> None:
        self.fault = fault

    @rule()
    def the_judge_hangs(self) -> None:
        self.judge.gate.clear()

    @rule()
    def the_judge_goes_on(self) -> None:
        async def work() -> None:
            self.judge.gate.set()
            await happens(lambda: not self.judge.waiting)
            await self._quiet()

        self.loop.run_until_complete(work())

    @rule()
    def the_service_is_restarted(self) -> None:
        async def work() -> None:
            await self.stack.aclose()
            again = list(self.pending.values())
            await asyncio.gather(*self.pending, return_exceptions=True)
            self.pending.clear()
            await self._start()
            for sent in again:  # as Gym's client does
                await self._deliver(sent)

        self.loop.run_until_complete(work())

    @invariant()
    def replies_are_the_rows(self) -> None:
        if not hasattr(self, "service"):
            return
        rows = self.loop.run_until_complete(self._rows("SELECT group_id, attempt, rollout_index, reward, mask_sample"))
        stored = {(row[0], row[1], row[2]): (row[3], bool(row[4])) for row in rows if row[3] is not None}
        assert all(stored[key] == said for key, said in self.rewards.items())

    async def _rows(self, select: str, source: str = "member") -> list[Any]:
        return await self.service.rows(f"{select} FROM {source} WHERE campaign = '{self.campaign}'")

    def teardown(self) -> None:
        if hasattr(self, "service"):
            self.loop.run_until_complete(self._end())
        self.loop.close()

    async def _end(self) -> None:
        """Nobody waits for ever, and every reward is what the judge's verdicts give."""
        self.fault = None
        self.judge.gate.set()
        for _ in range(2):
            await self.service.pass_time(COLLECTION_S + EVALUATION_S)
            await self.service.service.sweeper.sweep()
            await self._quiet()
        assert not self.pending, "a rollout waits for ever"
        await self._recompute()
        await self.stack.aclose()

    async def _recompute(self) -> None:
        answers = {
            (str(row[0]), row[1]): (row[2], row[3])
            for row in await self._rows("SELECT cohort_id, rollout_index, answer, reward")
        }
        verdicts = await self._rows(
            "SELECT cohort_id, position, first, second, score_1, score_2, ranking, defaulted",
            "comparison JOIN cohort ON cohort.id = comparison.cohort_id AND comparison.status = 'done'",
        )
        sums: dict[tuple[str, int], list[float]] = {}
        for cohort_id, _, first, second, score_1, score_2, ranking, defaulted in sorted(verdicts, key=lambda r: r[1]):
            pair = (str(cohort_id), first), (str(cohort_id), second)
            if not defaulted:
                judged = score_pair(answers[pair[0]][0], answers[pair[1]][0])
                assert (score_1, score_2, ranking) == judged, "a verdict is not the judge's"
            tie = 3.5 - ranking if score_1 == score_2 else 0.0
            sums.setdefault(pair[0], []).append(score_1 + tie)
            sums.setdefault(pair[1], []).append(score_2 - tie)
        for key, (_, reward) in answers.items():
            if reward is not None:
                assert reward == sum(sums[key]) / len(sums[key]), "a reward is not what its verdicts give"


@pytest.mark.rule("L1", "L2", "L3", "L4", "L6", "R10", "R12", "R13", "R14", "R15", "R23", "R34", "R36")
@pytest.mark.timeout(600)
def test_the_three_nevers_hold_whatever_happens(database_url: str) -> None:
    machine = type("OnThisDatabase", (Nevers,), {"database_url": database_url})
    run_state_machine_as_test(machine, settings=tried(max_examples=40, stateful_step_count=25, deadline=None))
