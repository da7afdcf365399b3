"""The tables: every rule that a row can keep is a constraint here; those that need two rows are triggers in `rules`.

SQL is a public interface: names and meanings change only by migrations. Every column and index carries a comment, which
Postgres stores and docs/schema.md prints.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    ForeignKeyConstraint,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    UniqueConstraint,
    false,
    text,
)

from cohortd.cohorts.lifecycle import FAILURE_KINDS, STATUSES
from cohortd.store.types import Bytes, CohortId, Instant, LongText, Number, key_text

metadata = MetaData()

KINDS = ("explicit", "legacy")
COMPARISON_STATUSES = ("planned", "done", "failed", "unused")
SCOPES = ("read", "write", "admin")
INT31 = 2**31 - 1


def one_of(column: str, values: tuple[str, ...], *, null: bool = False) -> str:
    """SQL that holds when the column is one of the values (or null)."""
    listed = f"{column} IN ({', '.join(repr(value) for value in values)})"
    return f"{column} IS NULL OR {listed}" if null else listed


def flag(name: str, table: str, comment: str) -> Column[bool]:
    """A boolean that is false until set; SQLite checks what Postgres has a type for."""
    return Column(
        name,
        Boolean(create_constraint=True, name=f"ck_{table}_{name}"),
        nullable=False,
        server_default=false(),
        comment=comment,
    )


campaign = Table(
    "campaign",
    metadata,
    Column("name", key_text(72), comment="Namespace of group ids, tokens, settings and reports."),
    Column("created_at", Instant, nullable=False, comment="When its first member was accepted."),
    PrimaryKeyConstraint("name", name="pk_campaign"),
    CheckConstraint("length(name) BETWEEN 1 AND 72", name="ck_campaign_name"),
    comment="One training run or evaluation; comes into being with its first accepted write.",
)

judging_profile = Table(
    "judging_profile",
    metadata,
    Column("digest", key_text(64), comment="SHA-256 of the document, in hex."),
    Column("document", LongText, nullable=False, comment="The judging configuration as JSON, keys sorted."),
    Column("created_at", Instant, nullable=False, comment="When a cohort first used it."),
    PrimaryKeyConstraint("digest", name="pk_judging_profile"),
    comment="A judging configuration, frozen with every cohort that names it; rows never change.",
)

cohort_group = Table(
    "cohort_group",
    metadata,
    Column("campaign", key_text(72), nullable=False, comment="The group's campaign."),
    Column("kind", key_text(8), nullable=False, comment="explicit: named by the caller; legacy: derived (R8)."),
    Column("group_id", key_text(256), nullable=False, comment="The caller's id; for legacy the hex digest of its key."),
    Column("fingerprint", Bytes, nullable=False, comment="Versioned digest of prompt and principle (R6)."),
    Column("newest_attempt", Integer, nullable=False, comment="Highest attempt seen; outlives every retention (R14)."),
    Column("task_index", Integer, comment="Legacy: the task index that the key was made of."),
    Column("prompt_id", key_text(256), comment="Legacy: the prompt id that the key was made of."),
    Column("created_at", Instant, nullable=False, comment="When its first member was accepted."),
    Column("principle", LongText, comment="The principle that the judge is given, if the caller sent one."),
    Column("conversation", LongText, comment="The prompt as the judge is given it: JSON list of {role, content}."),
    PrimaryKeyConstraint("campaign", "kind", "group_id", name="pk_cohort_group"),
    ForeignKeyConstraint(["campaign"], ["campaign.name"], name="fk_cohort_group_campaign"),
    CheckConstraint(one_of("kind", KINDS), name="ck_cohort_group_kind"),
    CheckConstraint("length(group_id) BETWEEN 1 AND 256", name="ck_cohort_group_group_id"),
    CheckConstraint(f"newest_attempt BETWEEN 0 AND {INT31}", name="ck_cohort_group_newest_attempt"),
    CheckConstraint(
        "kind = 'legacy' OR (task_index IS NULL AND prompt_id IS NULL)", name="ck_cohort_group_legacy_parts"
    ),
    comment="One occurrence of one prompt within a campaign, bound to that prompt for ever.",
)

cohort = Table(
    "cohort",
    metadata,
    Column("id", CohortId, comment="UUIDv7; sorts by creation within a process."),
    Column("campaign", key_text(72), nullable=False, comment="The group's campaign."),
    Column("kind", key_text(8), nullable=False, comment="The group's kind."),
    Column("group_id", key_text(256), nullable=False, comment="The group's id."),
    Column("attempt", Integer, nullable=False, comment="Try number of the whole group, given by the caller."),
    Column("incarnation", Integer, nullable=False, comment="Given by the server when one identity is used again."),
    flag("retired", "cohort", "Another incarnation has taken (or may take) this identity."),
    Column("size", Integer, nullable=False, comment="N, fixed by the first member."),
    Column("status", key_text(10), nullable=False, comment="State of its life (SPEC 2)."),
    Column("failure_kind", key_text(24), comment="Why it failed; null unless failed."),
    Column("failure_reason", LongText, comment="The failure in our words, at most 2,000 characters."),
    Column("fence", BigInteger, nullable=False, server_default=text("0"), comment="Raised by each claim (L5)."),
    Column("created_at", Instant, nullable=False, comment="When its first member was accepted."),
    Column("ready_at", Instant, comment="When it was full (or went on without the missing)."),
    Column("settled_at", Instant, comment="When it was completed or failed."),
    Column("collection_deadline_at", Instant, nullable=False, comment="It must be full by then (R30)."),
    Column("evaluation_deadline_at", Instant, comment="Every verdict must be in by then (R31)."),
    Column("judge", key_text(128), nullable=False, comment="Name of the judge that its profile freezes."),
    Column("profile_digest", key_text(64), nullable=False, comment="Its frozen judging configuration."),
    flag("judges_early", "cohort", "Pairs are judged while siblings are still missing (R36)."),
    Column("claimed_by", BigInteger, comment="Token of the process that judges it; never a host name."),
    Column("lease_expires_at", Instant, nullable=False, comment="The claim holds until then; long past when free."),
    Column("idle_claims", Integer, nullable=False, server_default=text("0"), comment="Claims that ran out idle (L7)."),
    Column("rejudge_of", CohortId, comment="The cohort whose stored answers this one judges again."),
    Column("answered_from", CohortId, comment="Legacy copies: the completed cohort whose rewards were given (R24)."),
    Column("results_dropped_at", Instant, comment="When retention dropped rewards and members (R70)."),
    Column("payload_dropped_at", Instant, comment="When retention dropped texts and bodies (R70)."),
    PrimaryKeyConstraint("id", name="pk_cohort"),
    UniqueConstraint("campaign", "kind", "group_id", "attempt", "incarnation", name="uq_cohort_identity"),
    ForeignKeyConstraint(
        ["campaign", "kind", "group_id"],
        ["cohort_group.campaign", "cohort_group.kind", "cohort_group.group_id"],
        name="fk_cohort_cohort_group",
    ),
    ForeignKeyConstraint(["profile_digest"], ["judging_profile.digest"], name="fk_cohort_judging_profile"),
    ForeignKeyConstraint(["rejudge_of"], ["cohort.id"], name="fk_cohort_rejudge_of"),
    ForeignKeyConstraint(["answered_from"], ["cohort.id"], name="fk_cohort_answered_from"),
    CheckConstraint(one_of("status", STATUSES), name="ck_cohort_status"),
    CheckConstraint(one_of("failure_kind", FAILURE_KINDS, null=True), name="ck_cohort_failure_kind"),
    CheckConstraint("(status = 'failed') = (failure_kind IS NOT NULL)", name="ck_cohort_failed_has_kind"),
    CheckConstraint("(status IN ('completed', 'failed')) = (settled_at IS NOT NULL)", name="ck_cohort_settled_at"),
    CheckConstraint(
        "status NOT IN ('ready', 'judging', 'completed') OR (ready_at IS NOT NULL AND evaluation_deadline_at IS NOT NULL)",
        name="ck_cohort_ready_at",
    ),
    CheckConstraint("length(failure_reason) <= 2000", name="ck_cohort_failure_reason"),
    CheckConstraint(
        "settled_at IS NOT NULL OR (results_dropped_at IS NULL AND payload_dropped_at IS NULL)",
        name="ck_cohort_dropped_when_settled",
    ),
    CheckConstraint(f"attempt BETWEEN 0 AND {INT31}", name="ck_cohort_attempt"),
    CheckConstraint("incarnation >= 0", name="ck_cohort_incarnation"),
    CheckConstraint("size >= 2", name="ck_cohort_size"),
    CheckConstraint("fence >= 0 AND idle_claims >= 0", name="ck_cohort_counters"),
    comment="One attempt of one group, and everything that decides what becomes of it.",
)

member_slot = Table(
    "member_slot",
    metadata,
    Column("cohort_id", CohortId, nullable=False, comment="The member's cohort."),
    Column("rollout_index", Integer, nullable=False, comment="Its slot, 0 ... N-1."),
    Column("response_digest", Bytes, nullable=False, comment="Versioned digest of the whole response (R7)."),
    Column("arrived_at", Instant, nullable=False, comment="When it was accepted."),
    flag("text_escaped", "member_slot", "NUL or lone surrogates stand escaped in the texts (R71)."),
    flag("answer_cut", "member_slot", "The judge is shown a shortened answer (R38)."),
    Column("metadata", LongText, comment="The caller's metadata as JSON, if any was sent."),
    Column("answer", LongText, comment="What the judge compares; null once dropped by retention."),
    Column("reasoning", LongText, comment="The rollout's reasoning; null once dropped by retention."),
    PrimaryKeyConstraint("cohort_id", "rollout_index", name="pk_member_slot"),
    ForeignKeyConstraint(["cohort_id"], ["cohort.id"], name="fk_member_slot_cohort"),
    CheckConstraint(f"rollout_index BETWEEN 0 AND {INT31}", name="ck_member_slot_rollout_index"),
    comment="The first accepted response of a slot; rewards stand apart, so that setting one rewrites no text.",
)

member_body = Table(
    "member_body",
    metadata,
    Column("cohort_id", CohortId, nullable=False, comment="The member's cohort."),
    Column("rollout_index", Integer, nullable=False, comment="The member's slot."),
    Column("codec", Integer, nullable=False, comment="0: as it came; 1: zstd."),
    Column("wire", key_text(8), nullable=False, comment="The route's shape: gym, native or answer."),
    Column("body", Bytes, nullable=False, comment="The request body, byte for byte, under its codec."),
    PrimaryKeyConstraint("cohort_id", "rollout_index", name="pk_member_body"),
    ForeignKeyConstraint(
        ["cohort_id", "rollout_index"],
        ["member_slot.cohort_id", "member_slot.rollout_index"],
        name="fk_member_body_member_slot",
    ),
    CheckConstraint("codec IN (0, 1)", name="ck_member_body_codec"),
    comment="Requests as they came, for replies, audits and exact texts.",
)

member_reward = Table(
    "member_reward",
    metadata,
    Column("cohort_id", CohortId, nullable=False, comment="The member's cohort."),
    Column("rollout_index", Integer, nullable=False, comment="The member's slot."),
    Column("reward", Number, nullable=False, comment="What the rollout is told."),
    Column("base_reward", Number, nullable=False, comment="Before shaping terms."),
    Column("adjustment", Number, nullable=False, comment="Sum of the shaping terms."),
    flag("mask_sample", "member_reward", "The trainer is told to leave the sample out (R34, R37)."),
    Column(
        "defaulted_comparisons",
        Integer,
        nullable=False,
        server_default=text("0"),
        comment="How many of its verdicts were defaulted (R37).",
    ),
    PrimaryKeyConstraint("cohort_id", "rollout_index", name="pk_member_reward"),
    ForeignKeyConstraint(
        ["cohort_id", "rollout_index"],
        ["member_slot.cohort_id", "member_slot.rollout_index"],
        name="fk_member_reward_member_slot",
    ),
    CheckConstraint(
        "reward BETWEEN -1.7976931348623157e308 AND 1.7976931348623157e308", name="ck_member_reward_reward"
    ),
    CheckConstraint(
        "base_reward BETWEEN -1.7976931348623157e308 AND 1.7976931348623157e308", name="ck_member_reward_base"
    ),
    CheckConstraint(
        "adjustment BETWEEN -1.7976931348623157e308 AND 1.7976931348623157e308", name="ck_member_reward_adjustment"
    ),
    comment="A settled reward: written once, in the transaction that completes the cohort, never changed (L3).",
)

comparison = Table(
    "comparison",
    metadata,
    Column("cohort_id", CohortId, nullable=False, comment="The comparison's cohort."),
    Column("position", Integer, nullable=False, comment="Place in the plan; verdicts are added in this order (R50)."),
    Column("first", Integer, nullable=False, comment="Slot shown to the judge first."),
    Column("second", Integer, nullable=False, comment="Slot shown to the judge second."),
    Column("judge_index", Integer, nullable=False, comment="Pass of the judge over the pairs."),
    Column("status", key_text(8), nullable=False, comment="planned, done, failed, or unused (R34)."),
    Column("score_1", Number, comment="1-5, of the first."),
    Column("score_2", Number, comment="1-5, of the second."),
    Column("ranking", Number, comment="1-6; 1: first much better."),
    flag("defaulted", "comparison", "The neutral verdict stands in for an unparseable answer (R37, R46)."),
    flag("ambiguous", "comparison", "The judge's text held several different verdicts (R51)."),
    Column("tries", Integer, nullable=False, server_default=text("0"), comment="HTTP tries made so far."),
    Column("judge_model", LongText, comment="The model that the judge says it is."),
    Column("prompt_tokens", BigInteger, comment="Of the try that gave the verdict."),
    Column("completion_tokens", BigInteger, comment="Of the try that gave the verdict."),
    Column("latency_ms", Number, comment="Of the try that gave the verdict."),
    Column("ended_at", Instant, comment="When its verdict or failure was stored."),
    Column("text", LongText, comment="What the judge wrote; null once dropped by retention."),
    PrimaryKeyConstraint("cohort_id", "first", "second", "judge_index", name="pk_comparison"),
    ForeignKeyConstraint(["cohort_id"], ["cohort.id"], name="fk_comparison_cohort"),
    CheckConstraint(one_of("status", COMPARISON_STATUSES), name="ck_comparison_status"),
    CheckConstraint("first <> second AND first >= 0 AND second >= 0", name="ck_comparison_slots"),
    CheckConstraint("judge_index >= 0 AND position >= 0 AND tries >= 0", name="ck_comparison_counters"),
    CheckConstraint(
        "status <> 'done' OR (score_1 IS NOT NULL AND score_2 IS NOT NULL AND ranking IS NOT NULL)",
        name="ck_comparison_done_has_verdict",
    ),
    CheckConstraint("score_1 BETWEEN 1 AND 5", name="ck_comparison_score_1"),
    CheckConstraint("score_2 BETWEEN 1 AND 5", name="ck_comparison_score_2"),
    CheckConstraint("ranking BETWEEN 1 AND 6", name="ck_comparison_ranking"),
    comment="One judged pair; planned with the cohort, given its verdict once.",
)

judge_call = Table(
    "judge_call",
    metadata,
    Column("cohort_id", CohortId, nullable=False, comment="The comparison's cohort."),
    Column("first", Integer, nullable=False, comment="The comparison's first slot."),
    Column("second", Integer, nullable=False, comment="The comparison's second slot."),
    Column("judge_index", Integer, nullable=False, comment="The comparison's pass."),
    Column("try_no", Integer, nullable=False, comment="1, 2, 3 ... over all restarts."),
    Column("fence", BigInteger, nullable=False, comment="The claim under which it ended."),
    Column("outcome", key_text(24), nullable=False, comment="ok, or what kind of failure."),
    Column(
        "budget", key_text(12), nullable=False, comment="The budget that it cost: answers, transport or none (R45)."
    ),
    flag("answered", "judge_call", "It was a completed answer with text (R46)."),
    flag("exhausted", "judge_call", "It ran out of output tokens (R47)."),
    flag("early", "judge_call", "Siblings were missing when its tries began; it costs the full cohort nothing (R36)."),
    Column("http_status", Integer, comment="The judge's HTTP status, if any came."),
    Column("endpoint", LongText, comment="The endpoint's name; never its URL."),
    Column("error_type", LongText, comment="The judge's own type of error."),
    Column("error_code", LongText, comment="The judge's own code of error."),
    Column("message", LongText, comment="The judge's own words; may quote prompts; shown nowhere else (L2)."),
    Column("judge_model", LongText, comment="The model that the judge says it is."),
    Column("prompt_tokens", BigInteger, comment="As the judge counted."),
    Column("completion_tokens", BigInteger, comment="As the judge counted."),
    Column("latency_ms", Number, nullable=False, comment="From sending to the last byte."),
    Column("ended_at", Instant, nullable=False, comment="When its outcome was stored."),
    Column("text", LongText, comment="What the judge wrote, if it gave no verdict."),
    Column("reasoning", LongText, comment="The judge's reasoning, where the model shows it."),
    PrimaryKeyConstraint("cohort_id", "first", "second", "judge_index", "try_no", name="pk_judge_call"),
    ForeignKeyConstraint(
        ["cohort_id", "first", "second", "judge_index"],
        ["comparison.cohort_id", "comparison.first", "comparison.second", "comparison.judge_index"],
        name="fk_judge_call_comparison",
    ),
    CheckConstraint(one_of("budget", ("answers", "transport", "none")), name="ck_judge_call_budget"),
    CheckConstraint("try_no >= 1 AND latency_ms >= 0", name="ck_judge_call_counters"),
    comment="Every HTTP try that ended, written with its outcome; one cut off by a crash leaves none (R41).",
)

cohort_event = Table(
    "cohort_event",
    metadata,
    Column("cohort_id", CohortId, nullable=False, comment="The cohort that changed."),
    Column("fence", BigInteger, nullable=False, comment="Its fence after the change."),
    Column("status", key_text(10), nullable=False, comment="The state that it entered."),
    Column("at", Instant, nullable=False, comment="When."),
    Column("detail", LongText, comment="Failure kind and reason, or what else explains the change."),
    PrimaryKeyConstraint("cohort_id", "fence", "status", name="pk_cohort_event"),
    ForeignKeyConstraint(["cohort_id"], ["cohort.id"], name="fk_cohort_event_cohort"),
    CheckConstraint(one_of("status", STATUSES), name="ck_cohort_event_status"),
    comment="Changes of state, each entered once under each fence.",
)

api_token = Table(
    "api_token",
    metadata,
    Column("id", key_text(32), comment="Public name of the token."),
    Column("campaign", key_text(72), comment="The campaign that it is for; null: all of them."),
    Column("scope", key_text(8), nullable=False, comment="read, write or admin; each includes the ones before it."),
    Column("token_hash", Bytes, nullable=False, comment="SHA-256 of the token; the token itself is nowhere stored."),
    Column("note", LongText, comment="Whose it is."),
    Column("created_at", Instant, nullable=False, comment="When it was made."),
    Column("revoked_at", Instant, comment="When it was revoked; null while it counts."),
    PrimaryKeyConstraint("id", name="pk_api_token"),
    UniqueConstraint("token_hash", name="uq_api_token_hash"),
    CheckConstraint(one_of("scope", SCOPES), name="ck_api_token_scope"),
    comment="Access, by the hash of its secret.",
)

service_state = Table(
    "service_state",
    metadata,
    Column("id", Integer, comment="Always 1."),
    flag("judging_paused", "service_state", "No cohort is claimed while it is set."),
    Column("paused_at", Instant, comment="Since when."),
    Column("moved_to", LongText, comment="Where this database was copied to; it is not served any more."),
    Column("moved_at", Instant, comment="Since when."),
    Column(
        "clock_offset_ms",
        BigInteger,
        nullable=False,
        server_default=text("0"),
        comment="Moved by tests alone; 0 in use.",
    ),
    PrimaryKeyConstraint("id", name="pk_service_state"),
    CheckConstraint("id = 1", name="ck_service_state_single"),
    comment="What all processes on this database share: one row.",
)
