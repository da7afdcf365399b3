"""`GET /metrics`: what a process does and waits for, read at the moment of the scrape; nothing is counted per request."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from litestar import Request, Response, get
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_1_0_0
from prometheus_client.registry import Collector

from cohortd.http import access
from cohortd.http.state import HttpState
from cohortd.judges.endpoints import JudgeEndpoints


class ServiceMetrics(Collector):
    """Every metric of a process; labels have few values: judges, endpoints by number, states and kinds of failure."""

    def __init__(self, state: HttpState) -> None:
        self._state: Final = state

    def collect(self) -> Iterator[Metric]:
        """The metrics as they are now."""
        service = self._state.service
        yield _gauge("cohortd_waiting_requests", "Requests that wait for their cohort.", service.waiters.count)
        yield _gauge("cohortd_cohorts_judged", "Cohorts in the hands of this process.", service.judging.held)
        settled = CounterMetricFamily(
            "cohortd_cohorts_settled", "Cohorts that this process settled.", labels=("status", "failure_kind")
        )
        for (status, kind), count in sorted(service.settled.items()):
            settled.add_metric((status, kind), count)
        yield settled
        yield from self._scribe()
        yield from self._judges()

    def _scribe(self) -> Iterator[Metric]:
        scribe = self._state.service.scribe
        yield _gauge("cohortd_commands_queued", "Commands that wait for their commit to begin.", scribe.queued)
        yield _gauge(
            "cohortd_database_away_seconds",
            "For how long the database has been away; 0: it is not.",
            scribe.away_for_s() or 0.0,
        )
        for name, count, meaning in (
            ("commits", scribe.stats.commits, "Transactions of the hot path."),
            ("commands", scribe.stats.commands, "Commands that were committed."),
            ("commits_retried", scribe.stats.retried, "Transactions that the database gave up."),
            ("batches_halved", scribe.stats.halved, "Batches that one bad command failed."),
        ):
            yield CounterMetricFamily(f"cohortd_{name}", meaning, value=count)

    def _judges(self) -> Iterator[Metric]:
        judges = self._state.service.judges
        for name, meaning, value in _OF_JUDGES:
            family = GaugeMetricFamily(name, meaning, labels=("judge",))
            for judge, endpoints in judges.items():
                family.add_metric((judge,), value(endpoints))
            yield family
        out = GaugeMetricFamily(
            "cohortd_judge_endpoint_out", "1 while the endpoint is ejected.", labels=("judge", "endpoint")
        )
        for judge, endpoints in judges.items():
            for number, endpoint in enumerate(endpoints.endpoints):
                out.add_metric((judge, str(number)), float(endpoint.ejected_since is not None))
        yield out


_OF_JUDGES: Final[tuple[tuple[str, str, Any], ...]] = (
    ("cohortd_judge_calls_in_flight", "Judge slots that are taken.", lambda judge: judge.outstanding),
    ("cohortd_judge_comparisons_waiting", "Comparisons that wait for a slot.", lambda judge: judge.waiting),
    (
        "cohortd_judge_down_since_timestamp_seconds",
        "Since when no endpoint of the judge is healthy (Unix time); 0 while one is.",
        JudgeEndpoints.down_since_unix,
    ),
)


def _gauge(name: str, meaning: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, meaning, value=value)


@get("/metrics", tags=["health"], sync_to_thread=False)
def metrics(request: Request[Any, Any, Any]) -> Response[bytes]:
    """Metrics of this process in Prometheus's text format."""
    state: HttpState = request.app.state["http"]
    access.check(request.scope, state)
    registry = CollectorRegistry()
    registry.register(ServiceMetrics(state))
    return Response(generate_latest(registry), media_type=CONTENT_TYPE_PLAIN_1_0_0)
