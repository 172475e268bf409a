"""Frames that clients send."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, JsonValue, StrictInt, StrictStr

from sessions_app.schemas import ModelName

from ...api.confirmations import DecisionBody
from ...new_sessions import AnySessionId

MAX_ID = 512
"""Characters of an id."""

_Id = Annotated[str, Field(max_length=MAX_ID)]


class ClientFrame(BaseModel):
    """What every frame has."""

    model_config = ConfigDict(extra="forbid")

    event: str
    data: dict[str, JsonValue] = {}
    id: Annotated[StrictStr, Field(max_length=MAX_ID)] | StrictInt | None = None


class Place(BaseModel):
    """What a socket talks to: in the query of its address, and in ``session:switch``."""

    model_config = ConfigDict(extra="forbid")

    session_id: AnySessionId | None = None
    model: ModelName | None = None


class Approval(DecisionBody):
    """``tool:approval``: a decision about a call."""

    call_id: _Id = Field(alias="callId")


class RunToStop(BaseModel):
    """``stop``: a run; absent: the present one of the session."""

    model_config = ConfigDict(extra="forbid")

    run_id: _Id | None = None


class RunToResume(BaseModel):
    """``resume``: a run, from after a number on."""

    model_config = ConfigDict(extra="forbid")

    run_id: _Id
    after: Annotated[int, Field(ge=0, le=10**18)] = 0
