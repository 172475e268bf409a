"""``/models``: the models that can chat, and which providers answer."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from django.http import HttpRequest
from ninja import Query, Router
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from mochi_project.openapi import NAME_ERRORS, PROVIDER_ERRORS, documented
from mochi_project.runtime import get_runtime
from mochi_project.schemas import ResponseModel, SessionModel, Timestamp
from mochi_server.core.caller import require
from mochi_server.errors import InvalidRequest, ModelNotFound
from mochi_server.protocol.completions import ModelKind
from mochi_server.providers.base import ModelInfo
from mochi_server.providers.registry import ModelList
from mochi_server.providers.status import StatusReport

from ..streaming import EventStreamResponse
from ..wires.sse import encode_changes
from .events import pull_stream

router = Router()


def _rounded(size: float | None) -> float | None:
    return None if size is None else round(size, 1)


def _counted(models: object) -> object:
    return len(models) if isinstance(models, list) else models


class ListedModel(ResponseModel):
    """One model."""

    name: SessionModel = Field(description="What to write as `model` elsewhere.")
    size_mb: Annotated[float | None, AfterValidator(_rounded)] = Field(
        description="Size of the weights in 10**6 bytes.", examples=[9048.2]
    )
    format: str | None = Field(examples=["gguf"])
    family: str | None = Field(examples=["qwen3"])
    parameter_size: str | None = Field(examples=["14.8B"])
    quantization_level: str | None = Field(examples=["Q4_K_M"])
    capabilities: list[str] = Field(examples=[["completion", "tools"]])
    context_length: int | None = Field(description="Longest context in tokens.", examples=[40960])
    provider: str = Field(examples=["ollama"])
    remote_host: str | None = Field(
        description="Where the text goes, if it leaves the machine.", examples=[None]
    )
    kind: ModelKind = Field(description="What the name stands for.")
    description: str = Field(description="What a preset or an agent is for.", examples=[""])
    parent_model: str | None = Field(
        description="The model that a preset or an agent uses.", examples=[None]
    )


class ProviderProblem(ResponseModel):
    """A provider that did not answer."""

    provider: str = Field(examples=["openai"])
    code: str = Field(examples=["PROVIDER_UNREACHABLE"])
    message: str = Field(examples=["No answer within 3 s."])


class ListedModels(ResponseModel):
    """Every model of every provider that answers."""

    models: list[ListedModel]
    problems: list[ProviderProblem]


class ModelProblem(ProviderProblem):
    """A provider, or with ``probe`` one of its models, that did not answer."""

    model: str | None = Field(default=None, description="Only where one model is meant.")


class AvailableModels(ResponseModel):
    """The models of the configured providers."""

    providers: dict[str, list[ListedModel]] = Field(
        description="By alias, the default one first.", examples=[{"openai": []}]
    )
    problems: list[ModelProblem]
    checked_at: Timestamp = Field(description="When the providers were asked.")


class CheckedModel(ResponseModel):
    """One model that a provider lists."""

    available: bool = Field(description="False where it did not answer, or is not there.")
    asked: bool = Field(
        description="Whether it has begun a reply; else it is only listed, or was looked up."
    )
    latency_ms: float | None = Field(
        description="Until it began its reply, or was looked up; null without `probe`."
    )
    problem: ModelProblem | None


class CheckedProvider(ResponseModel):
    """One provider."""

    configured: bool = Field(description="Whether it has what it needs, such as a key.")
    reachable: bool
    latency_ms: float | None = Field(description="Until it said that it is there.")
    models: Annotated[int | None, BeforeValidator(_counted)] = Field(
        description="How many; null where it did not tell."
    )
    problem: ProviderProblem | None
    model_status: dict[str, CheckedModel] = Field(description="By name, as in `/models`.")


class ModelCheck(ResponseModel):
    """Every provider, also those that are not configured."""

    providers: dict[str, CheckedProvider] = Field(
        description="By alias, the default one first.",
        examples=[
            {
                "ollama": {
                    "configured": True,
                    "reachable": True,
                    "latency_ms": 3.2,
                    "models": 1,
                    "problem": None,
                    "model_status": {
                        "qwen3:14b": {
                            "available": True,
                            "asked": False,
                            "latency_ms": None,
                            "problem": None,
                        },
                    },
                },
                "anthropic": {
                    "configured": False,
                    "reachable": False,
                    "latency_ms": None,
                    "models": None,
                    "problem": None,
                    "model_status": {},
                },
            }
        ],
    )
    checked_at: Timestamp = Field(description="When the providers were asked.")


Probe = Annotated[Literal["true", "false"], Query(example="false")]
"""Whether each model is asked, which costs vendors' tokens."""


async def read_status(probe: str, *, refresh: bool) -> StatusReport:
    """Return what the providers have, and with ``probe`` whether each model answers.

    Raises:
        Forbidden: models are asked with the right ``chat`` only.
    """
    if probe == "true":
        require("chat")
    checks = get_runtime().provider_checks
    status = checks.status_of_models if probe == "true" else checks.status
    return await status.read(refresh=refresh)


@router.get(
    "",
    response=ListedModels,
    summary="List the models",
    openapi_extra=documented(*PROVIDER_ERRORS),
)
async def list_models(request: HttpRequest) -> ModelList:
    """Models that can chat, then presets and agents.

    A provider that does not answer is named under `problems`.
    """
    return await get_runtime().models.list_models()


@router.get(
    "/available",
    response=AvailableModels,
    exclude_unset=True,
    summary="List the models of each configured provider",
    openapi_extra=documented(InvalidRequest),
)
async def list_available_models(request: HttpRequest, probe: Probe = "false") -> dict[str, Any]:
    """Of at most a minute ago. A provider that hangs is waited for three seconds.

    With `probe=true` every model is asked now, for at most 30 seconds; one that does not answer is
    under `problems`. `/api/models/available` is the same.
    """
    report = await read_status(probe, refresh=False)
    answers = report.providers.values()
    status = {name: model for one in answers for name, model in one.model_status.items()}
    problems = [*(one.problem for one in answers), *(model.problem for model in status.values())]
    return {
        "providers": {
            alias: [model for model in one.models or () if status[model.name].available]
            for alias, one in report.providers.items()
            if one.configured
        },
        "problems": [problem for problem in problems if problem is not None],
        "checked_at": report.checked_at,
    }


@router.get(
    "/check",
    response=ModelCheck,
    exclude_unset=True,
    summary="Which providers are configured and answer, and how fast",
    openapi_extra=documented(InvalidRequest),
)
async def check_models(request: HttpRequest, probe: Probe = "false") -> StatusReport:
    """Every provider, asked now and side by side; one that hangs is waited for three seconds.

    With `probe=true` every model is asked as well, for at most 30 seconds. `/api/models/check` is
    the same.
    """
    return await read_status(probe, refresh=True)


class PullableModelEntry(ResponseModel):
    """A model that the server can fetch."""

    name: SessionModel
    size_mb: float = Field(description="Size of the weights in 10**6 bytes.", examples=[98.4])
    capabilities: list[str] = Field(
        description="What it can, as in the list of models.", examples=[["completion"]]
    )
    present: bool = Field(description="Whether it is there already.", examples=[False])
    pulling: bool = Field(description="Whether it is being fetched.", examples=[False])


class PullableModels(ResponseModel):
    """What can be fetched: the models that are built in, at their exact versions."""

    models: list[PullableModelEntry]


class PullModelRequest(BaseModel):
    """The body of ``POST /models/pull``."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"example": {"model": "local/smollm2:135m"}}
    )

    model: str = Field(max_length=256, description="A name of the list.")


@router.get("/pull", response=PullableModels, summary="List the models that can be fetched")
async def list_pullable_models(request: HttpRequest) -> dict[str, Any]:
    """The models of the built-in provider, also those that are present."""
    return {
        "models": [
            {
                "name": model.name,
                "size_mb": round(model.size / 1e6, 1),
                "capabilities": list(model.capabilities),
                "present": model.is_present,
                "pulling": model.is_being_pulled,
            }
            for model in await get_runtime().providers.pullable_models()
        ]
    }


@router.post(
    "/pull",
    response={200: None},
    summary="Fetch a model, and follow that as server-sent events",
    openapi_extra=documented(ModelNotFound, stream=pull_stream),
)
async def pull_model(request: HttpRequest, payload: PullModelRequest) -> EventStreamResponse:
    """Only models of the list can be fetched.

    A model that is being fetched is followed. It goes on when the client leaves.
    """
    reader = await get_runtime().pulls.start(payload.model)
    return EventStreamResponse(reader, encode_changes)


@router.get(
    "/{path:model_name}",
    response=ListedModel,
    summary="Read one model",
    openapi_extra=documented(*NAME_ERRORS, *PROVIDER_ERRORS),
)
async def read_model(request: HttpRequest, model_name: SessionModel) -> ModelInfo:
    """The name as in the list; `:` and `/` may stand in the path as they are."""
    return await get_runtime().models.show_model(model_name)
