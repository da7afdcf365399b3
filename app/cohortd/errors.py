"""Every way in which cohortd says no, with a code that stays and a remedy.

    CohortdError
    ├── Refused              a request that may not be served as it is: one of CODES, becomes a problem document
    ├── SettingsError        a setting is unknown, contradictory or out of range: the start is refused
    ├── SchemaError          the database's schema is not the one this program serves
    ├── DatabaseUnavailable  the database did not answer; nothing is known to be lost
    └── DatabaseInUse        another process serves this SQLite file, or it was moved away

Nothing here carries a prompt, an answer or a secret: details are written by us from names, numbers and coordinates.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Final


@dataclass(frozen=True, slots=True)
class Code:
    """One stable error code: its HTTP status, its title, why it happens and what to do next."""

    status: int
    title: str
    cause: str
    remedy: str
    retry_after_s: int | None = None  # set only where the identical request can succeed later (R22)


CODES: Final = MappingProxyType(
    {
        "invalid_request": Code(
            422,
            "The request is not valid",
            "The body is not JSON, a field has the wrong type or range, or the group size is unknown.",
            "Correct the field that the detail names; nothing was stored.",
        ),
        "invalid_coordinates": Code(
            422,
            "The rollout's coordinates are not valid",
            "Group id, attempt, rollout index, task index or group size is missing, of the wrong type or out of range.",
            "Send the coordinates as the detail says; nothing was stored.",
        ),
        "invalid_response": Code(
            422,
            "The response cannot be read",
            "`response` is not an object, its `output` is not a list, or an `output_text` has a `text` that is no string.",
            "Correct the place that the detail names and send this rollout again; its siblings go on waiting.",
        ),
        "response_conflict": Code(
            409,
            "The slot holds another response",
            "This rollout index of this attempt was already accepted with a different response.",
            "Send the first response again to share its outcome, or submit the whole group under a higher attempt "
            "(without a group id: under a fresh one).",
        ),
        "prompt_mismatch": Code(
            409,
            "The group belongs to another prompt",
            "The prompt or principle differs from the one that this group id is bound to.",
            "Use a group id of its own for every occurrence of a prompt.",
        ),
        "stale_attempt": Code(
            409,
            "A newer attempt of the group exists",
            "The attempt is lower than the newest one seen in this group.",
            "Submit the whole group under an attempt that is not lower than the newest.",
        ),
        "cohort_closed": Code(
            409,
            "The cohort takes no more members",
            "The slot was empty when the cohort stopped collecting.",
            "Submit the whole group under a higher attempt.",
        ),
        "group_size_mismatch": Code(
            409,
            "The cohort has another size",
            "The first member fixed the size of this cohort and the request names a different one.",
            "Send the size that the first member sent, or submit the whole group under a higher attempt "
            "(without a group id: under a fresh one).",
        ),
        "result_expired": Code(
            409,
            "The result was dropped by retention",
            "The cohort was settled and its rewards were dropped after the retention time.",
            "Submit the whole group under a higher attempt to have it judged again.",
        ),
        "payload_expired": Code(
            409,
            "The stored answers were dropped by retention",
            "The cohort's texts and bodies were dropped after the retention time, so they cannot be judged again.",
            "Submit the whole group under a higher attempt.",
        ),
        "cohort_open": Code(
            409,
            "The cohort is not settled yet",
            "The operation needs a completed or failed cohort.",
            "Wait until it is settled, or cancel it.",
        ),
        "collection_timeout": Code(
            503,
            "The cohort did not fill in time",
            "Siblings were missing when the collection deadline passed.",
            "Find out why the missing slots never arrived, then submit the whole group under a higher attempt "
            "(without a group id: under a fresh one, or after `cohortd release`).",
        ),
        "superseded": Code(
            503,
            "A newer attempt replaced this cohort",
            "A member of a higher attempt of the same group was accepted.",
            "Use the outcome of the newer attempt.",
        ),
        "cancelled": Code(
            503,
            "The cohort was cancelled",
            "Somebody cancelled it on purpose.",
            "Submit the whole group under a higher attempt if its reward is still wanted.",
        ),
        "internal": Code(
            503,
            "The cohort failed inside cohortd",
            "Its rewards could not be computed, or judging it stopped its process again and again.",
            "Look at the cohort's history, report it, and submit the whole group under a higher attempt "
            "(without a group id: under a fresh one, or after `cohortd release`).",
        ),
        "judge_failed": Code(
            503,
            "The judge gave no usable verdict",
            "A comparison ended without a verdict after all its tries.",
            "Look at the judge calls of the comparison; then send the comparison again.",
        ),
        "evaluation_timeout": Code(
            503,
            "Judging did not end in time",
            "The evaluation deadline passed before every comparison had a verdict.",
            "Give the judge more time or capacity; then send the comparison again.",
        ),
        "shutting_down": Code(
            503,
            "The service is stopping",
            "The process received a signal to stop; nothing is lost.",
            "Send the identical request again.",
            retry_after_s=1,
        ),
        "database_unavailable": Code(
            503,
            "The database does not answer",
            "The database could not be reached or refused to write.",
            "Send the identical request again; look at /health/ready.",
            retry_after_s=5,
        ),
        "overloaded": Code(
            429,
            "Too much is waiting",
            "A limit on active cohorts, waiting requests or bodies in memory is reached.",
            "Send the identical request again after the time in Retry-After.",
            retry_after_s=2,
        ),
        "unauthorized": Code(
            401, "A token is needed", "No token or an unknown one was sent.", "Send `Authorization: Bearer TOKEN`."
        ),
        "forbidden": Code(
            403,
            "The token or origin may not do this",
            "The token's scope is too small, or the Host or Origin of the request is not allowed.",
            "Use a token with the scope that the detail names, or allow the host.",
        ),
        "not_found": Code(
            404,
            "There is no such thing here",
            "The path or the object does not exist, or belongs to another campaign.",
            "Check the path and the id.",
        ),
        "method_not_allowed": Code(
            405,
            "The path does not take this method",
            "The method is not one of those in `Allow`.",
            "Use a method that `Allow` names.",
        ),
        "body_too_large": Code(
            413,
            "The body is too large",
            "The request body is larger than `max_body_bytes`.",
            "Send a smaller body or raise COHORTD_MAX_BODY_BYTES.",
        ),
        "unsupported_media_type": Code(
            415,
            "The body must be JSON",
            "`Content-Type` is not `application/json`.",
            "Send `Content-Type: application/json`.",
        ),
    }
)


MASKED_REMEDY: Final = (
    "Leave masked samples out of the loss; once the judge works, submit the whole group under a higher attempt "
    "(without a group id: under a fresh one, or after `cohortd release`)."
)


def remedy_of(failure_kind: str) -> str:
    """What to do about a cohort that failed so; the judge's failures reach the trainer as masked samples (R21)."""
    return MASKED_REMEDY if failure_kind in ("judge_failed", "evaluation_timeout") else CODES[failure_kind].remedy


class CohortdError(Exception):
    """Something that cohortd says no to, in words that are safe to show."""


class Refused(CohortdError):
    """The request may not be served as it is; `code` is one of CODES, `detail` says what is wrong and what to do."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(f"{code}: {detail}")
        self.code: Final = code
        self.detail: Final = detail

    @property
    def meaning(self) -> Code:
        """Status, title and remedy of this refusal's code."""
        return CODES[self.code]


class SettingsError(CohortdError):
    """A setting is unknown, contradictory or out of range; the message names it and the fix."""


class SchemaError(CohortdError):
    """The database's schema is not the one this program serves; the message names the command to run."""


class DatabaseUnavailable(CohortdError):
    """The database did not answer in time, or refused to write; the identical request may be sent again."""


class DatabaseInUse(CohortdError):
    """Another process serves this database file, or it was copied away and must not be served."""
