"""Every recorded exchange with an Ollama, and what it is to us."""

from __future__ import annotations

import pytest

from mochi_server.errors import MochiError
from mochi_server.protocol.completions import ContentDelta, Finish, ModelRequest, ThinkingDelta
from mochi_server.protocol.messages import ToolCall
from mochi_server.providers.ollama.provider import OllamaProvider
from tests.support.fake_ollama import FIXTURES

T, H = ContentDelta, ThinkingDelta
LOADED = 0.001334875
END = Finish(reason="stop", eval_count=282, prompt_eval_count=26, load_seconds=LOADED)
PARIS = ToolCall(id="call_a1b2c3d4", name="get_weather", arguments={"city": "Paris"})
LONDON_ARGUMENTS = {"city": "London", "unit": "C"}
NATIVE_IDS = ("fJ3kQ9xZ0aB1cD2eF3gH4iJ5kL6mN7oP", "gK4lR0yA1bC2dE3fG4hI5jK6lM7nO8pQ")


def call(identity: str, name: str = "get_weather", **arguments: str) -> ToolCall:
    return ToolCall(id=identity, name=name, arguments=arguments)


REPLIES = {
    "plain": [T("The capital"), T(" of France"), T(" is Paris."), END],
    "plain_nonstream": [T("The capital of France is Paris."), END],
    "html_escaped": [T("a < b && c > d"), END],
    "unicode": [T("héllo "), T("世界 👋"), END],
    "ls_in_content": [T("a\u2028b"), END],
    "thinking": [H("Okay, the user"), H(" asks about Paris."), T("Paris"), T("."), END],
    "tool_one": [PARIS, END],
    "tool_one_in_final": [call(NATIVE_IDS[0], city="Paris"), END],
    "tool_two": [PARIS, call("call_e5f6g7h8", **LONDON_ARGUMENTS), END],
    "tool_two_in_one_chunk": [PARIS, call("call_e5f6g7h8", **LONDON_ARGUMENTS), END],
    "tool_two_in_final": [
        call(NATIVE_IDS[0], city="Paris"),
        call(NATIVE_IDS[1], **LONDON_ARGUMENTS),
        END,
    ],
    "tool_no_args": [call("call_a1b2c3d4", "get_current_time"), END],
    "content_then_tool": [T("I'll check"), T(" the weather."), PARIS, END],
    "tool_then_content": [PARIS, T("Let me also say"), END],
    "empty": [Finish(reason="stop", eval_count=1, prompt_eval_count=26, load_seconds=LOADED)],
    "empty_no_counts": [Finish(reason="stop", load_seconds=5e-08)],
    "structured": [T('{"summary":"'), T('User asked.","topics":["python"]}'), END],
    "logprobs": [T("Hi"), END],
    "remote": [T("Hi"), END],
    "unknown_fields": [T("Hi"), END],
    "done_length": [
        T("Once upon a time"),
        Finish(reason="length", eval_count=282, prompt_eval_count=26, load_seconds=LOADED),
    ],
    "done_no_reason": [T("Hi"), END],
    "done_load": [Finish(reason="load")],
    "done_unload": [Finish(reason="unload")],
    "blank_line": [T("The"), END],
    "crlf": [T("The"), END],
    "no_final_newline": [T("The"), END],
}

SLOW = {
    "slow_first_byte": [T("Hi"), END],
    "slow_stream": [T("One"), T(" two"), T(" three"), END],
    "stall_during_tool_call": [
        T("Writing the file."),
        call("call_a1b2c3d4", "write_file", path="a", content="b"),
        END,
    ],
}
"""Played ten times as fast."""

OVERFLOW = "request (7905 tokens) exceeds the available context size (4096 tokens)"

ERRORS = {
    "err_model_missing": ("MODEL_NOT_FOUND", "model 'nope' not found"),
    "show_missing": ("MODEL_NOT_FOUND", "model 'nope:latest' not found"),
    "err_model_required": ("OLLAMA_ERROR", "model is required"),
    "show_no_name": ("OLLAMA_ERROR", "model is required"),
    "err_invalid_model_name": ("MODEL_NOT_FOUND", "invalid model name"),
    "err_no_tools": ("OLLAMA_ERROR", "gemma3:4b does not support tools"),
    "err_no_thinking": ("THINKING_NOT_SUPPORTED", '"gemma3:4b" does not support thinking'),
    "err_no_chat": ("OLLAMA_ERROR", '"nomic-embed-text" does not support chat'),
    "err_bad_think": ("OLLAMA_ERROR", 'invalid think value: "xhigh"'),
    "err_missing_body": ("OLLAMA_ERROR", "missing request body"),
    "err_bad_json": ("OLLAMA_ERROR", "invalid character '}'"),
    "err_bad_keep_alive": ("OLLAMA_ERROR", 'missing unit in duration "300"'),
    "err_bad_option": ("OLLAMA_ERROR", 'option "num_ctx" must be of type integer'),
    "err_busy": ("PROVIDER_BUSY", "maximum pending requests exceeded"),
    "err_canceled": ("OLLAMA_ERROR", "request canceled"),
    "err_load_failed": ("OLLAMA_ERROR", "unable to allocate CPU buffer"),
    "err_load_timeout": ("OLLAMA_ERROR", "timed out waiting for llama-server"),
    "err_no_memory_legacy": ("OLLAMA_ERROR", "more system memory (12.3 GiB)"),
    "err_incompatible": ("OLLAMA_ERROR", "incompatible with your version of Ollama"),
    "err_ctx_native": ("CONTEXT_OVERFLOW", OVERFLOW),
    "err_ctx_legacy": ("CONTEXT_OVERFLOW", "the input length exceeds the context length"),
    "err_no_user_query": ("OLLAMA_ERROR", "no user query found in messages"),
    "err_tool_parse": ("OLLAMA_ERROR", "error parsing tool call: raw="),
    "err_tool_schema": ("OLLAMA_ERROR", "JSON schema conversion failed"),
    "err_runner_gone": ("OLLAMA_ERROR", "model runner has unexpectedly stopped"),
    "err_cloud_unauthorized": ("OLLAMA_ERROR", "unauthorized (Ollama is not signed in"),
    "err_cloud_disabled": ("OLLAMA_ERROR", "ollama cloud is disabled"),
    "err_cloud_rate": ("PROVIDER_BUSY", "rate limit exceeded"),
    "err_cloud_gateway": ("OLLAMA_ERROR", "lookup ollama.com: no such host"),
    "err_forbidden_host": ("OLLAMA_UNREACHABLE", "does not accept requests for this host name"),
    "err_no_route": ("OLLAMA_ERROR", "does not answer as Ollama does (status 404)"),
    "err_method": ("OLLAMA_ERROR", "does not answer as Ollama does (status 405)"),
}
"""Before the first chunk."""

BROKEN = {
    "mid_error": (
        [T("The"), T(" capital")],
        "running the model. The log of Ollama says why.",
    ),
    "mid_error_tool_parse": ([H("I will write the file.")], "failed to parse JSON"),
    "drop_mid_line": ([T("The")], "the connection was lost"),
    "drop_between_lines": ([T("The"), T(" capital")], "the connection was lost"),
    "invalid_json_line": ([T("The")], "a line that is not JSON"),
    "non_object_line": ([T("The")], "a line that is not an object: []"),
    "root": ([], "ended within a line"),
    "version": ([], "version: 0.33.0"),
    "tags": ([], "models: "),
    "tags_legacy": ([], "models: "),
    "tags_empty": ([], "models: []"),
    "ps": ([], "models: "),
    "ps_empty": ([], "models: []"),
    "show": ([], "Apache License"),
    "show_embedding": ([], "nomic-bert"),
    "show_no_model_info": ([], "flux"),
}
"""Something other than a chunk, or an end that is none; what came before is kept."""

OTHERWISE_TESTED = {"tool_legacy_no_id", "stall_for_ever", "endless"}


@pytest.fixture
async def provider(ollama):
    made = OllamaProvider(
        "ollama", host=ollama.url, connect_timeout=30, first_byte_timeout=30, idle_timeout=30
    )
    yield made
    await made.aclose()


REQUEST = ModelRequest(model="qwen3:14b", messages=[{"role": "user", "content": "hi"}])


async def collect(provider):
    """All chunks, and the error at the end."""
    chunks = []
    try:
        async for chunk in provider.stream(REQUEST):
            chunks.append(chunk)  # noqa: PERF401 - those before the error count
    except MochiError as error:
        return chunks, error
    return chunks, None


def test_every_recorded_exchange_has_a_defined_outcome():
    assert {*REPLIES, *SLOW, *ERRORS, *BROKEN, *OTHERWISE_TESTED} == set(FIXTURES)


@pytest.mark.parametrize("name", sorted(REPLIES))
async def test_a_recorded_reply_becomes_its_chunks(ollama, provider, name):
    ollama.play(name)
    assert await collect(provider) == (REPLIES[name], None)


@pytest.mark.parametrize("name", sorted(SLOW))
async def test_a_pause_below_the_limit_changes_nothing(ollama, provider, name):
    ollama.play(name, speed=10)
    assert await collect(provider) == (SLOW[name], None)


@pytest.mark.parametrize("name", sorted(ERRORS))
async def test_a_recorded_refusal_has_its_code_and_ollamas_words(ollama, provider, name):
    ollama.play(name)
    chunks, error = await collect(provider)
    code, words = ERRORS[name]
    assert (chunks, error.code) == ([], code)
    assert words in error.message
    assert error.details["status"] == FIXTURES[name]["status"]
    assert "incomplete" not in error.details
    assert (error.retry_after is not None) == (code == "PROVIDER_BUSY")


@pytest.mark.parametrize("name", sorted(BROKEN))
async def test_a_reply_that_breaks_keeps_what_came_before(ollama, provider, name):
    ollama.play(name)
    chunks, error = await collect(provider)
    before, words = BROKEN[name]
    assert chunks == before
    assert (error.code, error.details["incomplete"]) == ("OLLAMA_ERROR", True)
    assert words in error.message
    assert len(error.message) < 500


async def test_a_call_without_an_id_gets_one(ollama, provider):
    ollama.play("tool_legacy_no_id")
    (made, end), error = await collect(provider)
    assert (made.name, made.arguments, end, error) == ("get_weather", {"city": "Paris"}, END, None)
    assert made.id.startswith("call_")


async def test_the_numbers_of_an_overflow_are_in_the_details(ollama, provider):
    ollama.play("err_ctx_native")
    _, error = await collect(provider)
    assert error.details == {
        "model": "qwen3:14b",
        "type": "exceed_context_size_error",
        "n_prompt_tokens": 7905,
        "n_ctx": 4096,
        "status": 400,
    }


async def test_the_place_to_sign_in_is_in_the_details(ollama, provider):
    ollama.play("err_cloud_unauthorized")
    _, error = await collect(provider)
    assert error.details["signin_url"].startswith("https://ollama.com/connect")
