"""Every error that the server names, with its code and status.

MochiError
 ├─ SessionNotFound            404  SESSION_NOT_FOUND
 ├─ SessionBusy                409  SESSION_BUSY
 ├─ SessionExists              409  SESSION_EXISTS
 ├─ SessionUnreadable          500  SESSION_UNREADABLE
 ├─ StorageError               507  STORAGE_ERROR
 ├─ EmptyHistory               400  EMPTY_HISTORY
 ├─ InvalidMessageIndex        400  INVALID_MESSAGE_INDEX
 ├─ ContextOverflow            413  CONTEXT_OVERFLOW
 ├─ ModelNotFound              404  MODEL_NOT_FOUND
 ├─ ThinkingNotSupported       400  THINKING_NOT_SUPPORTED
 ├─ ToolsNotSupported          400  TOOLS_NOT_SUPPORTED
 ├─ SummaryModelRequired       422  SUMMARY_MODEL_REQUIRED
 ├─ ToolNotFound               404  TOOL_NOT_FOUND
 ├─ ToolExecutionFailed        500  TOOL_EXECUTION_FAILED
 ├─ ToolExecutionDenied        403  TOOL_EXECUTION_DENIED
 ├─ ToolConfirmationTimeout    408  TOOL_CONFIRMATION_TIMEOUT
 ├─ ConfirmationNotFound       404  CONFIRMATION_NOT_FOUND
 ├─ ConfirmationUnavailable    503  CONFIRMATION_UNAVAILABLE
 ├─ AgentNotFound              404  AGENT_NOT_FOUND
 ├─ AgentInvalid               422  AGENT_INVALID
 ├─ PromptNotFound             404  PROMPT_NOT_FOUND
 ├─ PromptExists               409  PROMPT_EXISTS
 ├─ ProviderError              502  PROVIDER_ERROR
 │   ├─ OllamaError            502  OLLAMA_ERROR
 │   ├─ ProviderUnreachable    502  PROVIDER_UNREACHABLE
 │   │   └─ OllamaUnreachable  502  OLLAMA_UNREACHABLE
 │   └─ ProviderBusy           503  PROVIDER_BUSY (Retry-After)
 ├─ ProviderNotConfigured      424  PROVIDER_NOT_CONFIGURED
 ├─ InvalidRequest             422  VALIDATION_ERROR
 ├─ InvalidJSON                400  INVALID_JSON
 ├─ PayloadTooLarge            413  PAYLOAD_TOO_LARGE
 ├─ InvalidHTTP                400  INVALID_HTTP
 ├─ HeadersTooLarge            431  HEADERS_TOO_LARGE
 ├─ RequestTimeout             408  REQUEST_TIMEOUT
 ├─ ServerBusy                 503  SERVER_BUSY (Retry-After)
 ├─ OriginNotAllowed           403  ORIGIN_NOT_ALLOWED
 ├─ HostNotAllowed             403  HOST_NOT_ALLOWED
 ├─ Unauthorized               401  UNAUTHORIZED
 ├─ MethodNotAllowed           405  METHOD_NOT_ALLOWED
 ├─ NotFound                   404  NOT_FOUND
 ├─ ShuttingDown               503  SHUTTING_DOWN
 └─ InternalError              500  INTERNAL_ERROR

The number is data for the edge that answers; nothing in the library reads it.
docs/reference/errors.md repeats this tree with what to do about each.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import JsonValue

JSONObject = dict[str, JsonValue]


class MochiError(Exception):
    """An error with a name that clients can rely on.

    The message is the class's ``template`` filled with the keyword fields, or the text given.
    ``details`` is JSON-able and free of secrets; the fields are in it.
    """

    code: ClassVar[str] = "INTERNAL_ERROR"
    status: ClassVar[int] = 500
    template: ClassVar[str] = "Unexpected server error."

    def __init__(
        self,
        message: str | None = None,
        *,
        details: JSONObject | None = None,
        retry_after: int | None = None,
        **fields: JsonValue,
    ) -> None:
        self.message = message if message is not None else self.template.format(**fields)
        self.details: JSONObject = {**fields, **(details or {})}
        self.retry_after = retry_after
        """Seconds after which trying again makes sense, if that is known; in the details too."""
        if retry_after is not None:
            self.details["retry_after"] = retry_after
        super().__init__(self.message)

    def as_json(self) -> JSONObject:
        """The body of the error: ``{"error": {"code", "message", "details"}}``."""
        return {
            "error": {"code": self.code, "message": self.message, "details": dict(self.details)}
        }


class InternalError(MochiError):
    """Something that we did not foresee; the log has the trace, the client has not."""


class SessionNotFound(MochiError):
    """No session has this id (or the id is malformed and was never looked up)."""

    code = "SESSION_NOT_FOUND"
    status = 404
    template = "Session with ID {session_id!r} not found."


class SessionBusy(MochiError):
    """Another turn of this session is running."""

    code = "SESSION_BUSY"
    status = 409
    template = "Session {session_id!r} is busy with another turn."


class SessionExists(MochiError):
    """A session of this id is there already; nothing was overwritten."""

    code = "SESSION_EXISTS"
    status = 409
    template = "Session with ID {session_id!r} exists already."


class SessionUnreadable(MochiError):
    """The session's file is there, but is not a session; it was left as it is."""

    code = "SESSION_UNREADABLE"
    status = 500
    template = "The file of session {session_id!r} cannot be read: {reason}"


class StorageError(MochiError):
    """The data folder refused a read or a write (full, read-only, …)."""

    code = "STORAGE_ERROR"
    status = 507
    template = "Session {session_id!r} cannot be stored: {reason}"


class EmptyHistory(MochiError):
    """Nothing to answer: the session has no user message."""

    code = "EMPTY_HISTORY"
    status = 400
    template = "Session {session_id!r} has no user message to answer."


class InvalidMessageIndex(MochiError):
    """The index is out of range, or not a user message."""

    code = "INVALID_MESSAGE_INDEX"
    status = 400
    template = "Message {index} of session {session_id!r} is not a user message."


class ContextOverflow(MochiError):
    """What must be sent is longer than the model's context window."""

    code = "CONTEXT_OVERFLOW"
    status = 413
    template = "The conversation does not fit into the context window of {model!r}."


class ModelNotFound(MochiError):
    """The provider does not have this model."""

    code = "MODEL_NOT_FOUND"
    status = 404
    template = "Model {model!r} is not available."


class ThinkingNotSupported(MochiError):
    """Thinking was asked for, and the model cannot think."""

    code = "THINKING_NOT_SUPPORTED"
    status = 400
    template = "Model {model!r} does not support thinking."


class ToolsNotSupported(MochiError):
    """The session offers tools, and its model cannot call any."""

    code = "TOOLS_NOT_SUPPORTED"
    status = 400
    template = "Model {model!r} cannot call tools. Choose another model, or take the tools away."


class SummaryModelRequired(MochiError):
    """No model that is known to this session can write its summary."""

    code = "SUMMARY_MODEL_REQUIRED"
    status = 422
    template = (
        "Model {model!r} cannot be trusted with summaries: name another one as `model`, or as "
        "`summary_model` of the session."
    )


class ToolNotFound(MochiError):
    """No tool has this name, or the session does not offer it."""

    code = "TOOL_NOT_FOUND"
    status = 404
    template = "There is no tool named {tool!r}."


class ToolExecutionFailed(MochiError):
    """A tool ran and failed; in a turn this is a result for the model, never its end."""

    code = "TOOL_EXECUTION_FAILED"
    status = 500
    template = "Tool {tool!r} failed: {reason}"


class ToolExecutionDenied(MochiError):
    """A person, or a rule, did not allow the call; in a turn a result for the model."""

    code = "TOOL_EXECUTION_DENIED"
    status = 403
    template = "The call of {tool!r} was denied."


class ToolConfirmationTimeout(MochiError):
    """Nobody decided in time."""

    code = "TOOL_CONFIRMATION_TIMEOUT"
    status = 408
    template = "Confirmation {confirmation_id!r} has expired."


class ConfirmationNotFound(MochiError):
    """Nothing of this session waits under this id; perhaps it was decided already."""

    code = "CONFIRMATION_NOT_FOUND"
    status = 404
    template = "No confirmation {confirmation_id!r} is pending in session {session_id!r}."


class ConfirmationUnavailable(MochiError):
    """Questions cannot be stored or decided now; in a turn the call is denied."""

    code = "CONFIRMATION_UNAVAILABLE"
    status = 503
    template = "Confirmations cannot be kept now: {reason}"


class AgentNotFound(MochiError):
    """No agent has this name."""

    code = "AGENT_NOT_FOUND"
    status = 404
    template = "There is no agent named {agent!r}."


class AgentInvalid(MochiError):
    """The agent is there, but cannot be used."""

    code = "AGENT_INVALID"
    status = 422
    template = "Agent {agent!r} cannot be used: {reason}"


class PromptNotFound(MochiError):
    """No system prompt file has this name."""

    code = "PROMPT_NOT_FOUND"
    status = 404
    template = "System prompt {filename!r} not found."


class PromptExists(MochiError):
    """A system prompt file of this name is there already."""

    code = "PROMPT_EXISTS"
    status = 409
    template = "System prompt {filename!r} exists already."


class ProviderError(MochiError):
    """The provider of the model answered with an error."""

    code = "PROVIDER_ERROR"
    status = 502
    template = "The model provider answered with an error."


class OllamaError(ProviderError):
    """Ollama answered with an error; the message has its own words."""

    code = "OLLAMA_ERROR"
    template = "Ollama answered with an error."


class ProviderUnreachable(ProviderError):
    """No connection to the provider, or it went silent for too long."""

    code = "PROVIDER_UNREACHABLE"
    template = "The model provider cannot be reached."


class OllamaUnreachable(ProviderUnreachable):
    """No connection to Ollama, or it went silent for too long."""

    code = "OLLAMA_UNREACHABLE"
    template = "Cannot connect to Ollama at {host}."


class ProviderBusy(ProviderError):
    """The provider is overloaded or limits the rate; try again later."""

    code = "PROVIDER_BUSY"
    status = 503
    template = "The model provider is busy."


class ProviderNotConfigured(MochiError):
    """The provider is known, but lacks what it needs (key, package, weights)."""

    code = "PROVIDER_NOT_CONFIGURED"
    status = 424
    template = "Provider {provider!r} is not configured."


class InvalidRequest(MochiError):
    """The request does not have the documented shape; details name each field."""

    code = "VALIDATION_ERROR"
    status = 422
    template = "The request is not valid."


class InvalidJSON(MochiError):
    """The body is not JSON at all."""

    code = "INVALID_JSON"
    status = 400
    template = "The request body is not valid JSON."


class PayloadTooLarge(MochiError):
    """The body is larger than MOCHI_MAX_BODY_MB."""

    code = "PAYLOAD_TOO_LARGE"
    status = 413
    template = "The request body is larger than {limit_mb} MB."


class InvalidHTTP(MochiError):
    """What came is no HTTP request."""

    code = "INVALID_HTTP"
    status = 400
    template = "Invalid HTTP request received."


class HeadersTooLarge(MochiError):
    """The first line and the headers of the request are too long."""

    code = "HEADERS_TOO_LARGE"
    status = 431
    template = "The headers of the request are larger than {limit_kib} KiB."


class RequestTimeout(MochiError):
    """The request did not arrive as a whole."""

    code = "REQUEST_TIMEOUT"
    status = 408
    template = "The request did not arrive within {seconds:g} seconds."


class ServerBusy(MochiError):
    """Too many large bodies, or connections of one address, are there at the same time."""

    code = "SERVER_BUSY"
    status = 503
    template = "The server has too much to read just now."


class OriginNotAllowed(MochiError):
    """A web page of another origin tried to use the server."""

    code = "ORIGIN_NOT_ALLOWED"
    status = 403
    template = "Origin {origin!r} is not allowed. Add it to MOCHI_CORS_ORIGINS to allow it."


class HostNotAllowed(MochiError):
    """The Host header names a host that this server does not answer for."""

    code = "HOST_NOT_ALLOWED"
    status = 403
    template = "Host {host!r} is not allowed. Add it to MOCHI_ALLOWED_HOSTS to allow it."


class Unauthorized(MochiError):
    """MOCHI_API_TOKEN is set, and the request does not carry it."""

    code = "UNAUTHORIZED"
    status = 401
    template = "A valid 'Authorization: Bearer' token is required."


class MethodNotAllowed(MochiError):
    """The path exists, but not with this method."""

    code = "METHOD_NOT_ALLOWED"
    status = 405
    template = "Method {method} is not allowed here."


class NotFound(MochiError):
    """No route has this path."""

    code = "NOT_FOUND"
    status = 404
    template = "Nothing is at {path!r}."


class ShuttingDown(MochiError):
    """The server is stopping and takes no new turns."""

    code = "SHUTTING_DOWN"
    status = 503
    template = "The server is shutting down."
