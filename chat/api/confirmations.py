"""``/confirmations`` and ``/policies``: calls of all sessions that wait, and rules about them."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any, Literal

from django.http import HttpRequest
from ninja import Query, Router
from pydantic import BaseModel, ConfigDict, Field, StrictBool

from mochi_project.openapi import STORE_ERRORS, ErrorTypes, documented
from mochi_project.runtime import get_runtime
from mochi_project.schemas import Cursor, NextCursor, ResponseModel, SessionId, Timestamp, ToolName
from mochi_server import errors
from mochi_server.chat.confirmations.inbox import PAGE, ConfirmationFilter
from mochi_server.errors import InvalidRequest, JSONObject

from ..streaming import EventStreamResponse
from ..wires.sse import encode_changes
from .events import confirmation_stream

router = Router()
rules_router = Router()

ConfirmationId = Annotated[str, Field(examples=["conf_0123456789abcdef"])]
RuleId = Annotated[str, Field(examples=["rule_0123456789abcdef"])]
Arguments = Annotated[dict[str, Any], Field(examples=[{"a": 2, "b": 3}])]

OfSession = Annotated[str | None, Query(description="Only those of this session.")]
RuleSession = Annotated[str | None, Query(description="The session whose rules are meant.")]
PageSize = Annotated[int, Query(ge=1, le=1000, description="Most entries.")]

_PATTERNS = {"path": "notes/*"}

DECISION_ERRORS: ErrorTypes = (
    errors.ConfirmationNotFound,
    errors.ToolConfirmationTimeout,
    *STORE_ERRORS,
    errors.SessionNotFound,
    errors.SessionUnreadable,
    errors.StorageError,
)
"""Errors of a decision; the last three where a rule is added to a session."""


class DecisionBody(BaseModel):
    """A decision about a call."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": {"approved": True}})

    approved: StrictBool
    reason: str | None = Field(
        default=None,
        max_length=10_000,
        description="Told to the model when the call is denied.",
    )
    arguments: dict[str, Any] | None = Field(
        default=None,
        description="With `approved` true: what the tool gets instead of the model's arguments, "
        "all of them.",
    )
    remember: Literal["session", "tool"] | None = Field(
        default=None,
        description="With `approved` true: allow such calls from now on, in this session or in all "
        "sessions.",
    )
    patterns: dict[str, str] | None = Field(
        default=None,
        max_length=100,
        description="With `remember`: which calls, by the name of an argument; `*` is any "
        "characters but `/`, `**` any at all. Absent: every call of the tool.",
        examples=[_PATTERNS],
    )

    def as_options(self) -> dict[str, Any]:
        """Return what ``ConfirmationInbox.decide`` takes."""
        return self.model_dump(include=set(DecisionBody.model_fields))


class DecideRequest(DecisionBody):
    """A decision; the id may be in the body too."""

    confirmation_id: str | None = Field(default=None, description="As in the path, or absent.")


class Confirmed(ResponseModel):
    """The decision counts."""

    confirmation_id: ConfirmationId
    approved: bool = Field(examples=[True])
    rule_id: RuleId | None = Field(default=None, description="Only with `remember`.")


class Suggestion(ResponseModel):
    """What an approval may be remembered as."""

    patterns: dict[str, str] = Field(
        description="For `patterns` of the decision; empty: every call of the tool.",
        examples=[_PATTERNS],
    )
    allows: str = Field(
        description="What such a rule allows, for a person.",
        examples=["path: any name in the folder notes; other arguments: anything"],
    )


class OpenConfirmation(ResponseModel):
    """A call that waits for a decision."""

    confirmation_id: ConfirmationId
    run_id: str = Field(examples=["run_0123456789abcdef"])
    session_id: SessionId
    tool_name: ToolName
    tool_source: str = Field(
        description="Where the tool comes from: `directory`, `agents`, ….", examples=["directory"]
    )
    arguments: Arguments
    shown: str = Field(
        description="The arguments for a person: JSON in which characters that cannot be seen, "
        "change how others are shown, or look like others are written as `\\uXXXX`.",
        examples=['{\n  "a": 2,\n  "b": 3\n}'],
    )
    call_index: int = Field(examples=[0])
    tool_call_id: str = Field(examples=["call_1"])
    queue_position: int = Field(
        description="From 1, among the calls that are asked about.", examples=[1]
    )
    queue_total: int = Field(examples=[1])
    notice: str = Field(
        default="",
        description="Why a person is asked whatever policies and rules allow; only if there is a "
        "reason.",
    )
    suggestions: list[Suggestion] = Field(
        default=[],
        description="What an approval may be remembered as, the narrowest first; absent if no rule "
        "would allow the call from now on.",
    )
    session_kept: bool = Field(
        default=True,
        description="False where the server keeps no session, so that `remember` cannot be "
        "`session`; else absent.",
    )
    asked_at: Timestamp
    expires_at: Timestamp | None = Field(description="Null: it waits without limit.")
    agent_name: str | None = Field(
        default=None, description="Whose call it is; absent where the session's own model calls."
    )
    agent_call_id: str | None = Field(
        default=None, description="Which run of the agent, as in its events; absent likewise."
    )
    elicitation: JSONObject | None = Field(
        default=None,
        description="Only where a tool that runs asks: `message`, and `requested_schema` (JSON "
        "Schema of the answer) or `url`. The answer is the `arguments` of the decision.",
        examples=[{"message": "Where to?", "requested_schema": {"type": "object"}}],
    )


class ConfirmationPageBody(ResponseModel):
    """Calls that wait for a decision, oldest first."""

    confirmations: list[OpenConfirmation]
    next_cursor: NextCursor = Field(
        description="The `cursor` of the next page; null on the last one."
    )


class DecisionOnRecord(ResponseModel):
    """A decision, or why there is none."""

    approved: bool
    reason: str | None = None
    arguments: Arguments | None = Field(
        default=None, description="Only where a person changed them."
    )
    code: str | None = Field(default=None, description="Only when nobody decided.")
    decided_by: str | None = Field(
        default=None,
        description="Name of a token, or `token`, `loopback`, `mcp`, `library` or `policy`; "
        "absent if nobody decided.",
        examples=["loopback"],
    )
    decided_at: Timestamp | None = None
    remember: str | None = None
    rule_id: RuleId | None = Field(
        default=None, description="The rule that decided, or that was kept."
    )


class RecordedConfirmation(ResponseModel):
    """What was asked, who decided, and what ran."""

    confirmation: OpenConfirmation
    decision: DecisionOnRecord
    ran: Arguments | None = Field(
        description="Arguments with which the tool ran; null if it did not run."
    )
    recorded_at: Timestamp


class ConfirmationHistory(ResponseModel):
    """What was decided, the latest first."""

    history: list[RecordedConfirmation]


class Rule(ResponseModel):
    """What happens to calls of a tool."""

    id: RuleId
    tool: str = Field(description="Name of the tool, or `*`.", examples=["write_file"])
    action: Literal["allow", "ask", "deny"]
    tool_source: str | None = Field(
        default=None, description="Only where it is for one source.", examples=["directory"]
    )
    arguments: dict[str, str] = Field(
        default={}, description="Patterns by the name of an argument.", examples=[_PATTERNS]
    )
    created_at: Timestamp | None = None
    created_by: str | None = Field(default=None, examples=["loopback"])
    session_id: SessionId | None = Field(
        default=None, description="Only where it holds in one session."
    )


class RuleList(ResponseModel):
    """The rules, as far as they can be read."""

    policies: list[Rule]
    problems: list[str] = Field(
        description="Why rules cannot be read; every call is asked about then.", examples=[[]]
    )


@router.get(
    "",
    response=ConfirmationPageBody,
    exclude_unset=True,
    summary="List the tool calls of all sessions that wait for a decision",
    openapi_extra=documented(errors.InvalidRequest, *STORE_ERRORS),
)
async def list_all_confirmations(  # noqa: PLR0917 - one for each parameter of the query
    request: HttpRequest,
    session_id: OfSession = None,
    agent: Annotated[str | None, Query(description="Only calls of the agent of this name.")] = None,
    tool: Annotated[str | None, Query(description="Only calls of the tool of this name.")] = None,
    older_than: Annotated[
        float | None, Query(ge=0, le=1e9, description="Seconds since it was asked, at least.")
    ] = None,
    limit: PageSize = PAGE,
    cursor: Cursor = None,
) -> dict[str, Any]:
    """Lists those of all server processes, and of runs that no process executes, oldest first."""
    chosen = ConfirmationFilter(
        session_id=session_id,
        agent=agent,
        tool=tool,
        older_than=None if older_than is None else timedelta(seconds=older_than),
    )
    page = await get_runtime().inbox.page(chosen, limit=limit, cursor=cursor)
    confirmations = [each.payload() for each in page.confirmations]
    return {"confirmations": confirmations, "next_cursor": page.next_cursor}


@router.get(
    "/events",
    response={200: None},
    summary="Follow what is asked, decided and expires, as server-sent events",
    openapi_extra=documented(*STORE_ERRORS, stream=confirmation_stream),
)
async def follow_confirmations(
    request: HttpRequest, session_id: OfSession = None
) -> EventStreamResponse:
    """The stream has what happens from now on: open it first, then list what waits.

    A reader that does not keep up is disconnected; it connects again and lists anew.
    """
    reader = await get_runtime().confirmation_feed.reader(session_id)
    return EventStreamResponse(reader, encode_changes)


@router.get(
    "/history",
    response=ConfirmationHistory,
    exclude_unset=True,
    summary="List what was decided, by whom, and what ran",
    openapi_extra=documented(errors.InvalidRequest, *STORE_ERRORS),
)
async def read_confirmation_history(
    request: HttpRequest,
    limit: PageSize = PAGE,
    before: Annotated[
        str | None,
        Query(max_length=512, description="The last `confirmation_id` of the page before."),
    ] = None,
) -> JSONObject:
    """The latest first, also what rules have decided. The oldest entries are forgotten.

    Of long arguments only the beginning is kept, with a note of the length.
    """
    records = await get_runtime().inbox.history(limit=limit, before=before)
    return {"history": [record.payload() for record in records]}


@router.post(
    "/{confirmation_id}",
    response=Confirmed,
    exclude_unset=True,
    summary="Allow or deny a tool call of any session",
    openapi_extra=documented(*DECISION_ERRORS),
)
async def decide_confirmation(
    request: HttpRequest, confirmation_id: ConfirmationId, payload: DecideRequest
) -> JSONObject:
    """The first decision counts, at whichever process it arrives.

    Arguments that do not fit the tool, and patterns that do not fit the call, are refused with 422,
    and the confirmation stays open.
    """
    if payload.confirmation_id not in (None, confirmation_id):
        raise InvalidRequest("The confirmation_id of the body is another one than in the path.")
    return await get_runtime().inbox.decide(confirmation_id, **payload.as_options())


@rules_router.get(
    "",
    response=RuleList,
    exclude_unset=True,
    operation_id="listPolicies",
    summary="List the rules that decide about tool calls",
    openapi_extra=documented(errors.SessionNotFound),
)
async def list_rules(request: HttpRequest, session_id: RuleSession = None) -> JSONObject:
    """Lists those of `policies.json`, then those of the session that is named."""
    places = await get_runtime().inbox.rules(session_id)
    return {
        "policies": [rule.payload() for place in places for rule in place.rules],
        "problems": [place.problem for place in places if place.problem is not None],
    }


@rules_router.delete(
    "/{rule_id}",
    response={204: None},
    operation_id="deletePolicy",
    summary="Remove a rule",
    openapi_extra=documented(
        errors.PolicyNotFound,
        errors.SessionNotFound,
        errors.SessionUnreadable,
        *STORE_ERRORS,
        errors.StorageError,
    ),
)
async def delete_rule(
    request: HttpRequest, rule_id: RuleId, session_id: RuleSession = None
) -> None:
    """Removes a rule of `policies.json`, or of the session that is named.

    The next call follows the change.
    """
    await get_runtime().inbox.remove_rule(rule_id, session_id)
