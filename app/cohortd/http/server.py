"""The server process: uvicorn with our shutdown, which lets waiters go before it waits for them (R26)."""

from __future__ import annotations

import gc
import socket
from collections.abc import Sequence
from types import FrameType
from typing import Final

import structlog
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from cohortd.http.app import create_app
from cohortd.http.raw import ABORT
from cohortd.http.state import HttpState
from cohortd.service.supervisor import Service
from cohortd.settings import Settings
from cohortd.store.engine import Database

log = structlog.get_logger()

GC_THRESHOLDS: Final = (50_000, 20, 50)  # measured: 0.05 CPU-seconds per 1,000 requests (TRIAL 3)
MAX_HEAD_BYTES: Final = 256 * 1024


class Protocol(HttpToolsProtocol):
    """uvicorn's protocol; heads are limited, and the application may drop its connection without a reply."""

    _head_bytes: int | None = None  # of a head that is not whole yet
    _cycles: Sequence[RequestResponseCycle] = ()  # in the pipe, not answered

    def data_received(self, data: bytes) -> None:
        """Parse; a head without an end would fill the memory before anybody is asked who is calling."""
        super().data_received(data)
        if self._head_bytes is not None and not self.transport.is_closing():
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES:
                self.send_400_response("The head of the request is too large.")

    def on_message_begin(self) -> None:
        """Put the way to drop the connection into the scope."""
        super().on_message_begin()
        self._head_bytes = 0
        self.scope[ABORT] = self._abort  # type: ignore[literal-required]

    def on_headers_complete(self) -> None:
        """Go on as uvicorn does, and remember who is to be told when the client leaves."""
        self._head_bytes = None
        super().on_headers_complete()
        self._cycles = [*(cycle for cycle in self._cycles if not cycle.response_complete), self.cycle]

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell every request of the connection; uvicorn tells the last one in the pipe, and an earlier one may be parked."""
        super().connection_lost(exc)
        for cycle in self._cycles:
            cycle.disconnected = True
            cycle.message_event.set()

    def _abort(self) -> None:
        self.transport.abort()


class Server(uvicorn.Server):
    """uvicorn's server; uvicorn alone would wait for parked requests for ever."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self._service = service

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop serving. uvicorn would raise the signal again and end the process before verdicts are stored (R26).

        Once serving has ended the signals act as usual, so that a second one ends the process without waiting.
        """
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Let every waiter go, then close connections."""
        self._service.release_waiters()
        await super().shutdown(sockets=sockets)


async def serve(settings: Settings, database: Database) -> None:
    """Serve until a signal says to stop; the schema of `database` is current and its lock is held."""
    service = Service(settings, database)
    await service.start()
    try:
        app = create_app(HttpState(settings, service))
        config = uvicorn.Config(
            app, host=settings.service.host, port=settings.service.port, http=Protocol, ws="none", lifespan="off",
            loop="none", access_log=False, log_config=None, proxy_headers=False, server_header=False,
            date_header=False, backlog=4096, timeout_graceful_shutdown=5, timeout_keep_alive=75,
        )  # fmt: skip
        server = Server(config, service)
        listening = _listen(settings.service.host, settings.service.port)
        gc.collect()
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLDS)
        log.info("serving", url=f"http://{_address(listening)}", database=database.location.shown())
        await server.serve(sockets=[listening])
    finally:
        await service.stop()


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.bind((host, port))
    return listening


def _address(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
