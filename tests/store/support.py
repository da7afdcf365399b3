"""Writers and commands as the service uses them, without the service around them."""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import text

from cohortd.cohorts.digest import prompt_fingerprint, response_digest
from cohortd.cohorts.identity import GroupKey
from cohortd.cohorts.profile import Profile, digest
from cohortd.store.batch import Context, transact
from cohortd.store.bodies import pack
from cohortd.store.commands import (
    Admit,
    Call,
    Claim,
    Claimed,
    Command,
    FrozenProfile,
    Held,
    RecordVerdict,
    Results,
    Verdict,
)
from cohortd.store.engine import Database, Location

_tokens = itertools.count(1000)


def frozen(**fields: Any) -> FrozenProfile:
    """A profile as it is stored."""
    profile = Profile(judge_model="m", **fields).resolved("gym")
    document = profile.document()
    return FrozenProfile(profile, digest(document), document)


def admit(group: str, slot: int, *, attempt: int = 0, size: int = 2, answer: str | None = None, **fields: Any) -> Admit:
    """The response of one rollout, ready to be stored."""
    words = answer if answer is not None else f"Answer {slot} of {group}, attempt {attempt}."
    codec, body = pack(b'{"response": {"output": []}}')
    return Admit(
        group=GroupKey(fields.pop("campaign", "default"), "explicit", group), attempt=attempt, rollout_index=slot,
        size=size, default_size=size, fingerprint=prompt_fingerprint(f"Prompt of {group}", None),
        digest=response_digest({"answer": words}), frozen=fields.pop("profile", None) or frozen(**fields),
        conversation='[{"role":"user","content":"Prompt"}]', principle=None, answer=words, reasoning="",
        text_escaped=False, answer_cut=False, body=body, codec=codec, wire="gym",
    )  # fmt: skip


@dataclass
class Process:
    """What one process is to the database: its token, its judges, and its one writer."""

    database: Database
    context: Context = field(default_factory=lambda: Context(next(_tokens), judges=("judge",), room=0))
    writer: Any = None

    def __post_init__(self) -> None:
        self.writer = self.database.writer(self.context.token)

    async def commit(self, *commands: Command) -> Results:
        """Run the commands as one batch, as the scribe does."""
        results: Results = await self.writer.run(functools.partial(transact, commands, self.context))
        return results

    async def put(self, command: Command) -> Any:
        """The answer to one command."""
        return (await self.commit(command)).answers[0]

    async def claim(self, limit: int = 10) -> list[Claimed]:
        """Claim what waits."""
        return (await self.commit(Claim(limit))).claimed

    async def rows(self, sql: str) -> list[Any]:
        """The rows of a query."""
        async with self.database.reader() as connection:
            return [tuple(row) for row in (await connection.execute(text(sql))).all()]

    async def write(self, sql: str) -> None:
        """Run a statement as somebody with `psql` or `sqlite3` would."""
        async with self.database.reading.connect() as plain:
            connection = await plain.execution_options(sqlite_write=True)
            await connection.exec_driver_sql(sql)
            await connection.commit()

    async def pass_time(self, seconds: float) -> None:
        """Move the database's clock."""
        await self.write(f"UPDATE service_state SET clock_offset_ms = clock_offset_ms + {round(seconds * 1000)}")

    async def full(self, group: str, **fields: Any) -> str:
        """Admit a whole cohort of two; its id."""
        results = await self.commit(admit(group, 0, **fields), admit(group, 1, **fields))
        return str(results.answers[0].cohort_id)


@contextlib.asynccontextmanager
async def processes(url: str, count: int) -> AsyncIterator[list[Process]]:
    """So many processes on one database."""
    database = Database(Location.parse(url))
    found = [Process(database) for _ in range(count)]
    try:
        yield found
    finally:
        for process in found:
            await process.writer.close()
        await database.close()


def verdict(
    held: Held, first: int, second: int, *, last: bool = False, score: float = 4.0, tries: int = 1
) -> RecordVerdict:
    """A verdict of the pair, with its one call."""
    profile = frozen().profile
    made = Verdict(first, second, 0, score, 2.0, 2.0, False, False)
    return RecordVerdict(held, made, call(first, second, tries=tries), "text", profile, last=last)


def call(first: int, second: int, *, tries: int = 1, outcome: str = "ok") -> Call:
    """An HTTP try that ended."""
    return Call(
        first, second, 0, tries, outcome, "none" if outcome == "ok" else "transport", outcome == "ok", False, 200,
        "judge#0", None, None, None, "m", 1, 1, 1.0, None, None,
    )  # fmt: skip


def verdicts_of(held: Held, pairs: Iterable[tuple[int, int]]) -> list[RecordVerdict]:
    """Verdicts of all these pairs; the last one settles the cohort."""
    listed = list(pairs)
    return [verdict(held, first, second, last=at == len(listed) - 1) for at, (first, second) in enumerate(listed)]
