"""Retention: what settled cohorts leave behind after a while; identities and newest attempts stay for ever (R70).

A batch is one short transaction over few cohorts, so that nobody who judges or waits notices. It locks as admissions
do: groups by key, then cohorts by id.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cohortd.store.clock import Engine, now_sql
from cohortd.store.statements import Row, Statement, Step, Transaction, both

BATCH: Final = 20  # cohorts of one transaction

RESULTS: Final = "settled_at IS NOT NULL AND results_dropped_at IS NULL"
PAYLOAD: Final = "settled_at IS NOT NULL AND payload_dropped_at IS NULL AND results_dropped_at IS NULL"


@dataclass(frozen=True, slots=True)
class Keep:
    """What is kept of settled cohorts; None: for ever, or however many there are."""

    payload_ttl_s: float | None = None
    cohort_result_ttl_s: float | None = None
    max_terminal_cohorts: int | None = None

    @property
    def everything(self) -> bool:
        """Nothing is ever dropped."""
        return self.payload_ttl_s is None and self.cohort_result_ttl_s is None and self.max_terminal_cohorts is None


@dataclass(frozen=True, slots=True)
class Dropped:
    """Cohorts that a batch or a whole round dropped something of."""

    results: int = 0
    payloads: int = 0

    def __add__(self, other: Dropped) -> Dropped:
        return Dropped(self.results + other.results, self.payloads + other.payloads)

    def __bool__(self) -> bool:
        return bool(self.results or self.payloads)


def _due(name: str, where: str) -> Statement:
    """The oldest settled cohorts, of those that were settled so many seconds ago; a negative age takes any."""

    def sql(engine: Engine, age_s: str, most: str) -> str:
        return f"""SELECT campaign, kind, group_id, id FROM cohort
        WHERE {where} AND settled_at <= (SELECT {now_sql(engine, f"(-{age_s})")}) ORDER BY settled_at LIMIT {most}"""

    return Statement(
        name, sql("sqlite", "?1", "?2"), sql("postgresql", "($1::float8[])[1]", "($2::bigint[])[1]"), returns=True
    )


DUE_RESULTS: Final = _due("due_results", RESULTS)
DUE_PAYLOADS: Final = _due("due_payloads", PAYLOAD)
LOCK_GROUP_ROWS: Final = Statement(
    "lock_group_rows",
    "SELECT campaign FROM cohort_group WHERE campaign = ?1 AND kind = ?2 AND group_id = ?3",
    """SELECT g.campaign FROM cohort_group g
        WHERE (g.campaign, g.kind, g.group_id) IN (SELECT * FROM unnest($1::text[], $2::text[], $3::text[]))
        ORDER BY g.campaign, g.kind, g.group_id FOR NO KEY UPDATE""",
    returns=True,
)


def _lock(where: str) -> Statement:
    return Statement(
        "lock_settled",
        f"SELECT id FROM cohort WHERE id = ?1 AND {where}",
        f"""WITH c AS MATERIALIZED (SELECT * FROM cohort WHERE id = ANY($1::uuid[]) ORDER BY id FOR NO KEY UPDATE)
        SELECT id FROM c WHERE {where}""",
        returns=True,
    )


def _of_cohort(name: str, sql: str) -> Statement:
    return both(name, sql, keys="id", types="uuid")


def _delete(table: str) -> Statement:
    return _of_cohort(f"drop_{table}", f"DELETE FROM {table} {{delete_using}} WHERE {table}.cohort_id = {{k.id}}")


# A cohort says first that it was dropped: the rules of the tables let nothing go before.
DROP_RESULTS: Final = (
    _of_cohort("mark_results", "UPDATE cohort SET results_dropped_at = {now} {from} WHERE cohort.id = {k.id}"),
    _delete("member_reward"),
    _delete("member_body"),
    _delete("member_slot"),
    _delete("judge_call"),
    _delete("comparison"),
)
DROP_PAYLOADS: Final = (
    _of_cohort("mark_payload", "UPDATE cohort SET payload_dropped_at = {now} {from} WHERE cohort.id = {k.id}"),
    _delete("member_body"),
    _of_cohort(
        "drop_texts",
        "UPDATE member_slot SET answer = NULL, reasoning = NULL, metadata = NULL {from} WHERE member_slot.cohort_id = {k.id}",
    ),
    _of_cohort("drop_verdict_texts", "UPDATE comparison SET text = NULL {from} WHERE comparison.cohort_id = {k.id}"),
    _of_cohort(
        "drop_call_texts",
        """UPDATE judge_call SET text = NULL, reasoning = NULL, message = NULL {from}
            WHERE judge_call.cohort_id = {k.id}""",
    ),
)
# A group's prompt goes with the last texts of its cohorts; the next attempt brings it again.
DROP_PROMPT: Final = both(
    "drop_prompt",
    """UPDATE cohort_group SET conversation = NULL, principle = NULL {from}
        WHERE cohort_group.campaign = {k.campaign} AND cohort_group.kind = {k.kind} AND cohort_group.group_id = {k.group_id}
          AND NOT EXISTS (SELECT 1 FROM cohort c
                           WHERE c.campaign = cohort_group.campaign AND c.kind = cohort_group.kind
                             AND c.group_id = cohort_group.group_id
                             AND c.payload_dropped_at IS NULL AND c.results_dropped_at IS NULL)""",
    keys="campaign kind group_id",
    types="text text text",
)
COUNT_TERMINAL: Final = f"SELECT count(*) FROM cohort WHERE {RESULTS}"


def prune(keep: Keep, excess: int, limit: int = BATCH) -> Transaction[Dropped]:
    """Drop the results, then the payloads, of at most `limit` cohorts each; what was dropped.

    `excess` is by how many the settled cohorts are more than `max_terminal_cohorts`; the oldest go first.
    """
    due: list[Row] = []
    if excess > 0:
        due += yield Step(DUE_RESULTS, [(-1.0, min(limit, excess))])
    if keep.cohort_result_ttl_s is not None and len(due) < limit:
        due += yield Step(DUE_RESULTS, [(keep.cohort_result_ttl_s, limit)])
    results = yield from _drop(due, RESULTS, DROP_RESULTS)
    due = []
    if keep.payload_ttl_s is not None and not results:
        due = yield Step(DUE_PAYLOADS, [(keep.payload_ttl_s, limit)])
    payloads = yield from _drop(due, PAYLOAD, DROP_PAYLOADS)
    return Dropped(results, payloads)


def _drop(due: list[Row], where: str, statements: tuple[Statement, ...]) -> Transaction[int]:
    if not due:
        return 0
    groups = sorted({(row[0], row[1], row[2]) for row in due})
    yield Step(LOCK_GROUP_ROWS, groups)
    ids = [(str(row[0]),) for row in (yield Step(_lock(where), sorted({(str(row[3]),) for row in due})))]
    if ids:
        for statement in statements:
            yield Step(statement, ids)
        yield Step(DROP_PROMPT, groups)
    return len(ids)
