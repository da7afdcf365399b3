"""What the routes are given: the parts of the service that they talk to."""

from __future__ import annotations

from dataclasses import dataclass, field

from cohortd.http.body import BodyReader
from cohortd.service.admission import Admission
from cohortd.service.compare import Comparer
from cohortd.service.supervisor import Service
from cohortd.settings import Settings
from cohortd.store import migrate


@dataclass(slots=True)
class HttpState:
    """One for each process."""

    settings: Settings
    service: Service
    bodies: BodyReader = field(init=False)
    revision: str = field(init=False)  # of the schema that this program serves

    def __post_init__(self) -> None:
        limits = self.settings.service
        self.revision = migrate.head()
        self.bodies = BodyReader(limits.max_body_bytes, limits.max_reading_bytes)

    @property
    def admission(self) -> Admission:
        """Where responses are admitted."""
        return self.service.admission

    @property
    def comparer(self) -> Comparer:
        """Who compares without storing."""
        return self.service.comparer
