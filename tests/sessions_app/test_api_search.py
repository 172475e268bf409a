"""``GET /sessions?query=`` and ``manage.py sessions search``."""

from __future__ import annotations

import io
import json

import pytest
from django.core.management import call_command

from mochi_project.runtime import get_runtime
from mochi_server.core.aio import in_thread
from mochi_server.protocol.messages import AssistantMessage, UserMessage
from sessions_app.answers import SessionLine, SessionList


@pytest.fixture
async def three(api):
    """Ids by what the sessions are about."""
    ids = {}
    for name, question in {
        "asyncio": "How do I use asyncio in Python?",
        "django": "Is Django faster than asyncio?",
        "tea": "Which tea is good?",
    }.items():
        ids[name] = await api.new_session(title=name if name == "django" else None)
        async with get_runtime().sessions.edit(ids[name]) as session:
            session.append(UserMessage(content=question), AssistantMessage(content="I think so."))
    return ids


async def search(api, **data):
    response = await api.client.get("/api/v1/sessions", data)
    assert response.status_code == 200, response.content
    return response.json()


def ids_of(body):
    return [each["session_id"] for each in body["sessions"]]


async def test_a_query_finds_sessions_with_passages(api, three):
    body = await search(api, query="asyncio python")
    assert list(body) == ["sessions", "problems", "next_cursor", "indexing"]
    (entry,) = body["sessions"]
    assert entry["session_id"] == three["asyncio"]
    assert entry["preview"] == "How do I use asyncio in Python?"
    assert entry["found_in"] == "user"
    assert [part["text"] for part in entry["snippet"] if part["match"]] == ["asyncio", "Python"]
    assert body["indexing"] is None


async def test_lists_which_are_sent_encoded_have_the_keys_that_are_declared(api, three):
    declared = set(SessionLine.model_fields)
    for query, only_here in (("", set()), ("?query=asyncio", {"score", "found_in", "snippet"})):
        response = await api.get(f"/sessions{query}")
        SessionList.model_validate_json(response.content)
        lines = response.json()["sessions"]
        assert lines
        for line in lines:
            assert set(line) == declared - {"score", "found_in", "snippet"} | only_here


async def test_filters_and_pages_work_with_a_query(api, three):
    await api.patch(f"/sessions/{three['django']}", {"archived": True, "tags": ["web"]})
    assert ids_of(await search(api, query="asyncio", archived="false")) == [three["asyncio"]]
    assert ids_of(await search(api, query="asyncio", tag="web")) == [three["django"]]
    first = await search(api, query="asyncio", limit=1)
    second = await search(api, query="asyncio", limit=1, cursor=first["next_cursor"])
    assert {*ids_of(first), *ids_of(second)} == {three["asyncio"], three["django"]}
    assert second["next_cursor"] is None


async def test_a_cursor_of_the_list_is_none_of_the_search(api, three):
    page = await search(api, limit=1)
    response = await api.client.get(
        "/api/v1/sessions", {"query": "asyncio", "cursor": page["next_cursor"]}
    )
    assert response.status_code == 422
    assert response.json()["error"]["code"] == "VALIDATION_ERROR"


@pytest.mark.parametrize("query", ["", "\0", '"', "NEAR(", "*", "-", "a" * 5000, "💥", "user:x"])
async def test_any_text_is_a_query(api, three, query):
    assert (await search(api, query=query))["sessions"] == []


def run(*arguments):
    out, err = io.StringIO(), io.StringIO()
    call_command("sessions", "search", *arguments, stdout=out, stderr=err)
    return out.getvalue(), err.getvalue()


async def test_the_command_shows_where_the_words_are(api, three):
    out, err = await in_thread(run, "asyncio", "python")
    head, passage = out.splitlines()
    assert head.startswith(f"{three['asyncio']}  20")
    assert passage == "    How do I use [asyncio] in [Python]?"
    assert err == ""


async def test_the_command_takes_phrases_exclusions_and_filters(api, three):
    assert "No sessions found." in (await in_thread(run, "tea is", "good asyncio"))[0]
    out, _ = await in_thread(run, "--json", "--", "asyncio", "-django")
    assert ids_of(json.loads(out)) == [three["asyncio"]]
    out, _ = await in_thread(run, "asyncio", "--limit", "1", "--json", "--archived", "false")
    assert len(json.loads(out)["sessions"]) == 1


async def test_the_command_names_files_that_cannot_be_read(api, three, mochi):
    (mochi.sessions_path / "torn.json").write_text("{")
    out, err = await in_thread(run, "tea")
    assert three["tea"] in out
    assert err.startswith("problem: torn: not valid JSON")


async def test_the_command_shows_no_control_characters_of_a_message(api, three):
    async with get_runtime().sessions.edit(three["tea"]) as session:
        session.append(UserMessage(content="zebra \x1b[2J\x07 stripes"))
    out, _ = await in_thread(run, "zebra")
    assert "[zebra]" in out
    assert "\x1b" not in out
    assert "\x07" not in out


# Tags


async def counts(api, **query):
    response = await api.client.get("/api/v1/tags", query)
    assert response.status_code == 200, response.content
    return [(each["tag"], each["session_count"]) for each in response.json()["tags"]]


async def test_the_most_frequent_tag_is_first_and_others_by_name(api):
    assert await counts(api) == []
    for tags in (["b", "c"], ["a", "c"], []):
        await api.new_session(tags=tags)
    assert await counts(api) == [("c", 2), ("a", 1), ("b", 1)]


async def test_a_tag_that_the_last_session_loses_is_gone(api):
    first, second = [await api.new_session(tags=["a", "b"]) for _ in range(2)]
    await api.patch(f"/sessions/{first}", {"tags": ["b"]})
    assert await counts(api) == [("b", 2), ("a", 1)]
    await api.delete(f"/sessions/{second}")
    assert await counts(api) == [("b", 1)]


async def test_archived_sessions_are_counted_alone_or_left_out(api):
    await api.new_session(tags=["a", "b"])
    await api.new_session(tags=["a"], archived=True)
    assert await counts(api, archived="all") == [("a", 2), ("b", 1)]
    assert await counts(api, archived="true") == [("a", 1)]
    assert await counts(api, archived="false") == [("a", 1), ("b", 1)]
    response = await api.client.get("/api/v1/tags", {"archived": "maybe"})
    assert response.status_code == 422


@pytest.mark.parametrize("tag", ['"', "ä/#?", "<i>", "\u202e", "\\", "💥" * 50])
async def test_any_tag_selects_what_it_counts(api, tag):
    session_id = await api.new_session(tags=[tag])
    [(listed, count)] = await counts(api)
    page = (await api.client.get("/api/v1/sessions", {"tag": listed})).json()
    assert [each["session_id"] for each in page["sessions"]] == [session_id]
    assert (listed, count) == (tag, 1)
