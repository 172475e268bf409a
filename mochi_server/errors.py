"""Every error that the server names, with its code and status.

docs/reference/errors.md has their tree, and what to do about each. The status is for the edge that
answers; nothing in the library reads it.
"""

from __future__ import annotations

import errno
import re
from typing import ClassVar

from pydantic import JsonValue

JSONObject = dict[str, JsonValue]

OUTAGE_RETRY_SECONDS = 3
"""When it makes sense to try again where a storage is away."""


class MochiError(Exception):
    """An error with a name that clients can rely on.

    The message is the class's ``template`` filled with the keyword fields, or the text given.
    ``details`` is JSON-able and free of secrets; the fields are in it.
    """

    code: ClassVar[str] = "INTERNAL_ERROR"
    status: ClassVar[int] = 500
    template: ClassVar[str] = "Unexpected server error."
    classes_by_code: ClassVar[dict[str, type[MochiError]]] = {}

    def __init_subclass__(cls, code: str | None = None, status: int | None = None) -> None:
        """Set the code and the status of a class; without them it has those of its base."""
        super().__init_subclass__()
        cls.code, cls.status = code or cls.code, status or cls.status
        if code is not None:
            MochiError.classes_by_code.setdefault(code, cls)

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
        """Return the body ``{"error": {"code", "message", "details"}}``."""
        return {
            "error": {"code": self.code, "message": self.message, "details": dict(self.details)}
        }


def error_of(code: str, message: str, details: JSONObject) -> MochiError:
    """Return an error that another process has written as JSON.

    A code that is not known here, as of another version or an extension, stays what it is.
    """
    cls = MochiError.classes_by_code.get(code, MochiError)
    error = cls.__new__(cls)
    if error.code != code:
        error.code = code  # type: ignore[misc] # only this one's
    seconds = details.get("retry_after")
    retry_after = seconds if isinstance(seconds, int) else None
    MochiError.__init__(error, message, details=details, retry_after=retry_after)
    return error


class InternalError(MochiError, code="INTERNAL_ERROR"):
    """Something that we did not foresee; the log has the trace, the client has not."""


class SessionNotFound(MochiError, code="SESSION_NOT_FOUND", status=404):
    """No session has this id (or the id is malformed and was never looked up)."""

    template = "Session with ID {session_id!r} not found."


class AttachmentNotFound(MochiError, code="ATTACHMENT_NOT_FOUND", status=404):
    """No message of the session has such an attachment."""

    template = "Session {session_id!r} has no attachment {attachment_id!r}."


class AttachmentTooLarge(MochiError, code="ATTACHMENT_TOO_LARGE", status=413):
    """What is to be attached to a message is longer than an attachment may be."""

    template = "The attachment {name!r} is larger than {limit_bytes:,} bytes."


class AttachmentUnsupported(MochiError, code="ATTACHMENT_UNSUPPORTED", status=415):
    """What is to be attached to a message cannot be given to the model."""

    template = "The attachment {name!r} cannot be used: {reason}."


class SessionBusy(MochiError, code="SESSION_BUSY", status=409):
    """Another turn of this session is running."""

    template = "Session {session_id!r} is busy with another turn."


class RunNotFound(MochiError, code="RUN_NOT_FOUND", status=404):
    """No run has this id, or it has ended too long ago."""

    template = "Run {run_id!r} not found."


class RunInterrupted(MochiError, code="RUN_INTERRUPTED", status=503):
    """The process that executed the run has died; what it had said is kept."""

    template = "The process that executed run {run_id!r} has ended. What it had said is stored."


class RunStopped(MochiError, code="RUN_STOPPED", status=409):
    """A person has stopped the run before its answer was complete; what came is kept."""

    template = "Run {run_id!r} was stopped. What the model had said is stored."


class SessionExists(MochiError, code="SESSION_EXISTS", status=409):
    """A session of this id is there already; nothing was overwritten."""

    template = "Session with ID {session_id!r} exists already."


class SessionUnreadable(MochiError, code="SESSION_UNREADABLE", status=500):
    """The session's file is there, but is not a session; it was left as it is."""

    template = "The file of session {session_id!r} cannot be read: {reason}"


class StorageError(MochiError, code="STORAGE_ERROR", status=507):
    """A storage is there, and refused a read or a write: it is full or read-only."""

    template = "Session {session_id!r} cannot be stored: {reason}"

    @classmethod
    def because(
        cls, error: Exception, message: str | None = None, **fields: JsonValue
    ) -> StorageError:
        """Return the error for one of a disk, a database or Redis."""
        kind = cls if _refuses(error) else StorageUnavailable
        return kind(message or kind.template.format(**fields), details=fields)


_AWAY_ERRNOS = frozenset(
    {errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.ENOTCONN, errno.EHOSTDOWN}
    | {errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ECONNREFUSED, errno.ECONNRESET}
    | {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.EBUSY}
)
"""What a disk or a share says that may answer again: it is away, or the machine is busy."""

_REFUSALS = re.compile(
    r"maxmemory|read.?only|MISCONF|NOPERM|disk is full|no space left|is full|could not extend"
    r"|permission denied|unable to open database file",
    re.IGNORECASE,
)
"""In messages of databases and Redis that answer, and refuse a write."""


def _refuses(error: Exception) -> bool:
    """Return whether a storage answers, and refuses what was wanted until somebody changes that."""
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno not in _AWAY_ERRNOS
    return _REFUSALS.search(str(error)) is not None


class StorageUnavailable(StorageError, code="STORAGE_UNAVAILABLE", status=503):
    """A storage does not answer now: its disk, its database or its Redis is away."""

    def __init__(
        self,
        message: str | None = None,
        *,
        details: JSONObject | None = None,
        **fields: JsonValue,
    ) -> None:
        """Say when it may answer again."""
        retry_after = OUTAGE_RETRY_SECONDS if self.status == StorageUnavailable.status else None
        super().__init__(message, details=details, retry_after=retry_after, **fields)


class SpaceUsedUp(StorageError, code="SPACE_USED_UP", status=413):
    """There is as much of something as there may be."""

    template = "There is no room for this: {what} may have {limit_mb:,g} MB ({setting})."


class EmptyHistory(MochiError, code="EMPTY_HISTORY", status=400):
    """Nothing to answer: the session has no user message."""

    template = "Session {session_id!r} has no user message to answer."


class InvalidMessageIndex(MochiError, code="INVALID_MESSAGE_INDEX", status=400):
    """The index is out of range, or not a user message."""

    template = "Message {index} of session {session_id!r} is not a user message."


class MessageNotFound(MochiError, code="MESSAGE_NOT_FOUND", status=404):
    """No message of the session has this id."""

    template = "Session {session_id!r} has no message {message_id!r}."


class ContextOverflow(MochiError, code="CONTEXT_OVERFLOW", status=413):
    """What must be sent is longer than the model's context window."""

    template = "The conversation does not fit into the context window of {model!r}."


class ModelNotFound(MochiError, code="MODEL_NOT_FOUND", status=404):
    """The provider does not have this model."""

    template = "Model {model!r} is not available."


class ThinkingNotSupported(MochiError, code="THINKING_NOT_SUPPORTED", status=400):
    """Thinking was asked for, and the model cannot think."""

    template = "Model {model!r} does not support thinking."


class ImagesNotSupported(MochiError, code="IMAGES_NOT_SUPPORTED", status=400):
    """A message has an image, and the model cannot see any."""

    template = "Model {model!r} does not support images."


class ToolsNotSupported(MochiError, code="TOOLS_NOT_SUPPORTED", status=400):
    """The session offers tools, and its model cannot call any."""

    template = (
        "Model {model!r} cannot call tools. Choose another model, take the tools away, or let the "
        'system prompt describe them: "tool_mode": "prompted" in tool_settings or in a preset.'
    )


class EmbeddingsNotSupported(MochiError, code="EMBEDDINGS_NOT_SUPPORTED", status=400):
    """Embeddings were wanted from a provider that makes none."""

    template = "The provider {provider!r} makes no embeddings."


class ResponseFormatInvalid(MochiError, code="RESPONSE_FORMAT_INVALID", status=400):
    """The JSON schema of a request's response format cannot be used."""

    template = "{field}: {reason}."


class SummaryModelRequired(MochiError, code="SUMMARY_MODEL_REQUIRED", status=422):
    """No model that is known to this session can write its summary."""

    template = (
        "Model {model!r} cannot be trusted with summaries: name another one as `model`, or as "
        "`summary_model` of the session."
    )


class ToolNotFound(MochiError, code="TOOL_NOT_FOUND", status=404):
    """No tool has this name, or the session does not offer it."""

    template = "There is no tool named {tool!r}."


class ToolExecutionFailed(MochiError, code="TOOL_EXECUTION_FAILED", status=500):
    """A tool ran and failed; in a turn this is a result for the model, never its end."""

    template = "Tool {tool!r} failed: {reason}"


class ToolExecutionDenied(MochiError, code="TOOL_EXECUTION_DENIED", status=403):
    """A person, or a rule, did not allow the call; in a turn a result for the model."""

    template = "The call of {tool!r} was denied."


class ToolConfirmationTimeout(MochiError, code="TOOL_CONFIRMATION_TIMEOUT", status=408):
    """Nobody decided in time."""

    template = "Confirmation {confirmation_id!r} has expired."


class ConfirmationNotFound(MochiError, code="CONFIRMATION_NOT_FOUND", status=404):
    """Nothing of this session waits under this id; perhaps it was decided already."""

    template = "No confirmation {confirmation_id!r} is pending in session {session_id!r}."


class ConfirmationUnavailable(StorageUnavailable, code="CONFIRMATION_UNAVAILABLE"):
    """Questions cannot be stored or decided now; in a turn the call is denied."""

    template = "Confirmations cannot be kept now: {reason}"

    @classmethod
    def because(
        cls, error: Exception, message: str | None = None, **fields: JsonValue
    ) -> StorageError:
        kind = ConfirmationNotStored if _refuses(error) else ConfirmationUnavailable
        return kind(message or kind.template.format(**fields), details=fields)


class ConfirmationNotStored(ConfirmationUnavailable, code="CONFIRMATION_NOT_STORED", status=507):
    """Questions cannot be stored: the disk, or the database, is full or read-only."""


class PoliciesInvalid(ConfirmationUnavailable, code="POLICIES_INVALID", status=500):
    """The rules that are there cannot be understood; they were left as they are."""

    template = "Rules cannot be changed: {reason}"


class PolicyNotFound(MochiError, code="POLICY_NOT_FOUND", status=404):
    """No rule has this id, where it was looked for."""

    template = "There is no rule {rule_id!r}."


class McpServerNotFound(MochiError, code="MCP_SERVER_NOT_FOUND", status=404):
    """No MCP server has this name."""

    template = "There is no MCP server {server!r}."


class McpServerExists(MochiError, code="MCP_SERVER_EXISTS", status=409):
    """An MCP server of this name is configured already."""

    template = "There is an MCP server {server!r} already."


class McpServerFailed(MochiError, code="MCP_SERVER_FAILED", status=502):
    """The MCP server does not run, did not answer in time, or answered with an error."""

    template = "The MCP server {server!r} failed: {reason}"


class McpResourceNotFound(MochiError, code="MCP_RESOURCE_NOT_FOUND", status=404):
    """The MCP server has no such resource, or does not give it."""

    template = "The MCP server {server!r} has no resource {uri!r}: {reason}"


class McpServerInvalid(MochiError, code="MCP_SERVER_INVALID", status=400):
    """What is to be configured is no MCP server, or one that is not allowed."""

    template = "The MCP server {server!r} cannot be configured: {reason}"


class McpConfigUnavailable(MochiError, code="MCP_CONFIG_UNAVAILABLE", status=500):
    """The file of MCP servers cannot be understood or written; it was left as it is."""

    template = "MCP servers cannot be configured: {reason}"


class McpChangeNotAllowed(MochiError, code="MCP_CHANGE_NOT_ALLOWED", status=403):
    """MCP servers start programs, so without a token only this machine may change them."""

    template = (
        "Without MOCHI_API_TOKEN, MCP servers can be changed only from this machine, by "
        "http://localhost or http://127.0.0.1, and not through a proxy."
    )


class McpAuthorizationInvalid(MochiError, code="MCP_AUTHORIZATION_INVALID", status=400):
    """Nobody waits for what a browser has brought, or it came too late or twice."""

    template = "No MCP server waits for this authorization. Begin again from the server's address."


class AgentNotFound(MochiError, code="AGENT_NOT_FOUND", status=404):
    """No agent has this name."""

    template = "There is no agent named {agent!r}."


class AgentInvalid(MochiError, code="AGENT_INVALID", status=422):
    """The agent is there, but cannot be used."""

    template = "Agent {agent!r} cannot be used: {reason}"


class PresetNotFound(MochiError, code="PRESET_NOT_FOUND", status=404):
    """No preset has this name."""

    template = "There is no preset named {preset!r}."


class PresetInvalid(MochiError, code="PRESET_INVALID", status=422):
    """The preset is there, but cannot be used."""

    template = "Preset {preset!r} cannot be used: {reason}"


class PromptNotFound(MochiError, code="PROMPT_NOT_FOUND", status=404):
    """No system prompt has this name."""

    template = "System prompt {filename!r} not found."


class PromptInvalid(MochiError, code="PROMPT_INVALID", status=422):
    """The system prompt is there, but cannot be used."""

    template = "System prompt {filename!r} cannot be used: {reason}"


class PromptExists(MochiError, code="PROMPT_EXISTS", status=409):
    """A system prompt file of this name is there already."""

    template = "System prompt {filename!r} exists already."


class PromptArgumentsInvalid(MochiError, code="PROMPT_ARGUMENTS_INVALID", status=400):
    """The arguments are not those that the prompt of an MCP server takes."""

    template = "System prompt {filename!r} cannot be used with these arguments: {reason}."


class WorkspaceDisabled(MochiError, code="WORKSPACE_DISABLED", status=424):
    """Sessions have no folders of files."""

    template = "Sessions have no workspaces: MOCHI_WORKSPACE_ENABLED is not set."


class WorkspaceFileNotFound(MochiError, code="FILE_NOT_FOUND", status=404):
    """The workspace has no such file or folder."""

    template = "There is no file {file!r} in the workspace."


class WorkspaceFileRefused(MochiError, code="FILE_REFUSED", status=403):
    """The path leads out of the workspace, or to something that is no ordinary file."""

    template = "The file {file!r} is refused. {reason}."


class ProviderError(MochiError, code="PROVIDER_ERROR", status=502):
    """The provider of the model answered with an error."""

    template = "The model provider answered with an error."


class OllamaError(ProviderError, code="OLLAMA_ERROR"):
    """Ollama answered with an error; the message has its own words."""

    template = "Ollama answered with an error."


class ProviderUnreachable(ProviderError, code="PROVIDER_UNREACHABLE"):
    """No connection to the provider, or it went silent for too long."""

    template = "The model provider cannot be reached."


class OllamaUnreachable(ProviderUnreachable, code="OLLAMA_UNREACHABLE"):
    """No connection to Ollama, or it went silent for too long."""

    template = "Cannot connect to Ollama at {host}."


class ProviderBusy(ProviderError, code="PROVIDER_BUSY", status=503):
    """The provider is overloaded or limits the rate; try again later."""

    template = "The model provider is busy."


class ResponseFormatNotMet(ProviderError, code="RESPONSE_FORMAT_NOT_MET"):
    """The model's reply does not have the response format, nor has the one that repaired it."""

    template = "The reply of model {model!r} does not have the response format: {reason}."


class ProviderNotConfigured(MochiError, code="PROVIDER_NOT_CONFIGURED", status=424):
    """The provider is known, but lacks what it needs (key, package, weights)."""

    template = "Provider {provider!r} is not configured."


class McpNotInstalled(MochiError, code="MCP_NOT_INSTALLED", status=424):
    """The package that speaks MCP is not installed."""

    template = "MCP needs the package mcp: {command}"


class InvalidRequest(MochiError, code="VALIDATION_ERROR", status=422):
    """The request does not have the documented shape; details name each field."""

    template = "The request is not valid."


class InvalidJSON(MochiError, code="INVALID_JSON", status=400):
    """The body is not JSON at all."""

    template = "The request body is not valid JSON."


class CannotImport(MochiError, code="CANNOT_IMPORT", status=400):
    """A file, or a conversation in it, cannot be imported."""

    template = "{program}: {place}: {reason}"

    def __init__(self, reason: str, *, place: str = "", program: str = "") -> None:
        """Make the message of the program's name, the place and the reason.

        Args:
            reason: Why, for people.
            place: Where: a line, or a JSON pointer; in an archive behind the name of a file.
            program: Whose format it is.
        """
        self.reason, self.place = reason, place
        message = ": ".join(filter(None, (program, place, reason)))
        super().__init__(message, details={"program": program, "place": place, "reason": reason})


class PayloadTooLarge(MochiError, code="PAYLOAD_TOO_LARGE", status=413):
    """The body is larger than MOCHI_MAX_BODY_MB allows."""

    template = "The request body is larger than {limit_mb:g} MB."


class InvalidHTTP(MochiError, code="INVALID_HTTP", status=400):
    """What came is no HTTP request."""

    template = "Invalid HTTP request received."


class HeadersTooLarge(MochiError, code="HEADERS_TOO_LARGE", status=431):
    """The first line and the headers of the request are too long."""

    template = "The headers of the request are larger than {limit_kib} KiB."


class RequestTimeout(MochiError, code="REQUEST_TIMEOUT", status=408):
    """The request did not arrive as a whole."""

    template = "The request did not arrive within {seconds:g} seconds."


class ServerBusy(MochiError, code="SERVER_BUSY", status=503):
    """The server, or one caller, has as much at the same time as it may have."""

    template = "The server has too much to read just now."


class OriginNotAllowed(MochiError, code="ORIGIN_NOT_ALLOWED", status=403):
    """A web page of another origin tried to use the server."""

    template = "Origin {origin!r} is not allowed. Add it to MOCHI_CORS_ORIGINS to allow it."


class HostNotAllowed(MochiError, code="HOST_NOT_ALLOWED", status=403):
    """The Host header names a host that this server does not answer for."""

    template = "Host {host!r} is not allowed. Add it to MOCHI_ALLOWED_HOSTS to allow it."


class Unauthorized(MochiError, code="UNAUTHORIZED", status=401):
    """A token is demanded, and the request carries none that is accepted."""

    template = "A valid 'Authorization: Bearer' token is required."


class Forbidden(MochiError, code="FORBIDDEN", status=403):
    """The request's token lacks a right."""

    template = "The token of this request lacks the right {right!r}."


class MethodNotAllowed(MochiError, code="METHOD_NOT_ALLOWED", status=405):
    """The path exists, but not with this method."""

    template = "Method {method} is not allowed here."


class NotFound(MochiError, code="NOT_FOUND", status=404):
    """No route has this path."""

    template = "Nothing is at {path!r}."


class ShuttingDown(MochiError, code="SHUTTING_DOWN", status=503):
    """The server is stopping and takes no new turns."""

    template = "The server is shutting down."

    def __init__(self, message: str | None = None) -> None:
        """Say when another process, or the server after its restart, may answer."""
        super().__init__(message, retry_after=3)
