"""The Ollama of the tests, against what a real one was recorded to say."""

from __future__ import annotations

import json
from typing import Any

import aiohttp
import pytest

from tests.support.fake_ollama import FIXTURES, default_models
from tests.support.ollama.answers import as_go_reads, encoded
from tests.support.ollama.chat import CREATED, called, last_line, line
from tests.support.ollama.models import FakeModel
from tests.support.ollama.rules import check_host, check_origin

HI = [{"role": "user", "content": "Hi"}]
LONG = [{"role": "user", "content": "four" * 7901}]


def chat(model: str = "qwen3:14b", **fields: Any) -> tuple[str, str, Any]:
    return "POST", "/api/chat", {"model": model, "messages": HI, **fields}


ASKED: dict[str, tuple[str, str, Any]] = {
    "root": ("GET", "/", None),
    "version": ("GET", "/api/version", None),
    "ps_empty": ("GET", "/api/ps", None),
    "done_load": chat(messages=[]),
    "done_unload": chat(messages=[], keep_alive=0),
    "show_no_name": ("POST", "/api/show", {}),
    "err_model_required": ("POST", "/api/chat", {"messages": HI}),
    "err_no_tools": chat("gemma3:4b", tools=[{"type": "function"}]),
    "err_no_thinking": chat("gemma3:4b", think=True),
    "err_no_chat": chat("nomic-embed-text"),
    "err_bad_think": chat(think="xhigh"),
    "err_missing_body": ("POST", "/api/chat", b""),
    "err_bad_json": ("POST", "/api/chat", b'{"model": }'),
    "err_bad_keep_alive": chat(keep_alive="300"),
    "err_bad_option": chat(options={"num_ctx": "8192"}),
    "err_ctx_native": chat(messages=LONG, truncate=False, options={"num_ctx": 4096}),
    "err_forbidden_host": ("GET", "/api/tags", {"Host": "evil.example"}),
    "err_no_route": ("GET", "/api/nope", None),
    "err_method": ("GET", "/api/chat", None),
}
"""Requests that are answered as recorded."""

MISSING = {
    "err_model_missing": chat("nope"),
    "err_invalid_model_name": chat("no name"),
    "show_missing": ("POST", "/api/show", {"model": "nope"}),
}
"""The same, where not every name is a model."""


async def ask(url: str, method: str, path: str, body: Any) -> tuple[int, str | None, str]:
    """Status, content type, body."""
    headers = body if method == "GET" else {}
    data = body if isinstance(body, bytes) or method == "GET" else json.dumps(body)
    async with aiohttp.ClientSession() as http:
        sent = None if method == "GET" else data
        async with http.request(method, url + path, data=sent, headers=headers) as found:
            return found.status, found.headers.get("Content-Type"), await found.text()


def recorded(name: str) -> tuple[int, str | None, str]:
    found = FIXTURES[name]
    return found["status"], found["headers"].get("Content-Type"), found["body"]


def undated(text: str) -> str:
    """Without the moment, which no two answers share."""
    return json.dumps(json.loads(text) | {"created_at": ""}) if "created_at" in text else text


@pytest.mark.parametrize("name", sorted(ASKED))
async def test_an_answer_is_the_recorded_one(ollama_url, name):
    method, path, body = ASKED[name]
    status, kind, text = recorded(name)
    found = await ask(ollama_url, method, path, body)
    assert (*found[:2], undated(found[2])) == (status, kind, undated(text))


@pytest.mark.parametrize("name", sorted(MISSING))
async def test_a_model_that_is_not_there_is_refused_as_recorded(ollama_url, name):
    assert await ask(ollama_url, *MISSING[name]) == recorded(name)


def without(entry: dict[str, Any], *keys: str) -> list[tuple[str, Any]]:
    """The entry in its order."""
    return [(key, value) for key, value in entry.items() if key not in keys]


def test_models_are_listed_as_recorded():
    cloud = FakeModel(
        "gpt-oss:120b-cloud",
        capabilities=["completion", "thinking", "tools"],
        remote_host="https://ollama.com:443",
        size=384,
    )
    found = [*default_models(), cloud]
    for model, entry in zip(found, json.loads(FIXTURES["tags"]["body"])["models"], strict=True):
        theirs = ("digest", *(("details", "capabilities") if model is cloud else ()))
        assert without(model.listed(), *theirs) == without(entry, *theirs)
        assert len(model.digest) == len(found[0].digest) == 64
    [old] = json.loads(FIXTURES["tags_legacy"]["body"])["models"]
    assert without(found[0].listed(new=False), "digest") == without(old, "digest")


def test_loaded_models_are_told_of_as_recorded():
    model = FakeModel("qwen3:14b", size=11_476_198_565, loaded=8192)
    [entry] = json.loads(FIXTURES["ps"]["body"])["models"]
    assert without(model.running(), "digest") == without(entry, "digest")


@pytest.mark.parametrize(("name", "number"), [("show", 0), ("show_embedding", 2)])
def test_a_model_is_shown_as_recorded(name, number):
    shown, entry = default_models()[number].shown(), json.loads(FIXTURES[name]["body"])
    assert [key for key in entry if key in shown] == list(shown)
    about = ("details", "capabilities")
    assert [shown[key] for key in about] == [entry[key] for key in about]
    shared = shown["model_info"].keys() & entry["model_info"].keys()
    assert {key: shown["model_info"][key] for key in shared} == {
        key: entry["model_info"][key] for key in shared
    }
    assert f"{shown['details']['family']}.context_length" in shared


@pytest.mark.parametrize(
    "name",
    [
        *("plain", "thinking", "tool_two", "tool_one_in_final"),
        *("html_escaped", "unicode", "ls_in_content", "done_length", "done_no_reason", "empty"),
    ],
)
def test_lines_are_written_as_recorded(name):
    for segment in FIXTURES[name]["segments"]:
        theirs = json.loads(segment["data"])
        message = {key: value for key, value in theirs["message"].items() if key != "role"}
        if "tool_calls" in message:
            message["tool_calls"] = [
                called(**call["function"], call_id=call.get("id")) for call in message["tool_calls"]
            ]
        ours = line(theirs["model"], message)
        if theirs["done"]:
            counts = {
                key: value for key, value in theirs.items() if key.startswith(("e", "p", "l", "t"))
            }
            ours = last_line(theirs["model"], message, theirs.get("done_reason"), counts)
        assert encoded(ours).decode() == segment["data"].replace(theirs["created_at"], CREATED)


UNREADABLE: list[dict[str, Any]] = [
    {"messages": [{"role": "user", "content": []}]},
    {"messages": ["Hi"]},
    {"messages": "Hi"},
    {"messages": [{"role": "user", "content": "Hi", "images": ["data:image/png;base64,AA"]}]},
    {"messages": [{"role": "assistant", "tool_calls": [{"function": {"arguments": "{}"}}]}]},
    {"stream": "yes"},
    {"think": 1},
    {"keep_alive": "soon"},
    {"keep_alive": "3 days"},
    {"keep_alive": True},
    {"options": []},
]
WRONG: list[dict[str, Any]] = [
    {"options": {"temperature": True}},
    {"options": {"stop": [1]}},
    {"options": {"use_mmap": 1}},
    {"format": "yaml"},
]
TAKEN: list[dict[str, Any]] = [
    {"keep_alive": "1h30m"},
    {"keep_alive": "-1m"},
    {"keep_alive": -1},
    {"keep_alive": "1.5h"},
    {"think": "max"},
    {"format": ""},
    {"options": {"num_ctx": 8192.0, "stop": ["x"], "mine": "object"}},
    {"messages": [{"role": "user", "content": "Hi", "images": ["AAAA", "AA=="]}]},
    {"anything": 1},
]


@pytest.mark.parametrize(
    ("status", "key", "cases"),
    [(400, "error", UNREADABLE), (500, "error", WRONG), (200, "done", TAKEN)],
    ids=["unreadable", "wrong", "taken"],
)
async def test_fields_are_taken_and_refused_as_a_real_one_does(ollama_url, status, key, cases):
    """What Go cannot read is a bad request; wrong options are errors of the server."""
    for fields in cases:
        found, _, text = await ask(ollama_url, *chat(**{"stream": False, **fields}))
        assert (found, key in json.loads(text)) == (status, True), (fields, text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "unexpected EOF"),
        ('{"a": "b', "unexpected EOF"),
        ('{"a": 1,}', "invalid character '}' looking for beginning of object key string"),
        ("[1, ]", "invalid character ']' looking for beginning of value"),
        ("[" * 100_000, "exceeded max depth"),
    ],
)
def test_broken_json_is_refused_in_the_words_of_go(text, said):
    with pytest.raises(ValueError, match=r"^") as raised:
        as_go_reads(text)
    assert str(raised.value) == said


@pytest.mark.parametrize(
    "host",
    [
        *("localhost", "localhost:11434", "127.0.0.1:11434", "[::1]:11434", "192.168.0.7", ""),
        *("host.docker.internal:11434", "my.localhost", "printer.local", "0.0.0.0:1"),
    ],
)
def test_hosts_of_this_machine_are_served(host):
    check_host(host)


@pytest.mark.parametrize("host", ["example.com", "localhost.example.com:80", "8.8.8.8", "local"])
def test_other_hosts_are_refused(host):
    with pytest.raises(Exception, match="403"):
        check_host(host)


def test_pages_of_this_machine_may_ask_and_others_may_not():
    for origin in ("http://localhost:3000", "https://127.0.0.1", "app://x", "http://here:1", None):
        check_origin(origin, "here:1")
    for origin in ("https://example.com", "http://localhost.example.com", "null"):
        with pytest.raises(Exception, match="403"):
            check_origin(origin, "here:1")
