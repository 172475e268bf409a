"""Answers of ``/models/available`` and ``/models/check``."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from mochi_server.errors import JSONObject

from .chat import MODEL, PROBLEM, Model, ProviderProblem

CHECKED_AT = "2025-01-15T10:35:00.000000Z"
AWAY: JSONObject = {**PROBLEM, "provider": "openai", "code": "PROVIDER_UNREACHABLE"}
AWAY["message"] = "No answer within 3 s."
AVAILABLE: JSONObject = {
    "providers": {"ollama": [MODEL], "openai": []},
    "problems": [AWAY],
    "checked_at": CHECKED_AT,
}
CHECK: JSONObject = {
    "providers": {
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
        "openai": {
            "configured": True,
            "reachable": False,
            "latency_ms": None,
            "models": None,
            "problem": AWAY,
            "model_status": {},
        },
        "anthropic": {
            "configured": False,
            "reachable": False,
            "latency_ms": None,
            "models": None,
            "problem": None,
            "model_status": {},
        },
    },
    "checked_at": CHECKED_AT,
}


class ModelProblem(ProviderProblem):
    """A provider, or with ``probe`` one of its models, that did not answer."""

    model: str | None = Field(default=None, description="Only where one model is meant.")


class AvailableModels(BaseModel):
    """The models of the configured providers."""

    model_config = ConfigDict(json_schema_extra={"example": AVAILABLE})

    providers: dict[str, list[Model]] = Field(description="By alias, the default one first.")
    problems: list[ModelProblem]
    checked_at: str = Field(description="When the providers were asked.")


class ModelStatus(BaseModel):
    """One model that a provider lists."""

    available: bool = Field(description="False where it was asked and did not answer.")
    latency_ms: float | None = Field(description="Until it answered; null where it was not asked.")
    problem: ModelProblem | None


class ProviderCheck(BaseModel):
    """One provider."""

    configured: bool = Field(description="Whether it has what it needs, such as a key.")
    reachable: bool
    latency_ms: float | None = Field(description="Until it said that it is there.")
    models: int | None = Field(description="How many; null where it did not tell.")
    problem: ProviderProblem | None
    model_status: dict[str, ModelStatus] = Field(description="By name, as in `/models`.")


class ModelCheck(BaseModel):
    """Every provider, also those that are not configured."""

    model_config = ConfigDict(json_schema_extra={"example": CHECK})

    providers: dict[str, ProviderCheck] = Field(description="By alias, the default one first.")
    checked_at: str = Field(description="When the providers were asked.")
