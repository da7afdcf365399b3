"""The profile that a new cohort is frozen with, as its row will hold it."""

from __future__ import annotations

from cohortd.cohorts.profile import Profile, Route, digest
from cohortd.settings import Settings
from cohortd.store.commands import FrozenProfile


class ProfileBook:
    """Profiles by campaign and route, each made into its document once."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._frozen: dict[tuple[str, Route], FrozenProfile] = {}

    def frozen(self, campaign: str, route: Route) -> FrozenProfile:
        """The profile of a cohort that a first member of this campaign and route would open."""
        key = (self._settings.profile_name(campaign), route)
        if key not in self._frozen:
            self._frozen[key] = freeze(self._settings.profile(campaign, route))
        return self._frozen[key]

    def size(self, campaign: str) -> int | None:
        """num_rollouts_per_prompt of the campaign; None when it is not set."""
        return self._settings.size(campaign)


def freeze(profile: Profile) -> FrozenProfile:
    """The profile with its document and digest."""
    document = profile.document()
    return FrozenProfile(profile, digest(document), document)
