"""What MCP servers offer, on disk: it is listed after a start without starting any server."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson

from ....core.files import read_plain, replace_file
from ....errors import JSONObject
from ..config.entry import McpServerConfig
from ..descriptions import MAX_TOOLS, read_stored
from ..prompt_descriptions import MAX_PROMPTS, read_stored_prompt
from .facts import ServerFacts

logger = logging.getLogger(__name__)

MAX_BYTES = 80_000_000


class FactsCache:
    """What servers have said last, each in a file of its own; every method blocks.

    A file counts only for the configuration under which it was written. Without a folder nothing is
    kept.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    def read(self, configs: Sequence[McpServerConfig]) -> dict[str, ServerFacts]:
        """Return what is known of these servers, by name."""
        known = {each.name: self._read(each) for each in configs}
        return {name: facts for name, facts in known.items() if facts is not None}

    def _read(self, config: McpServerConfig) -> ServerFacts | None:
        if self._folder is None:
            return None
        try:
            stored = orjson.loads(read_plain(self._path(config), MAX_BYTES)[0])
            if stored["config"] != _digest(config):
                return None
            return _facts(stored)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            logger.info("The stored tools of the MCP server %s cannot be read", config.name)
            return None

    def write(self, config: McpServerConfig, facts: ServerFacts) -> None:
        if self._folder is None:
            return
        stored = {
            "server": config.name,
            "config": _digest(config),
            "tools": [tool.as_json() for tool in facts.tools],
            "unusable": facts.unusable,
            "prompts": [prompt.as_json() for prompt in facts.prompts],
            "protocol_version": facts.protocol_version,
            "server_info": facts.server_info,
        }
        try:
            replace_file(self._path(config), [orjson.dumps(stored)], private=True)
        except (OSError, TypeError) as error:
            logger.warning("The tools of the MCP server %s are not kept: %s", config.name, error)

    def _path(self, config: McpServerConfig) -> Path:
        assert self._folder is not None  # noqa: S101 - asked before
        return self._folder / f"{config.name}.json"


def _facts(stored: Any) -> ServerFacts:  # noqa: ANN401 - JSON of a file
    return ServerFacts(
        tools=[read_stored(each) for each in stored["tools"][:MAX_TOOLS]],
        unusable={str(name): str(reason) for name, reason in stored["unusable"].items()},
        prompts=[read_stored_prompt(each) for each in stored["prompts"][:MAX_PROMPTS]],
        protocol_version=stored["protocol_version"],
        server_info=stored["server_info"],
    )


def _digest(config: McpServerConfig) -> str:
    """Return a hash of what decides which tools a server has."""
    fields: JSONObject = config.model_dump(mode="json", exclude={"options", "disabled", "secrets"})
    return hashlib.sha256(orjson.dumps(fields, option=orjson.OPT_SORT_KEYS)).hexdigest()
