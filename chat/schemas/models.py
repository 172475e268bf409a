"""Answers of ``/models``."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field

from mochi_project.schemas import ResponseModel, SessionModel, Timestamp


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

    available: bool = Field(description="False where it was asked and did not answer.")
    latency_ms: float | None = Field(description="Until it answered; null where it was not asked.")
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
                        "qwen3:14b": {"available": True, "latency_ms": None, "problem": None},
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
