"""The lines that the command prints once the server answers."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import shlex
import socket
import time
import webbrowser
from collections import Counter
from collections.abc import Callable, Iterator
from ipaddress import ip_address
from typing import Any

from ..config import MochiServerSettings
from ..config.environment import has_desktop
from ..config.installation import own_command
from ..core.progress import counted
from ..errors import ProviderNotConfigured
from .startup import address_of, is_public, url_of

READY_SECONDS = 60.0
"""Longest wait for the first answer of our own server."""

MODELS_SECONDS = 15.0
"""Longest wait for the list of models."""

_PLAIN = re.compile(r"[\w.:/@+-]+", re.ASCII)
"""Names of models that a shell takes as they are."""


class Announcement:
    """The lines that a person sees once the server answers, which is asked over HTTP."""

    def __init__(
        self,
        program: str,
        settings: MochiServerSettings,
        sock: socket.socket,
        write: Callable[[str], object],
        *,
        open_page: bool = False,
    ) -> None:
        self.program = program
        self.settings = settings
        self.host, self.port = address_of(sock)
        self.url = url_of(self.host, self.port)
        self.everywhere = ip_address(sock.getsockname()[0]).is_unspecified
        self._write = write
        self._open_page = open_page

    def run(self) -> None:
        """Wait until the server answers, and print what it has."""
        health = self._wait()
        if health is None:
            return
        self._say(f"{self.program} listens on {self.url}")
        if self.everywhere:
            host = self.settings.host
            self._say(f"  and on every other address of this machine, as MOCHI_HOST is {host}")
        has_page = self.settings.playground
        if has_page:
            self._say(f"  page: {self.url}/")
        self._say(f"  documentation: {self.url}/api/v1/docs")
        self._say(f"  sessions: {self._place_of_sessions()}")
        if not self.settings.demands_token and is_public(self.settings.host):
            self._say("  WARNING: open to the network without a token; set MOCHI_API_TOKEN")
        for line in self._of_models(health):
            self._say(line)
        if self._open_page and has_page and has_desktop():
            webbrowser.open(f"{self.url}/")

    def _place_of_sessions(self) -> str:
        places = {
            "json": str(self.settings.sessions_path),
            "redis": "in Redis",
            "database": "in the database",
            "memory": "in memory, gone when the server stops",
        }
        return places[self.settings.session_storage]

    def _of_models(self, health: dict[str, Any]) -> Iterator[str]:
        if self.settings.demands_token and self.settings.api_token is None:
            folder = shlex.quote(str(self.settings.data_dir))
            command = f"{own_command()} --data-dir {folder} token add NAME --rights chat,tools"
            yield f"  every request needs a token; to make one:  {command}"
            return
        models, problems = self._models()
        for line in provider_lines(health, models, problems):
            yield f"  {line}"
        yield from self._invitation(models)

    def _say(self, line: str) -> None:
        with contextlib.suppress(BrokenPipeError):  # nobody reads what we print
            self._write(f"{line}\n")

    def _wait(self) -> dict[str, Any] | None:
        end = time.monotonic() + READY_SECONDS
        while time.monotonic() < end:
            with contextlib.suppress(OSError, http.client.HTTPException, ValueError):
                return self._get("/api/v1/health", READY_SECONDS)
            time.sleep(0.05)
        return None

    def _models(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        try:
            answer = self._get("/api/v1/models", MODELS_SECONDS)
        except (OSError, http.client.HTTPException, ValueError):
            return [], []
        details = answer.get("error", {}).get("details", {})
        return answer.get("models", []), answer.get("problems", details.get("problems", []))

    def _get(self, path: str, seconds: float) -> dict[str, Any]:
        connection = http.client.HTTPConnection(self.host, self.port, timeout=seconds)
        headers = {}
        if self.settings.api_token is not None:
            headers["Authorization"] = f"Bearer {self.settings.api_token.get_secret_value()}"
        try:
            connection.request("GET", path, headers=headers)
            answer = json.loads(connection.getresponse().read())
        finally:
            connection.close()
        return answer if isinstance(answer, dict) else {}

    def _invitation(self, models: list[dict[str, Any]]) -> Iterator[str]:
        if not models:
            from ..providers.builtin.engine import missing_requirement  # noqa: PLC0415 - rarely needed

            if (problem := missing_requirement()) is None:
                yield f"No model yet. For the small built-in one:  {own_command()} pull"
            else:
                yield f"No model yet. The small built-in one cannot run: {problem}"
            yield "Or, with Ollama (https://ollama.com):  ollama pull qwen3:8b"
            return
        # A model server names its models; a name that a shell could take for more is not printed.
        name = next((model["name"] for model in models if _PLAIN.fullmatch(model["name"])), "MODEL")
        token = ' -H "Authorization: Bearer $MOCHI_API_TOKEN"' if self.settings.api_token else ""
        body = shlex.quote(json.dumps({"model": name, "message": "Hello!"}))
        if name.startswith("local/"):
            yield "The built-in model is very small: it shows how things work, and is often wrong."
        yield "Try:"
        yield f"  curl -N{token} {self.url}/api/v1/chat/stream -d {body}"


def provider_lines(
    health: dict[str, Any], models: list[dict[str, Any]], problems: list[dict[str, Any]]
) -> Iterator[str]:
    """Yield a line for each provider: how many models it has, or why it has none."""
    count = Counter(model.get("provider") for model in models)
    reasons = {
        problem["provider"]: problem["message"]
        for problem in problems
        if problem["code"] == ProviderNotConfigured.code
    }
    providers = health.get("providers", {})
    for alias, state in providers.items():
        if alias == "test" and len(providers) > 1 and not count[alias]:
            continue  # beside real ones, for those who know of it
        where = f" at {health.get('ollama_host')}" if alias == "ollama" else ""
        if alias in reasons:
            yield f"{alias}{where}: {reasons[alias]}"
        elif state.get("reachable") or count[alias]:
            yield f"{alias}{where}: {counted(count[alias], 'model')}"
        else:
            yield f"{alias}{where}: does not answer"
