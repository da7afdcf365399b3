"""Claims: a cohort is judged by the one process that holds its lease, and its fence tells the others apart (DESIGN 5)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from cohortd.cohorts.profile import Profile
from cohortd.store import transitions
from cohortd.store.bodies import exact_texts
from cohortd.store.clock import Engine, never_sql, now_sql, seconds_until_sql
from cohortd.store.commands import Claimed, Held, Missing, Refresh, Release, Renew
from cohortd.store.settlement import READ_TEXTS
from cohortd.store.statements import Row, Statement, Step, Transaction, both
from cohortd.store.work import CohortState, Work

if TYPE_CHECKING:
    from cohortd.store.batch import Context

LONE_FROM: Final = 2  # idle claims from which a cohort is claimed alone
INTERNAL_FROM: Final = 5  # two idle claims in company, then three lone ones (L7)

# Statuses are literals and the clock a subquery, or neither engine would use the partial index (TRIAL 5.20).
FULL: Final = "status IN ('ready', 'judging')"
EARLY: Final = "status = 'collecting' AND judges_early"
# A pair that could be judged: both its members are there (R36).
JUDGEABLE: Final = """EXISTS (SELECT 1 FROM comparison p
           JOIN member_slot a ON a.cohort_id = p.cohort_id AND a.rollout_index = p.first
           JOIN member_slot b ON b.cohort_id = p.cohort_id AND b.rollout_index = p.second
           WHERE p.cohort_id = cohort.id AND p.status = 'planned')"""


def _free(engine: Engine) -> str:
    return f"lease_expires_at <= (SELECT {now_sql(engine)})"


def _take(engine: Engine, token: str, lease_s: str) -> str:
    """The SET of a claim; a lease that ran out without one ended call counts against the cohort (L7)."""
    return f"""SET status = CASE WHEN status = 'ready' THEN 'judging' ELSE status END, claimed_by = {token},
       lease_expires_at = {now_sql(engine, lease_s)}, fence = fence + 1,
       idle_claims = idle_claims + CASE WHEN claimed_by IS NOT NULL AND NOT EXISTS (
           SELECT 1 FROM judge_call k WHERE k.cohort_id = cohort.id AND k.fence = cohort.fence) THEN 1 ELSE 0 END"""


def _campaigns(where: str, name: str) -> Statement:
    def sql(engine: Engine, judge: str) -> str:
        return f"""SELECT DISTINCT campaign, judge FROM cohort
        WHERE {where} AND {_free(engine)} AND judge = {judge} AND NOT (SELECT judging_paused FROM service_state)"""

    return Statement(name, sql("sqlite", "?1"), sql("postgresql", "ANY($1::text[])"), returns=True)


def _claim(where: str, name: str) -> Statement:
    """Take at most so many cohorts of a campaign and judge, oldest first, passing by those that another is taking."""

    def sql(engine: Engine, campaign: str, judge: str, token: str, lease_s: str, most: str, skip: str) -> str:
        return f"""UPDATE cohort {_take(engine, token, lease_s)}
        WHERE id IN (SELECT id FROM cohort WHERE campaign = {campaign} AND judge = {judge} AND {where} AND {_free(engine)}
                      ORDER BY lease_expires_at, ready_at LIMIT {most}{skip})
        RETURNING id"""

    return Statement(
        name,
        sql("sqlite", "?1", "?2", "?3", "?4", "?5", ""),
        sql(
            "postgresql",
            "($1::text[])[1]",
            "($2::text[])[1]",
            "($3::bigint[])[1]",
            "($4::float8[])[1]",
            "($5::bigint[])[1]",
            " FOR NO KEY UPDATE SKIP LOCKED",
        ),
        returns=True,
    )


# In company only while it has not been claimed in vain too often; then alone, once it is full (L7). A claim that ran out
# is counted by the next one, so the last one may still have to be.
_ENDED_A_CALL: Final = "EXISTS (SELECT 1 FROM judge_call k WHERE k.cohort_id = cohort.id AND k.fence = cohort.fence)"
SOUND: Final = (
    f"(idle_claims < {LONE_FROM - 1} OR (idle_claims < {LONE_FROM} AND (claimed_by IS NULL OR {_ENDED_A_CALL})))"
)
CLAIMABLE_CAMPAIGNS = (
    _campaigns(f"{FULL} AND {SOUND}", "claimable_full"),
    _campaigns(f"{EARLY} AND {SOUND}", "claimable_early"),
)
CLAIMS = (
    _claim(f"{FULL} AND {SOUND}", "claim_full"),
    _claim(f"{EARLY} AND {SOUND} AND {JUDGEABLE}", "claim_early"),
)
CLAIM_LONE = _claim(f"{FULL} AND NOT {SOUND}", "claim_lone")
LONE_CAMPAIGNS = _campaigns(f"{FULL} AND NOT {SOUND}", "claimable_lone")

# Right after the cohort became ready or grew, in the same transaction: its row is locked already. One that judges early
# may be in somebody's hands, who goes on with it.
CLAIM_FILLED = Statement(
    "claim_filled",
    f"""UPDATE cohort {_take("sqlite", "?2", "?3")}
        WHERE id = ?1 AND settled_at IS NULL AND {SOUND} AND {_free("sqlite")} AND NOT (SELECT judging_paused FROM service_state) RETURNING id""",
    f"""UPDATE cohort {_take("postgresql", "($2::bigint[])[1]", "($3::float8[])[1]")}
        WHERE id = ANY($1::uuid[]) AND settled_at IS NULL AND {SOUND} AND {_free("postgresql")}
          AND NOT (SELECT judging_paused FROM service_state) RETURNING id""",
    returns=True,
)
RENEW = both(
    "renew",
    """UPDATE cohort SET lease_expires_at = {now+k.lease_s} {from}
        WHERE cohort.id = {k.id} AND cohort.fence = {k.fence} AND cohort.claimed_by = {k.token} AND cohort.settled_at IS NULL
        RETURNING cohort.id""",
    keys="id fence token lease_s",
    types="uuid bigint bigint float8",
    returns=True,
)
RELEASE = both(
    "release",
    """UPDATE cohort SET lease_expires_at = {never}, claimed_by = NULL {from}
        WHERE cohort.id = {k.id} AND cohort.fence = {k.fence} AND cohort.claimed_by = {k.token}""",
    keys="id fence token",
    types="uuid bigint bigint",
)
# A process that died while its cohort waited for members had no call to end: its claim is forgotten, not counted (L7).
_FORGET_IDLE_WAIT: Final = f"claimed_by = CASE WHEN {EARLY} AND NOT {JUDGEABLE} THEN NULL ELSE claimed_by END"

# The holder of the lock on a SQLite file knows that no other process lives: all leases are over (DESIGN 5).
VOID_ALL_LEASES = f"""UPDATE cohort SET lease_expires_at = {never_sql("sqlite")}, {_FORGET_IDLE_WAIT}
        WHERE ({FULL} OR ({EARLY})) AND lease_expires_at > {never_sql("sqlite")}"""

# Each process holds a session lock on its token: a lease whose token is locked by nobody is over (DESIGN 5). On SQLite
# one process serves, and what others left it has voided when it started.
VOID_DEAD_LEASES = Statement(
    "void_dead_leases",
    "UPDATE cohort SET lease_expires_at = lease_expires_at WHERE id = ?1 AND FALSE",
    f"""UPDATE cohort SET lease_expires_at = {never_sql("postgresql")}, {_FORGET_IDLE_WAIT}
        WHERE id IN (SELECT id FROM cohort
                      WHERE ({FULL} OR ({EARLY})) AND claimed_by IS NOT NULL AND claimed_by <> ALL($1::bigint[])
                        AND lease_expires_at > {never_sql("postgresql")}
                        AND NOT EXISTS (SELECT 1 FROM pg_locks l WHERE l.locktype = 'advisory' AND l.objsubid = 1
                                           AND (l.classid::bigint << 32 | l.objid::bigint) = claimed_by)
                      FOR NO KEY UPDATE SKIP LOCKED)""",
)


def _read_claimed(engine: Engine, id_: str) -> str:
    return f"""SELECT c.id, c.fence, c.campaign, c.group_id, c.attempt, c.size, c.judge, c.profile_digest, f.document,
              g.conversation, g.principle, {seconds_until_sql(engine, "c.evaluation_deadline_at")}, c.idle_claims, c.status
         FROM cohort c
         JOIN cohort_group g ON g.campaign = c.campaign AND g.kind = c.kind AND g.group_id = c.group_id
         JOIN judging_profile f ON f.digest = c.profile_digest
        WHERE c.id = {id_}"""


READ_CLAIMED = Statement(
    "read_claimed", _read_claimed("sqlite", "?1"), _read_claimed("postgresql", "ANY($1::uuid[])"), returns=True
)
READ_PLANNED = both(
    "read_planned",
    """SELECT p.cohort_id, p.position, p.first, p.second, p.judge_index, p.tries {using_from} comparison p
        WHERE p.cohort_id = {k.id} AND p.status = 'planned'""",
    keys="id",
    types="uuid",
    returns=True,
)
READ_SPENT = both(
    "read_spent",
    """SELECT k2.cohort_id, k2.first, k2.second, k2.judge_index, k2.budget, k2.answered, k2.exhausted, k2.early
         {using_from} judge_call k2 WHERE k2.cohort_id = {k.id}""",
    keys="id",
    types="uuid",
    returns=True,
)
READ_GROWTH = both(
    "read_growth",
    """SELECT c.id, c.status, (SELECT count(*) FROM member_slot s WHERE s.cohort_id = c.id) {using_from} cohort c
        WHERE c.id = {k.id} AND c.fence = {k.fence} AND c.claimed_by = {k.token} AND c.settled_at IS NULL""",
    keys="id fence token",
    types="uuid bigint bigint",
    returns=True,
)
READ_BODIES = both(
    "read_bodies",
    "SELECT b.cohort_id, b.rollout_index, b.codec, b.body {using_from} member_body b WHERE b.cohort_id = {k.id}",
    keys="id",
    types="uuid",
    returns=True,
)


def claim_filled(work: Work, cohorts: Sequence[CohortState], context: Context) -> Transaction[list[str]]:
    """Claim cohorts that this very transaction filled; returns the ids that are claimed now."""
    if not cohorts:
        return []
    rows = yield Step(CLAIM_FILLED, [(cohort.id, context.token, context.lease_s) for cohort in cohorts])
    return [str(row[0]) for row in rows]


def claim_waiting(work: Work, limit: int, context: Context) -> Transaction[list[str]]:
    """Claim up to `limit` cohorts that wait, one campaign after the other, so that none starves; returns their ids."""
    taken: list[str] = []
    yield Step(VOID_DEAD_LEASES, [(context.token,)])
    for campaigns, claim in zip(CLAIMABLE_CAMPAIGNS, CLAIMS, strict=True):
        if not context.judges or len(taken) >= limit:
            break
        sources = {(row[0], row[1]) for row in (yield Step(campaigns, [(judge,) for judge in context.judges]))}
        for campaign, judge in context.rotated(sorted(sources)):
            share = max(1, (limit - len(taken)) // max(1, len(sources)))
            rows = yield Step(claim, [(campaign, judge, context.token, context.lease_s, share)])
            taken += [str(row[0]) for row in rows]
            if len(taken) >= limit:
                break
    return taken


def claim_lone(work: Work, context: Context) -> Transaction[list[str]]:
    """Claim one cohort that was claimed in vain too often: whoever dies of it takes no other along (L7)."""
    for campaign, judge in (yield from lone_sources(context)):
        if rows := (yield Step(CLAIM_LONE, [(campaign, judge, context.token, context.lease_s, 1)])):
            return [str(rows[0][0])]
    return []


def lone_sources(context: Context) -> Transaction[list[tuple[str, str]]]:
    """Campaigns and judges that have a cohort to be claimed alone."""
    if not context.judges:
        return []
    rows = yield Step(LONE_CAMPAIGNS, [(judge,) for judge in context.judges])
    return sorted({(row[0], row[1]) for row in rows})


def load_claimed(work: Work, ids: Iterable[str], context: Context) -> Transaction[list[Claimed]]:
    """All that judging these just claimed cohorts needs; one that was claimed idle too often fails (L7)."""
    loaded = []
    for claimed, idle, status in (yield from _load(ids, context)):
        if idle >= INTERNAL_FROM:
            yield from _give_up(work, claimed)
            continue
        work.write(transitions.ENTERED, (claimed.held.cohort_id, claimed.held.fence, status, None))
        loaded.append(claimed)
    return loaded


def refresh(command: Refresh, context: Context) -> Transaction[tuple[dict[str, Claimed], set[str]]]:
    """The cohorts that grew since they were seen, as they are now, and the ids that are not the caller's any more."""
    keys = [(seen.held.cohort_id, seen.held.fence, context.token) for seen in command.seen]
    now = {str(id_): (status == "collecting", members) for id_, status, members in (yield Step(READ_GROWTH, keys))}
    known = {seen.held.cohort_id: (seen.collecting, seen.members) for seen in command.seen}
    changed = yield from _load([id_ for id_, state in now.items() if state != known[id_]], context)
    return {claimed.held.cohort_id: claimed for claimed, _, _ in changed}, known.keys() - now.keys()


def _load(ids: Iterable[str], context: Context) -> Transaction[list[tuple[Claimed, int, str]]]:
    """(the cohort as judging needs it, its idle claims, its status) of each."""
    keys = [(id_,) for id_ in sorted(ids)]
    if not keys:
        return []
    heads = yield Step(READ_CLAIMED, keys)
    planned = yield Step(READ_PLANNED, keys)
    texts = yield Step(READ_TEXTS, keys)
    retried = sorted({str(row[0]) for row in planned if row[5]})
    spent = (yield Step(READ_SPENT, [(id_,) for id_ in retried])) if retried else []
    escaped = sorted({str(row[0]) for row in texts if row[4]})
    bodies = (yield Step(READ_BODIES, [(id_,) for id_ in escaped])) if escaped else []
    loaded = []
    for head in heads:
        id_ = str(head[0])
        context.profiles.setdefault(head[7], Profile.from_document(head[8]))
        early = head[13] == "collecting"
        spent_now = [row for row in spent if bool(row[7]) == early]  # a full cohort's tries begin afresh (R36)
        claimed = _claimed(head, _missing(id_, planned, spent_now), _answers(id_, texts, bodies))
        loaded.append((claimed, head[12], head[13]))
    return loaded


def _give_up(work: Work, claimed: Claimed) -> Transaction[None]:
    id_ = claimed.held.cohort_id
    if id_ not in work.cohorts:
        yield from work.lock_cohorts([id_])
    transitions.fail(
        work,
        work.cohorts[id_],
        "internal",
        f"Judging this cohort ended its process {INTERNAL_FROM} times without one ended judge call.",
    )


def _claimed(head: Row, missing: tuple[Missing, ...], answers: dict[int, str]) -> Claimed:
    (
        id_, fence, campaign, group_id, attempt, size, judge, digest, document, conversation, principle, left_s, idle,
        status,
    ) = head  # fmt: skip
    return Claimed(
        Held(str(id_), fence), campaign, group_id, attempt, size, judge, digest, document, conversation or "[]",
        principle, answers, missing, left_s, status == "collecting", idle >= LONE_FROM,
    )  # fmt: skip


def _missing(id_: str, planned: Sequence[Row], spent: Sequence[Row]) -> tuple[Missing, ...]:
    calls: dict[tuple[int, int, int], list[Row]] = {}
    for row in spent:
        if str(row[0]) == id_:
            calls.setdefault((row[1], row[2], row[3]), []).append(row)
    rows = sorted((row for row in planned if str(row[0]) == id_), key=lambda row: int(row[1]))
    return tuple(
        Missing(
            position, first, second, judge_index, tries,
            answers_spent=sum(row[4] == "answers" for row in own),
            transport_spent=sum(row[4] == "transport" for row in own),
            answered=any(row[5] for row in own),
            exhausted=sum(bool(row[6]) for row in own),
            refused=any(row[7] and row[4] == "none" for row in own),
        )
        for _, position, first, second, judge_index, tries in rows
        for own in [calls.get((first, second, judge_index), [])]
    )  # fmt: skip


def _answers(id_: str, texts: Sequence[Row], bodies: Sequence[Row]) -> dict[int, str]:
    answers = {row[1]: row[2] or "" for row in texts if str(row[0]) == id_}
    for row in bodies:
        if str(row[0]) == id_:
            answers[row[1]] = exact_texts(row[2], bytes(row[3])).answer
    return answers


def renew(command: Renew, context: Context) -> Transaction[set[str]]:
    """Extend the leases that still belong to the caller; the ids that do."""
    rows = [(held.cohort_id, held.fence, context.token, context.lease_s) for held in command.held]
    return {str(row[0]) for row in (yield Step(RENEW, rows))} if rows else set()


def release(work: Work, command: Release, context: Context) -> None:
    """Give leases back; whoever claims next does so at once, and the claim that ended does not count (L7)."""
    for held in command.held:
        work.write(RELEASE, (held.cohort_id, held.fence, context.token))
