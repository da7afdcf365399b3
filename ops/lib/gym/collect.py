"""Runs in Gym's environment: a head, a policy and Gym's agent on loopback, and one run of Gym's collector.

    python collect.py PLAN.json

The plan names the service's port, the input and output files, and what the collector is told. Exit status 3: the
collector gave up with an exception, whose last line is printed.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import uvicorn
from nemo_gym.config_types import BaseServerConfig
from nemo_gym.rollout_collection import RolloutCollectionConfig, RolloutCollectionHelper
from nemo_gym.server_utils import GlobalAIOHTTPAsyncClientConfig, ServerClient, set_global_aiohttp_client
from omegaconf import OmegaConf
from responses_api_agents.simple_agent.app import SimpleAgent, SimpleAgentConfig

GAVE_UP = 3
NOTHING = "\0"  # in no prompt
PR_SET_PDEATHSIG = 1
OPEN_RUNS_S = 2
COUNTING = threading.Lock()


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Head(BaseHTTPRequestHandler):
    """Gym's head, as far as clients ask it, and a policy that answers each call differently."""

    names: ClassVar[dict[str, Any]] = {}
    calls: ClassVar[Counter[str]] = Counter()
    plan: ClassVar[dict[str, Any]] = {}

    def do_GET(self) -> None:
        """The configuration by which servers find each other."""
        self._reply(self.names)

    def do_POST(self) -> None:
        """The policy's answer to a prompt."""
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        prompt = json.dumps(request["input"])
        with COUNTING:
            self.calls[prompt] += 1
            number = self.calls[prompt]
        policy = self.plan["policy"]
        if policy.get("withheld", NOTHING) in prompt and number == self.plan["repeats"]:
            threading.Event().wait()
        text = f"Answer {number} of run {self.plan['seed']} to {prompt}"
        if policy.get("long", NOTHING) in prompt:
            text = " ".join([text] * 10)
        content = [{"type": "output_text", "text": text, "annotations": []}]
        message = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": content}
        self._reply(
            {
                "id": "resp_1", "created_at": 1764550000.0, "object": "response", "model": "policy", "output": [message],
                "parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "status": "completed",
            }
        )  # fmt: skip

    def _reply(self, value: Any) -> None:
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Nothing."""


def names(service_port: int, head_port: int, agent_port: int) -> dict[str, Any]:
    """The configuration, as Gym's servers know it."""
    here = {"host": "127.0.0.1", "entrypoint": "app.py"}
    return {
        "head_server": {"host": "127.0.0.1", "port": head_port},
        "genrm": {"resources_servers": {"cohortd": {**here, "port": service_port, "domain": "rlhf"}}},
        "policy": {"responses_api_models": {"policy": {**here, "port": head_port}}},
        "agent": {"responses_api_agents": {"simple_agent": {**here, "port": agent_port}}},
    }


def keep(path: str, sent: dict[str, Any], status: int, reply: dict[str, Any]) -> None:
    """Append an exchange to the record; of fields that came back as they were sent, the names alone."""
    echoed = [name for name, value in reply.items() if name in sent and sent[name] == value]
    own = {name: value for name, value in reply.items() if name not in echoed}
    exchange = {"path": path, "sent": sent, "status": status, "echoed": echoed, "reply": own}
    with open(os.environ["RECORD"], "a") as kept:
        kept.write(json.dumps(exchange) + "\n")


class RecordingClient(ServerClient):
    """Gym's client; what it sends to the resources server, and what comes back, is kept in a file."""

    seeded: ClassVar[bool] = False

    async def post(self, server_name: str, url_path: str, **options: Any) -> Any:
        """Post as Gym does."""
        sent = options.get("json")
        sent = sent.model_dump(exclude_unset=True) if hasattr(sent, "model_dump") else sent
        reply = await super().post(server_name=server_name, url_path=url_path, **options)
        new = url_path != "/seed_session" or not self.seeded  # one of these says all
        if server_name == "genrm" and new and os.environ.get("RECORD"):
            RecordingClient.seeded = self.seeded or url_path == "/seed_session"
            keep(url_path, sent, reply.status, json.loads(await reply.read()))
        return reply


async def serve_agent(known: dict[str, Any]) -> None:
    """Gym's own agent; a process of its own, since Gym's HTTP client is one for each process."""
    here = known["agent"]["responses_api_agents"]["simple_agent"]
    config = SimpleAgentConfig(
        **here, name="agent", resources_server={"type": "resources_servers", "name": "genrm"},
        model_server={"type": "responses_api_models", "name": "policy"},
    )  # fmt: skip
    head = BaseServerConfig(**known["head_server"])
    client = RecordingClient(head_server_config=head, global_config_dict=OmegaConf.create(known))
    set_global_aiohttp_client(cfg=GlobalAIOHTTPAsyncClientConfig())
    app = SimpleAgent(config=config, server_client=client).setup_webserver()
    options = {
        "host": "127.0.0.1",
        "port": here["port"],
        "log_level": "error",
        "timeout_graceful_shutdown": OPEN_RUNS_S,
    }
    await uvicorn.Server(uvicorn.Config(app, **options)).serve()


def die_with_parent() -> None:
    """Called by the agent's process: none outlives its collector."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


@contextlib.contextmanager
def agent(known: dict[str, Any]) -> Iterator[None]:
    """The agent's process, once it takes connections."""
    process = subprocess.Popen([sys.executable, __file__, "agent", json.dumps(known)])
    port = known["agent"]["responses_api_agents"]["simple_agent"]["port"]
    try:
        while process.poll() is None:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                break
            time.sleep(0.05)
        if process.poll() is not None:
            raise RuntimeError("Gym's agent ended before it took connections")
        yield
    finally:
        process.terminate()  # runs that have their answer within the grace period are still recorded
        process.wait()


def main(plan: dict[str, Any]) -> int:
    """One run of the collector."""
    head_port, agent_port = free_port(), free_port()
    known = names(plan["service_port"], head_port, agent_port)
    Head.names, Head.plan = known, plan
    threading.Thread(target=ThreadingHTTPServer(("127.0.0.1", head_port), Head).serve_forever, daemon=True).start()
    ServerClient.load_head_server_config = classmethod(lambda _: BaseServerConfig(**known["head_server"]))
    config = RolloutCollectionConfig(
        agent_name="agent", input_jsonl_fpath=plan["input"], output_jsonl_fpath=plan["output"],
        num_repeats=plan["repeats"], resume_from_cache=plan["resume"], upload_rollouts_to_wandb=False,
    )  # fmt: skip
    with agent(known):
        try:
            asyncio.run(RolloutCollectionHelper().run_from_config(config))
        except Exception as error:  # noqa: BLE001  (whatever made the collector give up is what is to be seen)
            print(f"collector gave up: {type(error).__name__}: {error}", flush=True)
            return GAVE_UP
    return 0


if __name__ == "__main__":
    if sys.argv[1] == "agent":
        die_with_parent()
        asyncio.run(serve_agent(json.loads(sys.argv[2])))
        sys.exit(0)
    with open(sys.argv[1]) as file:
        status = main(json.load(file))
    sys.stdout.flush()
    sys.exit(status)
