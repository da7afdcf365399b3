"""The scenarios: each one run, from fresh processes to figures."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

import uvloop

from bench.client import Client
from bench.drive import Driver
from bench.load import Cohorts, quantile
from bench.servers import Service, busy_cpu_s
from bench.site import Running, Site

WARM_UP: Final = 40
QUIET_S: Final = 0.5
QUIET_ROUNDS: Final = 6
Figures = dict[str, float]


@dataclass(frozen=True, slots=True)
class Scenario:
    """A named run; `shown` are its figures in the table, the first one is what --compare divides."""

    name: str
    what: str
    run: Callable[[Site], Figures]
    shown: tuple[str, ...]
    cohorts: int


def _drive(site: Site, running: Running, work: Callable[[Driver], Awaitable[Figures]]) -> Figures:
    """Run the work with a driver, within one event loop; the rewards are checked afterwards."""

    async def main() -> Figures:
        options = site.options
        client = Client(running.url)
        cohorts = Cohorts(uuid.uuid4().hex[:8], options.n, options.body_kb * 1024)
        try:
            warm = Driver(client, cohorts)
            await warm.in_flight(range(10**6, 10**6 + WARM_UP), min(WARM_UP, options.in_flight))
            driver = Driver(client, cohorts)
            figures = await work(driver)
            return figures | {"wrong_cohorts": driver.wrong(), "resent": client.dropped}
        finally:
            client.close()

    return uvloop.run(main())


@dataclass(slots=True)
class Meter:
    """Time and CPU between two moments, the rest of the machine's included."""

    running: Running
    at: float = 0.0
    service: float = 0.0
    judge: float = 0.0
    machine: float = 0.0
    own: float = 0.0

    def start(self) -> Meter:
        """Begin here."""
        self.at, self.service, self.judge, self.machine, self.own = self._now()
        return self

    def _now(self) -> tuple[float, float, float, float, float]:
        service = self.running.service.cpu_s() if self.running.service is not None else 0.0
        return time.perf_counter(), service, self.running.judge.cpu_s(), busy_cpu_s(), time.process_time()

    def figures(self, verifies: int) -> Figures:
        """Rates and costs since `start`."""
        at, service, judge, machine, own = self._now()
        seconds = at - self.at
        spent = service - self.service
        foreign = (machine - self.machine) - spent - (judge - self.judge) - (own - self.own)
        found = {
            "verifies_per_s": verifies / seconds,
            "cpu_s_per_1000": spent / verifies * 1000,
            "seconds": seconds,
            "other_cores": foreign / seconds,  # Postgres and the kernel's own work count here, and whatever else runs
        }
        if self.running.service is None:
            del found["cpu_s_per_1000"]
        return found


def _releases(driver: Driver, judge_ms: float) -> Figures:
    releases = driver.sent.releases_ms()
    return {
        "release_p50_ms": quantile(releases, 0.5) - judge_ms,
        "release_p99_ms": quantile(releases, 0.99) - judge_ms,
    }


def _many(site: Site, in_flight: int, judge_ms: float, cohorts: int) -> Figures:
    with site.running(judge_ms) as running:

        async def work(driver: Driver) -> Figures:
            with site.profiled(running):
                meter = Meter(running).start()
                await driver.in_flight(range(cohorts), in_flight)
                return meter.figures(cohorts * site.options.n) | _releases(driver, judge_ms)

        return _drive(site, running, work)


def _wanted(site: Site, default: int) -> int:
    return site.options.cohorts or default


def verify(site: Site) -> Figures:
    """Cohorts in flight as --in-flight says."""
    return _many(site, site.options.in_flight, site.options.judge_ms, _wanted(site, 400))


def lone(site: Site) -> Figures:
    """One cohort at a time: what waiting costs when nothing else happens."""
    return _many(site, 1, site.options.judge_ms, _wanted(site, 300))


def growth(site: Site) -> Figures:
    """Rates at 8, 64 and 512 cohorts in flight, and the widest one's share of the narrowest one's."""
    widths = (8, 64, 512)
    runs = [_many(site, width, site.options.judge_ms, max(_wanted(site, 600), width)) for width in widths]
    rates = {f"at_{width}": run["verifies_per_s"] for width, run in zip(widths, runs, strict=True)}
    return {
        "kept": rates["at_512"] / rates["at_8"],
        **rates,
        "wrong_cohorts": sum(run["wrong_cohorts"] for run in runs),
    }


def replay(site: Site) -> Figures:
    """Settled rollouts sent again: the reward comes from its row."""
    cohorts = _wanted(site, 400)
    with site.running(site.options.judge_ms) as running:

        async def work(driver: Driver) -> Figures:
            await driver.in_flight(range(cohorts), site.options.in_flight)
            before, calls = dict(driver.sent.rewards), running.judge.calls()
            keys = list(before)
            with site.profiled(running):
                meter = Meter(running).start()
                await driver.members(keys, site.options.in_flight * site.options.n)
                found = meter.figures(len(keys))
            changed = sum(driver.sent.rewards[key] != reward for key, reward in before.items())
            return found | {"changed": changed, "judge_calls": running.judge.calls() - calls}

        return _drive(site, running, work)


def hold(site: Site) -> Figures:
    """All members but one of each cohort wait: the memory of one waiting request."""
    n = site.options.n
    cohorts = _wanted(site, 10_000 // (n - 1) + 1)
    with site.running(site.options.judge_ms) as running:

        async def work(driver: Driver) -> Figures:
            service = running.service
            if service is None:
                raise SystemExit("hold needs the process: give --peer-pid")
            before = service.rss_kb()
            keys = [(cohort, slot) for cohort in range(cohorts) for slot in range(n - 1)]
            tasks = [asyncio.create_task(driver.member(*key)) for key in keys]
            await _quiet(service.cpu_s, lambda: len(driver.sent.sent_at) == len(keys))
            held = service.rss_kb() - before
            answered = len(driver.sent.got_at)
            cpu = service.cpu_s()
            await asyncio.sleep(2)
            idle = (service.cpu_s() - cpu) / 2
            meter = Meter(running).start()
            await driver.members([(cohort, n - 1) for cohort in range(cohorts)], site.options.in_flight)
            await asyncio.gather(*tasks)
            return {
                "kb_per_waiting": held / len(keys),
                "waiting": len(keys) - answered,
                "idle_cores": idle,
                "release_all_s": meter.figures(1)["seconds"],
            }

        return _drive(site, running, work)


async def _quiet(cpu_s: Callable[[], float], all_sent: Callable[[], bool]) -> None:
    """Return when everything is sent and the process has had nothing to do for a while: its housekeeping is done too."""
    last, quiet = cpu_s(), 0
    while quiet < QUIET_ROUNDS:
        await asyncio.sleep(QUIET_S)
        now = cpu_s()
        quiet = quiet + 1 if all_sent() and now - last < 0.04 * QUIET_S else 0
        last = now


def restart(site: Site) -> Figures:
    """SIGKILL in the middle of judging: the calls made twice, and the time until everybody is answered."""
    slots, judge_ms, n = 16, site.options.judge_ms or 50.0, site.options.n
    cohorts = _wanted(site, 200)
    with site.running(judge_ms, judge_concurrency=slots) as running:

        async def work(driver: Driver) -> Figures:
            start = running.judge.calls()
            sending = asyncio.create_task(driver.in_flight(range(cohorts), cohorts))
            while running.judge.calls() - start < cohorts * n // 3 and not sending.done():  # noqa: ASYNC110 (another process)
                await asyncio.sleep(0.02)
            service = running.service
            if not isinstance(service, Service):
                raise SystemExit("restart kills the service; it does not do that to a peer")
            service.kill()
            done = running.judge.calls() - start
            began = time.perf_counter()
            await asyncio.to_thread(running.restart)
            ready = time.perf_counter()
            await sending
            answered = time.perf_counter()
            calls = running.judge.calls() - start
            least = (calls - done) * judge_ms / 1000 / slots
            return {
                "repeated_calls": calls - cohorts * n,
                "times_the_judge": (answered - ready) / least,
                "ready_s": ready - began,
                "answered_s": answered - began,
                "judge_least_s": least,
            }

        return _drive(site, running, work)


_RATE: Final = ("cpu_s_per_1000", "verifies_per_s", "release_p50_ms", "release_p99_ms")
SCENARIOS: Final[dict[str, Scenario]] = {
    scenario.name: scenario
    for scenario in (
        Scenario("verify", "cohorts in flight as --in-flight says", verify, _RATE, 400),
        Scenario("lone", "one cohort at a time", lone, ("release_p50_ms", "release_p99_ms", "cpu_s_per_1000"), 300),
        Scenario("growth", "8, 64 and 512 cohorts in flight", growth, ("kept", "at_8", "at_64", "at_512"), 600),
        Scenario("replay", "settled rollouts sent again", replay, ("verifies_per_s", "cpu_s_per_1000", "changed"), 400),
        Scenario(
            "hold", "all but one member of each cohort wait", hold, ("kb_per_waiting", "idle_cores", "waiting"), 1429
        ),
        Scenario(
            "restart",
            "SIGKILL in the middle of judging",
            restart,
            ("repeated_calls", "times_the_judge", "ready_s", "answered_s"),
            200,
        ),
    )
}


def all_right(figures: dict[str, Any]) -> bool:
    """Whether the run gave the judge's rewards and nothing else."""
    return not any(figures.get(name) for name in ("wrong_cohorts", "changed"))
