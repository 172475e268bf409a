"""Reads and writes the files of presets: front matter, and a system prompt below it.

docs/reference/presets.md has their keys.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StrictBool,
    StringConstraints,
    ValidationError,
)

from ...constants import SYSTEM_PROMPT_CHARACTERS
from ...core.front_matter import FrontMatter, FrontMatterError, read_front_matter
from ...core.problems import place_of, problem_text
from ...errors import JSONObject
from ...protocol.options import NO_OPTIONS, ModelOptions
from ...sessions.types import (
    TEXT_CALLS,
    TOOL_MODE,
    AgentSettings,
    TextCallMode,
    ToolExecutionPolicy,
    ToolMode,
    ToolSettings,
)
from .resolver import ModelSetup

PRESET_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""Names of presets; any other never reaches the file system."""

SUFFIX = ".md"

MAX_NAMES = 1_000
DESCRIPTION_CHARACTERS = 1_024
NAME_CHARACTERS = 512


def _is_of_provider(model: str) -> str:
    if model.startswith(("preset/", "agent/")):
        raise ValueError("must be a model of a provider, not a preset or an agent")
    return model


_Name = Annotated[str, StringConstraints(min_length=1, max_length=NAME_CHARACTERS)]
_Names = Annotated[list[_Name], Field(max_length=MAX_NAMES)]
_Line = Annotated[
    str,
    AfterValidator(lambda text: " ".join(text.split())),
    StringConstraints(max_length=DESCRIPTION_CHARACTERS),
]
_Prompt = Annotated[
    str, AfterValidator(str.strip), StringConstraints(max_length=SYSTEM_PROMPT_CHARACTERS - 1)
]


class Preset(BaseModel):
    """A model with what sessions that name it use: options, tools, agents, a system prompt."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        json_schema_extra={
            "example": {
                "description": "Answers in one sentence.",
                "model": "qwen3:14b",
                "options": {"temperature": 0.2},
                "tools": ["get_current_time"],
                "policy": "confirm_destructive",
                "system_prompt": "Answer in one sentence.",
            }
        },
    )

    description: _Line = Field(default="", description="What it is for, in one line.")
    model: Annotated[_Name, AfterValidator(_is_of_provider)] = Field(
        description="A model of a provider, as in `/models`."
    )
    options: ModelOptions = NO_OPTIONS
    tools: _Names = Field(default=[], description="Names of tools.")
    agents: _Names = Field(default=[], description="Names of agents that the model may call.")
    policy: ToolExecutionPolicy = Field(
        default=ToolExecutionPolicy.ALWAYS_CONFIRM,
        description="When a person is asked before a tool runs; `always_confirm` by default.",
    )
    think: StrictBool | Literal["low", "medium", "high", "max"] | None = Field(
        default=None,
        description="Whether the model thinks where a request does not say. Null: as if the "
        "request named the model itself.",
    )
    text_calls: TextCallMode | None = Field(
        default=None,
        description="Calls that the model writes as text: `on`, `ask` or `off`. Absent: as "
        "`MOCHI_TEXT_CALLS` says.",
    )
    compaction: StrictBool | None = Field(
        default=None,
        description="Whether the oldest messages of a long history are replaced by a summary in "
        "requests. Absent: as `MOCHI_COMPACTION` says.",
    )
    tool_mode: ToolMode | None = Field(
        default=None,
        description="How the model gets its tools: `native`, as its provider has them (the "
        "default), or `prompted`, described in the system prompt.",
    )
    system_prompt: _Prompt = Field(
        default="", description=f"Shorter than {SYSTEM_PROMPT_CHARACTERS:,} characters."
    )

    def setup(self, name: str) -> ModelSetup:
        """Return what turns with the preset of this name use."""
        optional = {TEXT_CALLS: self.text_calls, TOOL_MODE: self.tool_mode}
        return ModelSetup(
            kind="preset",
            name=name,
            description=self.description,
            model=self.model,
            options=self.options,
            think=self.think,
            system_prompt=self.system_prompt,
            compaction=self.compaction,
            tool_settings=ToolSettings(
                tools=self.tools,
                execution_policy=self.policy,
                **{key: value for key, value in optional.items() if value is not None},
            ),
            agent_settings=AgentSettings(enabled_agents=self.agents) if self.agents else None,
        )


_KEYS = [key for key in Preset.model_fields if key != "system_prompt"]


def read_preset_file(path: Path) -> Preset:
    """Read a preset; blocks.

    Raises:
        FrontMatterError: it cannot be read, or is not as the format wants it.
    """
    if PRESET_NAME.fullmatch(path.stem) is None:
        rule = "only letters, digits, '.', '_' and '-', a letter or digit first, at most 64"
        raise FrontMatterError(f"no preset can have this name: {rule}", 1)
    front, body = read_front_matter(path)
    for key in front:
        if key not in _KEYS:
            raise FrontMatterError(f"there is no key {key!r}", front.line(key))
    values: JSONObject = {
        "description": front.text("description") or "",
        "model": front.needed("model"),
        "options": front.mapping("options", typed=True),
        "tools": [*front.names("tools")],
        "agents": [*front.names("agents")],
        "think": front.typed("think"),
        "compaction": front.typed("compaction"),
        "system_prompt": body,
    }
    if policy := front.text("policy"):
        values["policy"] = policy
    for key in (TEXT_CALLS, TOOL_MODE):
        if value := front.text(key):
            values[key] = value
    try:
        return Preset.model_validate(values)
    except ValidationError as error:
        raise _refusal(error, front) from error


def _refusal(error: ValidationError, front: FrontMatter) -> FrontMatterError:
    problem = error.errors(include_url=False, include_input=False)[0]
    where = place_of(problem["loc"]).replace("system_prompt", "the system prompt")
    return FrontMatterError(f"{where}: {problem_text(problem)}", front.line(str(problem["loc"][0])))


def preset_text(preset: Preset) -> str:
    """Return the content of a preset's file."""
    values = preset.model_dump(mode="json", exclude_defaults=True, include=set(_KEYS))
    if options := preset.options.as_stored():
        values["options"] = options
    front = yaml.safe_dump(values, allow_unicode=True, sort_keys=False, width=10_000)
    body = f"\n{preset.system_prompt}\n" if preset.system_prompt else ""
    return f"---\n{front}---\n{body}"
