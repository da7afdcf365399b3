"""`cohortd mock-judge`: a judge that is no model."""

from __future__ import annotations

import asyncio
import json

import click
import uvloop

from cohortd.mock_judge import FAULTS, MockOptions, start


@click.command("mock-judge")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8900, show_default=True, help="Port; 0 takes a free one."
)
@click.option(
    "--latency-ms", type=click.FloatRange(0, 1e9), default=0.0, show_default=True, help="Time that each answer takes."
)
@click.option("--seed", default=1, show_default=True, help="Of the faults.")
@click.option("--fail-first", default=0, show_default=True, help="First calls of every pair that fail.")
@click.option("--fail-kind", type=click.Choice(FAULTS), default="error", show_default=True, help="How they fail.")
@click.option(
    "--rate",
    "rates",
    multiple=True,
    metavar="FAULT=SHARE",
    help=f"Share of calls that suffer a fault: {', '.join(FAULTS)}.",
)
def mock_judge(
    host: str, port: int, latency_ms: float, seed: int, fail_first: int, fail_kind: str, rates: tuple[str, ...]
) -> None:
    """Serve deterministic verdicts over HTTP, to try a training set-up without a GPU.

    GET /calls lists every call, GET /stats counts them.

    Example: cohortd mock-judge --port 8900 --latency-ms 50 --rate busy=0.1
    """
    shares: dict[str, float] = {}
    for entry in rates:
        name, _, share = entry.partition("=")
        if name not in FAULTS:
            raise click.BadParameter(f"{name!r} is not one of {', '.join(FAULTS)}", param_hint="--rate")
        try:
            shares[name] = float(share)
        except ValueError:
            raise click.BadParameter(f"{share!r} is no share", param_hint="--rate") from None
    options = MockOptions(latency_ms, seed, shares, fail_first, fail_kind)
    try:
        uvloop.run(_serve(options, host, port))
    except KeyboardInterrupt:
        return


async def _serve(options: MockOptions, host: str, port: int) -> None:
    server, _ = await start(options, host, port)
    address = server.sockets[0].getsockname()
    click.echo(json.dumps({"listening": f"http://{address[0]}:{address[1]}/v1"}))
    async with server:
        await asyncio.Event().wait()
