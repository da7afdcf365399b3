"""The settings of the service and of its judges: each once, with meaning, unit, default and limits."""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from cohortd.cohorts.profile import LONGEST_S
from cohortd.masking import masked_url

INT31: Final = 2**31 - 1
BYTES: Final = 2**53


class JudgeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where a judge is and how hard it may be asked: `[judges.NAME]`. Nothing of it is frozen with cohorts."""

    urls: Annotated[tuple[str, ...], Meta(description="Base URLs, each ending in `/v1`.")] = ()
    model: Annotated[str, Meta(description="Model to ask for; frozen with the cohort through the profile.")] = ""
    format: Annotated[
        Literal["gym_responses", "chat_roles", "chat_template"], Meta(description="Wire format (R42).")
    ] = "gym_responses"
    api_key: Annotated[str | None, Meta(description="Sent as `Authorization: Bearer`; never shown.")] = None
    max_output_tokens: Annotated[int, Meta(description="Tokens that an answer may have.", ge=1, le=INT31)] = 16384
    temperature: Annotated[float, Meta(description="Sampling temperature.", ge=0, le=100)] = 0.6
    top_p: Annotated[float, Meta(description="Nucleus of the sampling.", ge=0, le=1)] = 0.95
    concurrency: Annotated[int, Meta(description="Calls in flight at each endpoint.", ge=1, le=1_000_000)] = 256

    def __repr__(self) -> str:
        return f"JudgeSettings(urls={len(self.urls)}, model={self.model!r}, format={self.format!r})"


class ServiceSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How the service runs; none of it is frozen with cohorts."""

    database_url: Annotated[
        str,
        Meta(
            description="`sqlite+aiosqlite:///PATH`, or `postgresql+asyncpg://USER:PASSWORD@HOST/DATABASE?sslmode=MODE`."
        ),
    ] = "sqlite+aiosqlite:///./cohortd.db"
    host: Annotated[str, Meta(description="Address to listen on; beyond loopback only with --allow-anonymous.")] = (
        "127.0.0.1"
    )
    port: Annotated[int, Meta(description="Port to listen on; 0 takes a free one.", ge=0, le=65535)] = 8400
    role: Annotated[
        Literal["all", "api", "judge"],
        Meta(description="What this process does: take requests, judge, or both; split roles need Postgres."),
    ] = "all"
    notify: Annotated[
        Literal["on", "off"],
        Meta(description="Postgres: wake other processes by NOTIFY; off for poolers that cannot LISTEN."),
    ] = "on"
    lease_s: Annotated[
        float, Meta(description="How long a claim holds without renewal.", gt=0, le=LONGEST_S, extra={"unit": "s"})
    ] = 15.0
    drain_s: Annotated[
        float,
        Meta(
            description="After SIGTERM: how long verdicts in flight are still stored.",
            ge=0,
            le=LONGEST_S,
            extra={"unit": "s"},
        ),
    ] = 10.0
    database_wait_s: Annotated[
        float,
        Meta(
            description="How long a request waits for a database that is away.",
            gt=0,
            le=LONGEST_S,
            extra={"unit": "s"},
        ),
    ] = 60.0
    shutdown_reply: Annotated[
        Literal["close", "503"],
        Meta(description="Parked Gym requests at shutdown: closed without a reply (Gym's client sends again), or 503."),
    ] = "close"
    allow_anonymous: Annotated[
        bool, Meta(description="Listen beyond loopback without tokens; needs allowed_hosts.")
    ] = False
    allowed_hosts: Annotated[
        tuple[str, ...], Meta(description="Host headers that are served besides loopback names; `*` for any.")
    ] = ()
    max_body_bytes: Annotated[
        int, Meta(description="Largest request body; more is 413.", ge=1, le=BYTES, extra={"unit": "bytes"})
    ] = 32 * 2**20
    max_reading_bytes: Annotated[
        int, Meta(description="All bodies being read at once; more is 429.", ge=1, le=BYTES, extra={"unit": "bytes"})
    ] = 2**30
    max_active_cohorts: Annotated[
        int,
        Meta(description="Cohorts that are not settled; a member that would open one more is 429.", ge=1, le=INT31),
    ] = 20_000
    max_waiting_requests: Annotated[
        int, Meta(description="Requests that wait for their cohort; more is 429, stored.", ge=1, le=INT31)
    ] = 20_000
    max_rollouts_per_prompt: Annotated[int, Meta(description="Largest group size.", ge=2, le=4096)] = 256
    max_judge_response_bytes: Annotated[
        int,
        Meta(
            description="Largest reply of a judge; more counts as a transport fault.",
            ge=1,
            le=BYTES,
            extra={"unit": "bytes"},
        ),
    ] = 8 * 2**20
    payload_ttl_s: Annotated[
        Annotated[float, Meta(gt=0, le=LONGEST_S)] | None,
        Meta(description="Settled cohorts lose bodies and texts after this; unset: never (R70).", extra={"unit": "s"}),
    ] = None
    cohort_result_ttl_s: Annotated[
        Annotated[float, Meta(gt=0, le=LONGEST_S)] | None,
        Meta(description="Settled cohorts lose their results after this; unset: never (R70).", extra={"unit": "s"}),
    ] = None
    max_terminal_cohorts: Annotated[
        Annotated[int, Meta(ge=0, le=INT31)] | None,
        Meta(description="Settled cohorts that keep their results, newest first; unset: all (R70)."),
    ] = None
    judge_eject_after: Annotated[
        int, Meta(description="Failures in a row that take an endpoint out (R49).", ge=1, le=INT31)
    ] = 3
    count_failure_classes_as_zero: Annotated[
        tuple[str, ...], Meta(description="Failure classes that /aggregate_metrics counts as reward 0.")
    ] = ()
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], Meta(description="Least level that is logged.")
    ] = "info"
    log_format: Annotated[Literal["json", "console"], Meta(description="Log lines for machines or for people.")] = (
        "json"
    )

    def __repr__(self) -> str:
        return f"ServiceSettings(database_url={masked_url(self.database_url)!r}, host={self.host!r}, port={self.port})"
