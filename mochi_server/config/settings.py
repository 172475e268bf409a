"""The settings, and what follows from them: folders, addresses and limits."""

from __future__ import annotations

import os
from hashlib import blake2b
from pathlib import Path

from platformdirs import user_cache_path
from pydantic import model_validator
from typing_extensions import Self

from ..core.tokens import TOKENS
from .fields import SettingFields

MCP_CALLBACK_PATH = "/api/v1/mcp/oauth/callback"
_EVERY_ADDRESS = frozenset({"0.0.0.0", "::", "[::]", "localhost"})  # noqa: S104 - to compare with

STATE = ".mochi"
"""Name of the folder, in the data folder, that processes share their state in."""

TEST_PORT = 5099
"""Port of test mode, unless one is set."""


class MochiServerSettings(SettingFields):
    """The settings, which are read from variables, ``.env`` and arguments; and what they mean."""

    @model_validator(mode="after")
    def _isolate_tests(self) -> Self:
        """Let test mode store nothing and reach no other service."""
        if self.environment == "test":
            self.session_storage = "memory"
            self.redis_url = self.database_url = None
            if "port" not in self.model_fields_set:
                self.port = TEST_PORT
                self.model_fields_set.discard("port")  # it remains a default
        return self

    @property
    def data_folder_problem(self) -> str | None:
        """Why the working directory is not accepted as the data folder; None if it is one.

        A data folder was named, made by ``mochi-server init``, or used before. Any other folder is
        a user's project, whose files must not be run as tools.
        """
        traces = (self.state_path, self.within_data(Path("chat_sessions")))
        if "data_dir" in self.model_fields_set or any(path.is_dir() for path in traces):
            return None
        return (
            f"{self.within_data(Path())} is no data folder of mochi-server. If it were one, "
            "Python files in its folders tools and agents would be run, and conversations be kept "
            "in it."
        )

    def within_data(self, path: Path) -> Path:
        """Return the absolute path of a folder that is relative to ``data_dir``."""
        return (self.data_dir.expanduser() / path.expanduser()).absolute()

    @property
    def sessions_path(self) -> Path:
        return self.within_data(self.sessions_dir)

    @property
    def agent_chats_path(self) -> Path:
        return self.within_data(self.agent_chats_dir)

    @property
    def tools_path(self) -> Path:
        return self.within_data(self.tools_dir)

    @property
    def tool_working_path(self) -> Path:
        """Absolute working directory of tools and agents: the data folder, unless set."""
        return self.within_data(self.tool_working_dir)

    @property
    def agents_path(self) -> Path:
        return self.within_data(self.agents_dir)

    @property
    def workspace_path(self) -> Path:
        return self.within_data(Path("workspaces"))

    @property
    def state_path(self) -> Path:
        """Absolute folder of the state that processes share; may be deleted while none runs."""
        return self.within_data(Path(STATE))

    @property
    def rules_path(self) -> Path:
        """Absolute path of the rules that decide about tool calls, which people may edit."""
        return self.within_data(Path("policies.json"))

    @property
    def tokens_path(self) -> Path:
        """Absolute path of the hashes of tokens, which people may read."""
        return self.within_data(Path(TOKENS))

    @property
    def token_use_path(self) -> Path:
        """Absolute folder of files whose times say when tokens were used last."""
        return self.state_path / "tokens"

    @property
    def audit_path(self) -> Path | None:
        """Absolute path of the audit log; None where none is written."""
        if not self.audit_log or self.session_storage == "memory":
            return None
        return self.within_data(Path("audit.jsonl"))

    @property
    def audit_lock_path(self) -> Path:
        """Absolute path of the file that processes lock to write the audit log."""
        return self.state_path / "audit.lock"

    @property
    def demands_token(self) -> bool:
        """Whether requests need a token."""
        return self.api_token is not None or os.path.lexists(self.tokens_path)

    @property
    def attachments_path(self) -> Path:
        """Absolute folder of files that belong to messages."""
        return self.within_data(Path("attachments"))

    @property
    def mcp_config_path(self) -> Path:
        """Absolute path of the file of MCP servers, which people may edit."""
        return self.within_data(self.mcp_config)

    @property
    def mcp_callback_url(self) -> str:
        """Address that browsers come back to when a person has authorized an MCP server."""
        if self.mcp_redirect_url is not None:
            return self.mcp_redirect_url
        return f"{self.local_url}{MCP_CALLBACK_PATH}"

    @property
    def local_url(self) -> str:
        """Address of a server with these settings, for programs of this machine."""
        host = "127.0.0.1" if self.host in _EVERY_ADDRESS else self.host.strip("[]")
        host = f"[{host}]" if ":" in host else host
        return f"http://{host}:{self.port}"

    @property
    def approved_tools_path(self) -> Path:
        """Absolute path of the hashes of the MCP tools that were approved."""
        return self.within_data(Path("approved_tools.json"))

    @property
    def processes_path(self) -> Path:
        """Where each server process has a file while it lives."""
        return self.state_path / "processes"

    @property
    def sessions_state_path(self) -> Path:
        """Absolute folder of the shared state of one folder of sessions.

        It keeps its name when the data folder is moved.
        """
        data, sessions = map(os.path.realpath, (self.within_data(Path()), self.sessions_path))
        relative = os.fsencode(os.path.relpath(sessions, data))
        return self.state_path / f"sessions-{blake2b(relative, digest_size=4).hexdigest()}"

    @property
    def public_path(self) -> Path | None:
        """Absolute folder that is served instead of the page."""
        return self.within_data(self.public_dir) if self.public_dir is not None else None

    @property
    def system_prompts_path(self) -> Path:
        return self.within_data(self.system_prompts_dir)

    @property
    def presets_path(self) -> Path:
        return self.within_data(Path("presets"))

    @property
    def models_path(self) -> Path:
        """Absolute folder of the built-in model's weights."""
        if self.models_dir is not None:
            return self.models_dir.expanduser().absolute()
        return user_cache_path("mochi-server") / "models"

    @property
    def client_stall_seconds(self) -> float:
        """Longest time that a client may not read its stream."""
        return 4 * self.heartbeat_seconds

    @property
    def max_body_bytes(self) -> int:
        """Of a request; also of an attached file and of a model's reply."""
        return int(self.max_body_mb * 1_000_000)

    @property
    def max_wire_body_bytes(self) -> int:
        """Of a request on the APIs of vendors, which carries the whole history."""
        return int(self.max_body_mb * 3_200_000)

    @property
    def max_import_bytes(self) -> int:
        """Of a conversation of an import."""
        return int(self.max_body_mb * 10_000_000)

    @property
    def max_upload_bytes(self) -> int:
        """Of a file that is imported, which is on the disk."""
        return int(self.max_body_mb * 100_000_000)

    @property
    def socket_frame_bytes(self) -> int:
        """Of a frame that a client sends on a WebSocket."""
        return int(self.max_body_mb * 100_000)

    @property
    def max_requests(self) -> int:
        """Most requests at the same time, streams included; and most WebSockets."""
        return max(100, 2 * self.max_runs)

    @property
    def max_queued_runs(self) -> int:
        """Most runs that wait in queues at the same time."""
        return max(10, self.max_runs // 10)
