"""The same load through this server, LiteLLM's proxy and Open WebUI's backend, on OpenAI's wire.

    uv venv litellm && uv pip install --python litellm/bin/python 'litellm[proxy]'
    uv venv webui && uv pip install --python webui/bin/python open-webui
    python benchmarks/peers.py --litellm litellm/bin --open-webui webui/bin

Each is asked for the same turns in interleaved rounds, has one core, one worker and its own
environment, and takes its tokens from the same fake Ollama. None of them keeps the conversations:
this wire has none. A peer that is not named is left out; nothing is judged.
"""

import argparse
import gc
import http.client
import json
import os
import secrets
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path

import uvloop
from startup import answers
from streaming_peers.client import Wire, load
from streaming_peers.processes import (
    LOAD_CORE,
    SERVER_CORE,
    Server,
    free_port,
    pin,
    process,
    upstream,
)
from streaming_peers.report import OURS

START_SECONDS = 180
LIMIT_SECONDS = 120.0
KEY = f"sk-{secrets.token_hex(32)}"
"""LiteLLM's proxy starts with none that is weak."""


@dataclass(frozen=True, kw_only=True)
class AuthorizedWire(Wire):
    """OpenAI's wire with a token, and without a session."""

    token: str

    def request(self, port: int, session: str) -> bytes:
        whole = super().request(port, session).decode()
        own = f"X-Mochi-Session: {session}\r\n"
        return whole.replace(own, f"Authorization: Bearer {self.token}\r\n").encode()


def wire(model: str, path: str, token: str) -> AuthorizedWire:
    body = {
        "model": model,
        "messages": [{"role": "user", "content": "Tell me a story of one thousand words."}],
        "stream": True,
    }
    # Each of the upstream's tokens begins with a blank, in whatever form a server writes its JSON.
    return AuthorizedWire(
        content=b'" token',
        done=b"data: [DONE]",
        failed=b'"error"',
        path=path,
        body=json.dumps(body),
        token=token,
    )


@dataclass(frozen=True)
class Peer:
    """How a server is started and asked."""

    command: list[str]
    environment: dict[str, str] = field(default_factory=dict)
    healthy: str = "/health"
    path: str = "/v1/chat/completions"
    token: Callable[[int], str] = lambda _port: "none"


@dataclass
class Running:
    """A peer that answers."""

    server: Server
    wire: Callable[[str], Wire]
    seconds: float
    """Of CPU until it answered."""


def ours(port: int, address: str, folder: Path) -> Peer:
    return Peer(
        ["-m", "mochi_server", "--port", str(port), "--log-level", "WARNING"],
        {"MOCHI_OLLAMA_HOST": address, "MOCHI_DATA_DIR": str(folder)},
        healthy="/api/v1/health",
    )


def litellm(port: int, address: str, folder: Path) -> Peer:
    config = folder / "config.yaml"
    config.write_text(
        json.dumps(
            {
                "model_list": [
                    {
                        "model_name": "bench-*",
                        "litellm_params": {"model": "ollama_chat/bench-*", "api_base": address},
                    }
                ]
            }
        )
    )
    return Peer(
        ["-m", "litellm.proxy.proxy_cli", "--config", str(config), "--port", str(port)],
        {
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            "LITELLM_LOG": "ERROR",
            "LITELLM_MASTER_KEY": KEY,
        },
        healthy="/health/liveliness",
        token=lambda _port: KEY,
    )


def open_webui(port: int, address: str, folder: Path) -> Peer:
    def token(port: int) -> str:
        link = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        body = json.dumps({"email": "", "password": ""})
        link.request("POST", "/api/v1/auths/signin", body, {"Content-Type": "application/json"})
        return json.loads(link.getresponse().read())["token"]

    return Peer(
        ["-m", "uvicorn", "open_webui.main:app", "--port", str(port), "--log-level", "warning"],
        {
            "OLLAMA_BASE_URL": address,
            "DATA_DIR": str(folder),
            "WEBUI_AUTH": "false",
            "WEBUI_SECRET_KEY": "bench",
            "FROM_INIT_PY": "true",
            "OFFLINE_MODE": "true",
            "ENABLE_OPENAI_API": "false",
            "RAG_EMBEDDING_MODEL_AUTO_UPDATE": "false",
            "GLOBAL_LOG_LEVEL": "ERROR",
        },
        path="/api/chat/completions",
        token=token,
    )


PEERS = {OURS: ours, "litellm": litellm, "open-webui": open_webui}


@contextmanager
def running(name: str, bin_folder: Path | None, address: str, folder: Path) -> Iterator[Running]:
    """The peer, until the block ends."""
    folder.mkdir()
    port = free_port()
    peer = PEERS[name](port, address, folder)
    own = {key: value for key, value in os.environ.items() if not key.startswith("MOCHI_")}
    options = {} if bin_folder is None else {"python": str(bin_folder.absolute() / "python")}
    with (
        (folder / "server.log").open("wb") as log,
        process(
            peer.command,
            SERVER_CORE,
            env={**own, **peer.environment},
            stdout=log,
            stderr=subprocess.STDOUT,
            **options,
        ) as child,
    ):
        target = Server(name, port, child.pid)
        deadline = time.monotonic() + START_SECONDS
        while not answers(port, peer.healthy):
            if time.monotonic() > deadline or child.poll() is not None:
                text = (folder / "server.log").read_text(errors="replace")
                raise RuntimeError(f"{name} did not start:\n{text[-3000:]}")
            time.sleep(0.05)
        used = target.cpu()
        token = peer.token(port)
        yield Running(target, lambda model: wire(model, peer.path, token), used)


@dataclass(frozen=True)
class Round:
    """One load of one server."""

    rate: float
    cpu: float
    first50: float
    first99: float
    gap99: float
    delivered: float


def one_round(peer: Running, streams: int, tokens: int, pace: int, turns: int) -> Round:
    target = peer.server
    gc.collect()
    before = target.cpu()
    result = uvloop.run(
        load(
            target.port,
            [["-"] * turns] * streams,
            ramp=0.0,
            limit=LIMIT_SECONDS,
            wire=peer.wire(f"bench-{tokens}-{pace}ms:latest"),
        )
    )
    for why in result.failures[:2]:
        print(f"  ! {target.name}: {why[:300]}")
    return Round(
        rate=result.events / result.seconds,
        cpu=(target.cpu() - before) * 1e6 / max(1, result.events),
        first50=result.first.percentile(0.5),
        first99=result.first.percentile(0.99),
        gap99=result.gaps.percentile(0.99),
        delivered=result.events / (streams * tokens * turns),
    )


LOADS = (
    ("1 stream of 300 tokens", (1, 300, 0, 8)),
    ("16 streams of 300 tokens", (16, 300, 0, 2)),
    ("100 streams at 50 tokens/s", (100, 150, 20, 1)),
    ("32 clients, turns of one token", (32, 1, 0, 5)),
)
"""Streams, tokens, milliseconds between them, turns of each."""


def middle(rounds: list[Round]) -> Round:
    """Figure by figure."""
    names = [each.name for each in fields(Round)]
    return Round(**{n: statistics.median(getattr(one, n) for one in rounds) for n in names})


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in list(PEERS)[1:]:
        parser.add_argument(
            f"--{name}", type=Path, help="folder of the commands of its environment"
        )
    parser.add_argument("--rounds", type=int, default=3)
    chosen = vars(parser.parse_args())
    folders = {name: chosen.get(name.replace("-", "_")) for name in PEERS}
    names = [name for name in PEERS if name == OURS or folders[name] is not None]
    pin(LOAD_CORE)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        address = stack.enter_context(upstream())
        peers = [
            stack.enter_context(running(name, folders[name], address, folder / name))
            for name in names
        ]
        print(f"{'':34}{'start, s of CPU':>18}{'MB when idle':>14}")
        for peer in peers:
            print(f"  {peer.server.name:32}{peer.seconds:18.1f}{peer.server.rss() / 1e6:14.0f}")
            one_round(peer, 4, 20, 0, 2)
        for title, (streams, tokens, pace, turns) in LOADS:
            rounds: dict[str, list[Round]] = {name: [] for name in names}
            for _ in range(chosen["rounds"]):
                for peer in peers:
                    rounds[peer.server.name].append(one_round(peer, streams, tokens, pace, turns))
            print(
                f"\n{title:34}{'events/s':>10}{'us/event':>10}{'first p50':>11}{'p99 ms':>9}"
                f"{'gap p99':>9}{'delivered':>11}"
            )
            for name, several in rounds.items():
                row = middle(several)
                print(
                    f"  {name:32}{row.rate:10,.0f}{row.cpu:10.0f}{row.first50:11.1f}"
                    f"{row.first99:9.1f}{row.gap99:9.1f}{row.delivered:11.3f}"
                )
        print(f"\n{'':34}{'MB afterwards':>18}")
        for peer in peers:
            print(f"  {peer.server.name:32}{peer.server.rss() / 1e6:18.0f}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
