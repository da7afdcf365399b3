"""From a request to its answer: one durable write, then a wait that holds a future and nothing else."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import structlog

from cohortd.cohorts import identity
from cohortd.cohorts.conversation import candidate, history, readable
from cohortd.cohorts.digest import prompt_fingerprint, response_digest
from cohortd.cohorts.identity import CoordinateFields, Coordinates
from cohortd.cohorts.profile import Route
from cohortd.errors import Refused
from cohortd.judges.wire import encode
from cohortd.service.profiles import ProfileBook
from cohortd.service.waiters import Stopping
from cohortd.service_settings import ServiceSettings
from cohortd.store.bodies import pack
from cohortd.store.commands import Admit
from cohortd.store.scribe import Scribe

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Submission:
    """A response as a route brings it: parsed values beside the body's own bytes."""

    campaign: str
    route: Route
    coordinates: CoordinateFields
    prompt: Any  # the request's `input`, or UNSET
    principle: str | None
    response: Any
    body: bytes
    metadata: str | None = None


class Admission:
    """Turns submissions into commands for the scribe; a refusal costs nothing and stores nothing."""

    def __init__(self, scribe: Scribe, profiles: ProfileBook, limits: ServiceSettings) -> None:
        self._scribe = scribe
        self._limits = limits
        self._told_of_default_attempt = False
        self._unanswered: set[asyncio.Future[Any]] = set()
        self.profiles: Final = profiles

    def prepare(self, submission: Submission) -> tuple[Admit, Coordinates]:
        """The command that stores the response, or Refused with what is wrong (R11's checks without the database)."""
        size = self.profiles.size(submission.campaign)
        check_principle(submission.principle)
        fingerprint = prompt_fingerprint(submission.prompt, submission.principle)
        coordinates = identity.resolve(
            submission.coordinates,
            campaign=submission.campaign,
            configured_size=size,
            fingerprint=fingerprint,
            max_size=self._limits.max_rollouts_per_prompt,
        )
        texts = candidate(submission.response)
        answer, answer_escaped = readable(texts.answer)
        reasoning, reasoning_escaped = readable(texts.reasoning)
        frozen = self.profiles.frozen(submission.campaign, submission.route)
        longest = frozen.profile.max_answer_chars
        codec, packed = pack(submission.body)
        if coordinates.attempt_defaulted:
            self._warn_of_default_attempt()
        legacy = coordinates.legacy
        return (
            Admit(
                group=coordinates.key,
                attempt=coordinates.attempt,
                rollout_index=coordinates.rollout_index,
                size=coordinates.size,
                default_size=size,
                fingerprint=fingerprint,
                digest=response_digest(submission.response),
                frozen=frozen,
                conversation=encode(history(submission.prompt)).decode(),
                principle=submission.principle,
                answer=answer,
                reasoning=reasoning,
                text_escaped=answer_escaped or reasoning_escaped,
                answer_cut=longest is not None and len(texts.answer) > longest,
                body=packed,
                codec=codec,
                wire=submission.route,
                metadata=submission.metadata,
                task_index=legacy.task_index if legacy else None,
                prompt_id=legacy.prompt_id if legacy else None,
            ),
            coordinates,
        )

    def default_score(self, submission: Submission) -> float:
        """What a group of one gets at once (R5): nothing is compared, nothing stored, but the request must be sound."""
        check_principle(submission.principle)
        candidate(submission.response)
        return self.profiles.frozen(submission.campaign, submission.route).profile.default_score

    def submit(self, command: Admit, *, parks: bool) -> asyncio.Future[Any]:
        """Store the response; the future gives an Admitted, at the latest when the cohort is settled if it parks.

        A request that cannot wait is stored all the same, and its future gives Pending: limits never keep a cohort
        from filling (R61).
        """
        room = len(self._unanswered) < self._limits.max_waiting_requests
        answer = self._scribe.put(command, parks=parks and room, within_s=self._limits.database_wait_s)
        self._unanswered.add(answer)
        answer.add_done_callback(self._unanswered.discard)
        return answer

    def release_all(self) -> None:
        """Let everybody go whose response is on its way to the database; what was written stays written (R26)."""
        for answer in list(self._unanswered):
            if not answer.done():
                answer.set_exception(Stopping())

    def _warn_of_default_attempt(self) -> None:
        if not self._told_of_default_attempt:
            self._told_of_default_attempt = True
            log.warning("attempt_defaulted", next="send `_ng_group_attempt` with `_ng_group_id`; 0 is taken meanwhile")


def check_principle(principle: Any) -> None:
    if principle is None or principle is msgspec.UNSET:
        return
    if not isinstance(principle, str):
        raise Refused("invalid_request", "`principle` must be a string or null.")
    if readable(principle)[1]:
        raise Refused("invalid_request", "`principle` must not hold NUL or lone surrogates.")


def overloaded() -> Refused:
    """What a request is told that was stored but cannot wait."""
    return Refused("overloaded", "Stored; send again. Too many requests are waiting for one more.")
