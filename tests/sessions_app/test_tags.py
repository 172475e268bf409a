"""``/tags``: the tags of sessions, to choose from."""

from __future__ import annotations

import pytest


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
