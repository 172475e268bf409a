"""``/presets``: models with options, tools, agents and a system prompt, as files."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from django.http import HttpRequest
from ninja import Router
from pydantic import Field, StrictBool

from mochi_project.openapi import documented
from mochi_project.runtime import get_runtime
from mochi_project.schemas import ResponseModel, SessionModel
from mochi_server.errors import PresetInvalid, PresetNotFound, StorageError
from mochi_server.protocol.options import ModelOptions
from mochi_server.services.models.preset_file import Preset
from mochi_server.sessions.types import TextCallMode, ToolExecutionPolicy, ToolMode

router = Router()

PresetName = Annotated[
    str,
    Field(
        description="Letters, digits, `.`, `_` and `-`, a letter or digit first, at most 64.",
        examples=["brief"],
    ),
]
PresetPurpose = Annotated[str, Field(examples=["Answers in one sentence."])]


class PresetLine(ResponseModel):
    """A preset in the list."""

    name: PresetName
    description: PresetPurpose
    model: SessionModel | None = Field(description="Null where the file cannot be used.")
    valid: bool = Field(examples=[True])
    error_message: str | None = Field(description="Why it cannot be used.", examples=[None])


class PresetList(ResponseModel):
    """Every preset, by name."""

    presets: list[PresetLine]


class PresetDetail(ResponseModel):
    """A preset: what sessions use that name `preset/{name}` as their model."""

    name: PresetName
    description: PresetPurpose
    model: SessionModel
    options: ModelOptions
    tools: list[str] = Field(examples=[["get_current_time"]])
    agents: list[str] = Field(description="Agents that the model may call.", examples=[[]])
    policy: ToolExecutionPolicy = Field(examples=["confirm_destructive"])
    think: StrictBool | Literal["low", "medium", "high", "max"] | None = Field(
        description="Null: as if a request named the model itself.", examples=[None]
    )
    text_calls: TextCallMode | None = Field(
        description="Null: as the server does.", examples=[None]
    )
    compaction: bool | None = Field(description="Null: as the server does.", examples=[None])
    tool_mode: ToolMode | None = Field(description="Null: `native`.", examples=["prompted"])
    system_prompt: str = Field(examples=["Answer in one sentence."])
    warnings: list[str] = Field(
        default=[], description="Only after `PUT`: names in `tools` that nothing has, if any."
    )


def _detail(name: str, preset: Preset) -> dict[str, Any]:
    return {"name": name, **preset.model_dump(mode="json"), "options": preset.options.as_stored()}


@router.get(
    "",
    response=PresetList,
    summary="List the presets",
    openapi_extra=documented(StorageError),
)
async def list_presets(request: HttpRequest) -> dict[str, Any]:
    """As the files are now, with those that cannot be used and the reason."""
    entries = await get_runtime().presets.entries()
    return {
        "presets": [
            {
                "name": each.name,
                "description": each.preset.description if each.preset else "",
                "model": each.preset.model if each.preset else None,
                "valid": each.preset is not None,
                "error_message": each.error_message,
            }
            for each in entries
        ]
    }


@router.get(
    "/{name}",
    response=PresetDetail,
    exclude_unset=True,
    summary="Read a preset",
    openapi_extra=documented(PresetNotFound, PresetInvalid, StorageError),
)
async def read_preset(request: HttpRequest, name: PresetName) -> dict[str, Any]:
    """Everything that its file says; of one that cannot be used the reason, as an error."""
    return _detail(name, await get_runtime().presets.read(name))


@router.put(
    "/{name}",
    response=PresetDetail,
    exclude_unset=True,
    summary="Create or replace a preset",
    openapi_extra=documented(StorageError),
)
async def write_preset(request: HttpRequest, name: PresetName, payload: Preset) -> dict[str, Any]:
    """The file is written anew. Model, tools and agents need not exist yet."""
    runtime = get_runtime()
    await runtime.presets.write(name, payload)
    tools = payload.setup(name).tool_settings
    warnings = [] if tools is None else await runtime.tools.warnings(tools, agents=True)
    return {**_detail(name, payload), **({"warnings": warnings} if warnings else {})}


@router.delete(
    "/{name}",
    response={204: None},
    summary="Delete a preset",
    openapi_extra=documented(PresetNotFound, StorageError),
)
async def delete_preset(request: HttpRequest, name: PresetName) -> None:
    """Sessions that name it then need another model: their turns are `PRESET_NOT_FOUND`."""
    await get_runtime().presets.delete(name)
