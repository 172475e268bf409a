"""What a refusal of Ollama is taken for, and which of its words reach a client."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import orjson
import pytest

from mochi_server.errors import MochiError
from mochi_server.ollama import AsyncOllamaClient, OllamaClient
from mochi_server.ollama.failures import failure_of_answer
from mochi_server.protocol.completions import ModelRequest
from mochi_server.providers.ollama.provider import OllamaProvider
from tests.support.fake_ollama import FakeOllama
from tests.support.turns import bench, kinds, text_of

JSON = "application/json; charset=utf-8"
STRANGER = "request (10512 tokens) exceeds the available context size (7424 tokens), try"
CRASH = (
    "an error was encountered while running the model: error: the secret of another person\n"
    f"send_error: task id = 7, error: {STRANGER}\nGGML_ASSERT(false) failed"
)
GONE = f"llama runner process no longer running: 2 error: {STRANGER}"
NATIVE = (
    '{"error":{"code":400,"message":"request (9100 tokens) exceeds the available context size'
    ' (8192 tokens), try increasing it","type":"exceed_context_size_error",'
    '"n_prompt_tokens":9100,"n_ctx":8192}}'
)
MESSAGES = [{"role": "user", "content": "hi"}]


def body(text: str) -> bytes:
    return orjson.dumps({"error": text})


async def error_of(ollama: FakeOllama, status: int, text: str) -> MochiError:
    ollama.play_body(body(text), status=status, content_type=JSON)
    return await refusal(ollama)


async def refusal(ollama: FakeOllama) -> MochiError:
    provider = OllamaProvider("ollama", host=ollama.url)
    try:
        with pytest.raises(MochiError) as caught:
            async for _ in provider.stream(ModelRequest(model="qwen3:14b", messages=MESSAGES)):
                pass
    finally:
        await provider.aclose()
    return caught.value


@pytest.mark.parametrize("text", [CRASH, GONE, STRANGER, NATIVE])
async def test_a_failure_of_the_server_is_never_an_overflow(ollama: FakeOllama, text: str) -> None:
    assert (await error_of(ollama, 500, text)).code == "OLLAMA_ERROR"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("the input length exceeds the context length", "CONTEXT_OVERFLOW"),
        ("the prompt is longer than the context length currently available", "CONTEXT_OVERFLOW"),
        (STRANGER, "CONTEXT_OVERFLOW"),
        (NATIVE, "CONTEXT_OVERFLOW"),
        (f"invalid format: {STRANGER}", "OLLAMA_ERROR"),
        ("unknown tool: exceed_context_size_error", "OLLAMA_ERROR"),
    ],
)
async def test_an_overflow_is_a_400_that_begins_so_or_has_the_type(
    ollama: FakeOllama, text: str, code: str
) -> None:
    assert (await error_of(ollama, 400, text)).code == code


@pytest.mark.parametrize("text", [CRASH, GONE])
async def test_what_a_dead_runner_has_logged_stays_with_the_operator(
    ollama: FakeOllama, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Its last lines are of any request, of anybody's."""
    caplog.set_level("INFO", "mochi_server.ollama")
    error = await error_of(ollama, 500, text)
    assert error.message == (
        f"{text.partition(':')[0]}: a text did not fit into the context window."
        " The log of Ollama says more."
    )
    assert error.details == {"status": 500}
    assert text in caplog.text


MEMORY = "out of memory, of which a smaller model or context window needs less"


@pytest.mark.parametrize(
    ("log", "cause"),
    [
        ("CUDA error: out of memory", f"CUDA error: {MEMORY}"),
        ("cudaMalloc failed: out of memory\nsecret", f"CUDA error: {MEMORY}"),
        ("ROCm error: out of memory", f"ROCm error: {MEMORY}"),
        ("ggml_metal_graph: error: Insufficient Memory (00000008)", f"Metal error: {MEMORY}"),
        ("vk::Device::allocateMemory: ErrorOutOfDeviceMemory", MEMORY),
        ("secret: unable to allocate CPU buffer", MEMORY),
        ("signal: killed", MEMORY),
        ("CUDA error: an illegal memory access was encountered, secret", "CUDA error"),
        ("CUDA error: no kernel image", "CUDA error: this GPU or its driver is not supported"),
        ("unexpected EOF of a secret", None),
    ],
)
@pytest.mark.parametrize("is_line", [True, False])
async def test_a_known_cause_of_a_dead_runner_is_named_in_words_of_ours(
    ollama: FakeOllama, log: str, cause: str | None, is_line: bool
) -> None:
    text = f"an error was encountered while running the model: {log}"
    if is_line:
        ollama.reply(["The"], error=text)
        error = await refusal(ollama)
    else:
        error = await error_of(ollama, 500, text)
    head = text.partition(":")[0]
    known = f"{head}: {cause}. The log of Ollama says more."
    assert error.message == (known if cause else f"{head}. The log of Ollama says why.")


@pytest.mark.parametrize("in_mid_reply", [True, False])
async def test_a_crash_is_not_tried_again_with_a_larger_window(
    tmp_path: Path, ollama: FakeOllama, in_mid_reply: bool
) -> None:
    """Memory may have been the reason."""
    async with bench(tmp_path, ollama) as engine:
        if in_mid_reply:
            ollama.reply(["The"], error=CRASH)
        else:
            ollama.play_body(body(CRASH), status=500, content_type=JSON)
        session = await engine.session()
        events = await engine.turn(session)
        assert kinds(events)[-2:] == ["error", "done"]
        assert text_of(events) == ("The" if in_mid_reply else "")
        error = events[-2].payload()
        assert error["code"] == "OLLAMA_ERROR"
        shown = orjson.dumps([event.payload() for event in events]).decode()
        assert "secret" not in shown
        assert "10512" not in shown
        assert "secret" not in engine.path(session).read_text("utf-8")
        assert len(ollama.chats) == 1


async def test_the_clients_of_the_library_keep_a_strangers_words_to_themselves(
    ollama: FakeOllama,
) -> None:
    def sync_chat() -> None:
        with OllamaClient(ollama.url) as client:
            client.chat("qwen3:14b", MESSAGES)

    for _ in range(2):
        ollama.play_body(body(CRASH), status=500, content_type=JSON)
    client = AsyncOllamaClient(ollama.url)
    for call in (client.chat("qwen3:14b", MESSAGES), asyncio.to_thread(sync_chat)):
        with pytest.raises(MochiError) as caught:
            await call
        assert caught.value.code == "OLLAMA_ERROR"
        assert "secret" not in caught.value.message
    await client.aclose()


@pytest.mark.parametrize("operation", ["inference is", "model details are"])
async def test_a_cloud_model_while_the_cloud_is_off_says_what_to_do(
    ollama: FakeOllama, operation: str
) -> None:
    text = f"ollama cloud is disabled: remote {operation} unavailable"
    error = await error_of(ollama, 403, text)
    assert error.code == "OLLAMA_ERROR"
    assert error.message.startswith(text)
    assert "Choose a model that runs on this machine" in error.message
    assert "OLLAMA_NO_CLOUD" in error.message


async def test_of_a_long_refusal_no_more_than_its_beginning_reaches_a_client(
    ollama: FakeOllama,
) -> None:
    deep: Any = 1
    for _ in range(900):
        deep = [deep]
    for words in (
        "x" * 10**6,
        {"message": "x", "type": deep, "n_x": deep, "n_ctx": deep},
        {"message": "x", "type": "y" * 10**6, "n_x": "z" * 10**6},
    ):
        ollama.play_body(json.dumps({"error": words}).encode(), status=500, content_type=JSON)
        error = await refusal(ollama)
        assert error.code == "OLLAMA_ERROR"
        assert len(orjson.dumps([error.message, error.details])) < 3000


@pytest.mark.parametrize("digits", [7, 300, 5000])
async def test_a_wait_of_thousands_of_digits_is_an_answer_of_a_busy_server(digits: int) -> None:
    """Python refuses to read so many, and JSON has no such number."""
    error = failure_of_answer(429, body("busy"), model="m", host="h", retry_after="9" * digits)
    assert error.code == "PROVIDER_BUSY"
    assert orjson.loads(orjson.dumps(error.details))["retry_after"] == 999_999
