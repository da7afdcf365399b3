"""What Gym's users live through; each scenario raises `Broken`, or returns what was seen."""

from __future__ import annotations

import signal
import statistics
from typing import Final

from tests.support.processes import wait_until

from gym.world import GAVE_UP, PROMPTS, REPEATS, World, check, right

ALL: Final = REPEATS * len(PROMPTS)
HARBOUR: Final = len(PROMPTS) - 1


def all_is_well(world: World) -> str:
    """Every reward is the judge's, and a resume asks nobody."""
    judge = world.judge()
    world.serve()
    check(world.collect() == 0, "the collector gave up")
    rows = world.rows()
    check(len(rows) == ALL and right(rows), "a reward is not the judge's")
    before, calls = world.file().read_bytes(), len(judge.calls())
    for _ in range(2):
        check(world.collect(resume=True, seed=2) == 0, "the resume gave up")
    check(world.file().read_bytes() == before, "a resume changed the rollouts")
    check(len(judge.calls()) == calls, "a resume asked the judge")
    return f"{len(rows)} rollouts, {calls} judge calls; two resumes made none"


def a_sibling_is_missing(world: World) -> str:
    """Fewer repeats than the group has: 503, which Gym's agent turns into a failed run."""
    judge = world.judge()
    world.serve(cohort_collection_timeout_s=1)
    check(world.collect(repeats=REPEATS - 1) == GAVE_UP, "the collector went on without the missing siblings")
    check(set(world.told()) == {(503, "collection_timeout")}, "the agent was told something else")
    check(not world.rows(), "a rollout without a reward was collected")
    check(not judge.calls(), "an incomplete group was judged")
    return "the agent raises on our 503 collection_timeout, so the run ends and nothing is collected"


def there_are_too_many_repeats(world: World) -> str:
    """Two groups' worth of repeats: Gym counts its slots on, beyond the group."""
    world.judge()
    world.serve(cohort_collection_timeout_s=5)
    check(world.collect(repeats=2 * REPEATS) == GAVE_UP, "the collector went on")
    check((422, "invalid_coordinates") in world.told(), "the agent was told something else")
    return "a slot beyond the group is refused with 422, which ends the run at once"


def a_rollout_hangs(world: World) -> str:
    """One of twelve never comes: its group fails and ends the run; the others are kept; `cohortd release` mends it."""
    judge = world.judge()
    world.serve(cohort_collection_timeout_s=3)
    check(world.collect(withheld=PROMPTS[HARBOUR]) == GAVE_UP, "the collector went on without the missing sibling")
    before, calls = world.file().read_bytes(), len(judge.calls())
    check(len(world.rows()) == ALL - REPEATS and right(world.rows()), "the other groups were not kept")
    check((503, "collection_timeout") in world.told(), "the agent was told something else")
    check(not world.rows("rollouts_failures"), "a collection timeout is in the sidecar")
    check(world.collect(resume=True, seed=2) == GAVE_UP, "a resume went through the fence")
    check(world.file().read_bytes() == before, "a resume against the fence changed the rollouts")
    check(len(judge.calls()) == calls, "a resume against the fence asked the judge")
    world.release(HARBOUR)
    check(world.collect(resume=True, seed=3) == 0, "the collector gave up although the fence was lifted")
    check(world.file().read_bytes().startswith(before), "a resume changed earlier bytes of the rollouts")
    check(len(world.rows()) == ALL and right(world.rows()), "a reward is not the judge's")
    check(len(judge.calls()) == ALL, "a pair was judged twice")
    return f"{ALL - REPEATS} kept, the collector ends at the 503; after `cohortd release` a resume has all {ALL}"


def the_judge_is_away(world: World) -> str:
    """An outage longer than the deadline: masked rows in the sidecar, none among the rollouts, no number anywhere."""
    world.serve(cohort_evaluation_timeout_s=1)
    check(world.collect() == 0, "the collector gave up")
    failed = world.rows("rollouts_failures")
    check(not world.rows() and len(failed) == ALL, "failures are among the rollouts")
    check({row["_ng_failure_class"] for row in failed} == {"judge_failed"}, "a failure has another class")
    check(all(row["mask_sample"] and row["instance_config"]["mask_sample"] for row in failed), "a mask is missing")
    check("mean/reward" not in world.metrics(), "placeholders were averaged")
    sidecar = world.file("rollouts_failures")
    before = sidecar.read_bytes()
    judge = world.judge()
    check(world.collect(resume=True, seed=2, attempts=1) == 0, "the resume gave up")
    check(sidecar.read_bytes() == before, "a resume that retries nothing changed the sidecar")
    check(world.collect(resume=True, seed=3) == 0, "the second resume gave up")
    check(sidecar.read_bytes().startswith(before), "a resume changed earlier bytes of the sidecar")
    told = {row["failure_reason"] for row in world.rows("rollouts_failures")[len(failed) :]}
    check(told != set() and all("cohortd release" in reason for reason in told), "the fence does not say what lifts it")
    check(not judge.calls(), "a failed run was judged")
    before = sidecar.read_bytes()
    world.prepare_the_resume()
    check(world.collect(resume=True, seed=4) == 0, "the resume of fresh groups gave up")
    check(len(world.rows()) == ALL and right(world.rows()), "a reward is not the judge's")
    check(sidecar.read_bytes() == before, "a resume that succeeds changed the sidecar")
    return f"{len(failed)} masked rows; plain resumes ask nobody and keep its bytes; fresh groups get all {ALL} rewards"


def an_outage_is_over(world: World) -> str:
    """After the outage, `cohortd release` and a resume get every reward; the sidecar keeps every byte."""
    world.serve(cohort_evaluation_timeout_s=1)
    check(world.collect() == 0, "the collector gave up")
    sidecar = world.file("rollouts_failures").read_bytes()
    judge = world.judge()
    for task in range(len(PROMPTS)):
        world.release(task)
    for seed in (2, 3):
        check(world.collect(resume=True, seed=seed) == 0, "the resume gave up")
        check(len(world.rows()) == ALL and right(world.rows()), "a reward is not the judge's")
        check(world.file("rollouts_failures").read_bytes() == sidecar, "the sidecar changed")
        check(len(judge.calls()) == ALL, "a pair was judged twice")
    return f"all {ALL} rewards after the release, the sidecar's bytes unchanged, and a second resume asks nobody"


def failures_count_as_zero(world: World) -> str:
    """`count_failure_classes_as_zero` takes the failures into the means, and into nothing else."""
    world.judge()
    limited = {"max_answer_chars": 200, "on_long_answer": "fail"}
    world.serve(**limited)
    check(world.collect(long=PROMPTS[HARBOUR]) == 0, "the collector gave up")
    rewards = [row["reward"] for row in world.rows()]
    kept, off = world.file().read_bytes(), world.metrics()
    check(len(rewards) == ALL - REPEATS and right(world.rows()), "a reward is not the judge's")
    check(off["mean/reward"] == statistics.fmean(rewards), "the mean without failures is not that of the rewards")
    check(off["masked_rollouts"] == REPEATS, "the failures were not counted")
    assert world.service is not None
    world.service.stop()
    world.serve(count_failure_classes_as_zero="judge_failed", **limited)
    check(world.collect(long=PROMPTS[HARBOUR], resume=True, seed=2) == 0, "the resume gave up")
    counted = world.metrics()
    mean = statistics.fmean([*rewards, *[0.0] * REPEATS])
    check(counted["mean/reward"] == mean, "the mean with failures as zero is another")
    check(counted["rollouts_counted_as_zero"] == REPEATS, "the failures were not counted")
    check(world.file().read_bytes() == kept, "a failure is among the rollouts")
    masked = world.rows("rollouts_failures")
    check(len(masked) == 2 * REPEATS and all(row["mask_sample"] for row in masked), "a mask is missing")
    return (
        f"mean/reward {off['mean/reward']:.4g} without, {mean:.4g} with {REPEATS} failures as 0; rows and masks as ever"
    )


def it_dies_in_the_middle(world: World) -> str:
    """SIGTERM, then SIGKILL, in the middle of judging: Gym's own client waits through both."""
    judge = world.judge("--latency-ms", "150")
    service = world.serve(judge_concurrency=1, drain_s=2)
    collecting = world.start()
    for number, sign in enumerate((signal.SIGTERM, signal.SIGKILL), 1):
        wait_until(lambda number=number: len(judge.calls()) >= 3 * number, "judge calls", 60)
        service.send(sign)
        service.wait()
        service = world.serve(judge_concurrency=1, drain_s=2)
    check(collecting.wait() == 0, "the collector gave up")
    rows = world.rows()
    check(len(rows) == ALL and right(rows), "a reward is not the judge's")
    calls = len(judge.calls())
    check(calls <= ALL + 1, "more calls were repeated than there were slots")
    return f"every reward right, {calls} calls for {ALL} pairs"


def a_reply_is_lost(world: World) -> str:
    """SIGKILL when some members of a group have their reply and the others have not: copies, answered without judging."""
    judge = world.judge()
    service = world.serve(failpoints="before_reply@6", legacy_copy_wait_s=2)
    collecting = world.start()
    service.wait_for_output("failpoint: before_reply", 60)
    service.kill()
    world.serve(legacy_copy_wait_s=2)
    check(collecting.wait() == 0, "the collector gave up")
    check(len(world.rows()) == ALL and right(world.rows()), "a reward is not the judge's")
    check(len(judge.calls()) == ALL, "a group whose replies were lost was judged again")
    copies = world.sql("SELECT count(*) FROM cohort WHERE answered_from IS NOT NULL")[0][0]
    check(copies >= 1, "no reply was lost: the scenario shows nothing")
    return f"{copies} group(s) answered from the run before, every reward right, no pair judged twice"


def a_group_is_half_written(world: World) -> str:
    """The job dies between two rows of a group: a plain resume sends the rest alone."""
    judge = world.judge()
    world.serve(cohort_collection_timeout_s=3)
    check(world.collect() == 0, "the collector gave up")
    _tear_a_group(world)
    check(world.collect(resume=True, seed=2) == GAVE_UP, "a group of one was judged")
    check(world.told()[-1] == (503, "collection_timeout"), "the agent was told something else")
    world.prepare_the_resume()
    check(world.collect(resume=True, seed=3) == 0, "the resume gave up")
    check(len(world.rows()) == ALL and right(world.rows()), "a reward is not the judge's")
    check(len(judge.calls()) == ALL + REPEATS, "more was judged than the group that was not whole")
    return f"a plain resume gives up; after the guide's lines a resume has all {ALL}, {REPEATS} pairs judged for it"


def the_job_is_killed(world: World) -> str:
    """The whole job dies with a group half sent. A plain resume meets its answers; the guide's lines open fresh groups."""
    judge = world.judge()
    world.serve()
    job = world.start(withheld=PROMPTS[HARBOUR])
    wait_until(lambda: len(world.rows()) == ALL - REPEATS, "the other groups' rows", 60)
    stored = "SELECT count(*) FROM member JOIN cohort ON cohort.id = cohort_id WHERE status = 'collecting'"
    wait_until(lambda: world.sql(stored) == [(REPEATS - 1,)], "the half group", 60)
    job.kill()
    _tear_a_group(world)
    check(world.collect(resume=True, seed=2) == GAVE_UP, "a plain resume went on")
    check((409, "response_conflict") in world.told(), "the half group's answers were not held against the resume's")
    calls = len(judge.calls())
    world.prepare_the_resume()
    check(world.collect(resume=True, seed=3) == 0, "the resume gave up")
    check(len(world.rows()) == ALL and right(world.rows()), "a reward is not the judge's")
    check(len(judge.calls()) == calls + 2 * REPEATS, "more was judged than the two groups that were not whole")
    return f"a plain resume gives up; after the guide's lines a resume has all {ALL}, {2 * REPEATS} pairs judged for it"


def _tear_a_group(world: World) -> None:
    """Lose the last row of a judged group, as a kill between two rows does."""
    lines = world.file().read_text().splitlines(keepends=True)
    world.file().write_text("".join(lines[:-1]))


SCENARIOS: Final = (
    all_is_well, a_sibling_is_missing, there_are_too_many_repeats, a_rollout_hangs, the_judge_is_away, an_outage_is_over,
    failures_count_as_zero, it_dies_in_the_middle, a_reply_is_lost, a_group_is_half_written, the_job_is_killed,
)  # fmt: skip
REPLAYED: Final = (
    all_is_well, a_sibling_is_missing, there_are_too_many_repeats, a_rollout_hangs, the_judge_is_away, the_job_is_killed,
)  # fmt: skip
