"""Answers of ``/models/available`` and ``/models/check``."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from mochi_server.errors import JSONObject

from .schemas import MODEL, PROBLEM, Model, ProviderProblem

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
        },
        "openai": {
            "configured": True,
            "reachable": False,
            "latency_ms": None,
            "models": None,
            "problem": AWAY,
        },
        "anthropic": {
            "configured": False,
            "reachable": False,
            "latency_ms": None,
            "models": None,
            "problem": None,
        },
    },
    "checked_at": CHECKED_AT,
}


class AvailableModels(BaseModel):
    """The models of the configured providers."""

    model_config = ConfigDict(json_schema_extra={"example": AVAILABLE})

    providers: dict[str, list[Model]] = Field(description="By alias, the default one first.")
    problems: list[ProviderProblem]
    checked_at: str = Field(description="When the providers were asked.")


class ProviderCheck(BaseModel):
    """One provider."""

    configured: bool = Field(description="Whether it has what it needs, such as a key.")
    reachable: bool
    latency_ms: float | None = Field(description="Until it said that it is there.")
    models: int | None = Field(description="How many; null where it did not tell.")
    problem: ProviderProblem | None


class ModelCheck(BaseModel):
    """Every provider, also those that are not configured."""

    model_config = ConfigDict(json_schema_extra={"example": CHECK})

    providers: dict[str, ProviderCheck] = Field(description="By alias, the default one first.")
    checked_at: str = Field(description="When the providers were asked.")
