"""Session files with JSON so deeply nested that nobody could write it again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mochi_server.errors import SessionUnreadable
from mochi_server.sessions import SessionManager

HEAD = {"session_id": "deep", "model": "m", "created_at": "x", "updated_at": "x"}


def deep(levels: int) -> object:
    return json.loads('{"a":' * levels + "1" + "}" * levels)


def files(levels: int) -> dict[str, dict[str, object]]:
    metadata = {**HEAD, "agent_settings": {"selection_metadata": deep(levels)}}
    question = {"role": "user", "content": "Hi", "x": deep(levels)}
    return {
        "metadata": {"metadata": metadata, "messages": []},
        "rest": {"metadata": HEAD, "messages": [], "x": deep(levels)},
        "messages": {"metadata": HEAD, "messages": [question]},
    }


def in_our_layout(content: dict[str, object]) -> str:
    """As the codec writes it."""
    messages = ",".join(f"\n    {json.dumps(each)}" for each in content["messages"])  # type: ignore[attr-defined]
    head = json.dumps(content["metadata"], indent=2).replace("\n", "\n  ")
    lines = f"[{messages}\n  ]" if messages else "[]"
    rest = f',\n  "x": {json.dumps(content["x"])}' if "x" in content else ""
    return f'{{\n  "metadata": {head},\n  "messages": {lines}{rest}\n}}\n'


@pytest.mark.parametrize("layout", [json.dumps, in_our_layout])
@pytest.mark.parametrize("levels", [300, 900])
@pytest.mark.parametrize("place", ["metadata", "rest"])
async def test_a_file_that_could_not_be_written_again_is_reported(
    tmp_path: Path, place: str, levels: int, layout: object
):
    text = layout(files(levels)[place])  # type: ignore[operator]
    (tmp_path / "deep.json").write_text(text)
    manager = SessionManager(sessions_dir=tmp_path)
    await manager.create("m", session_id="good")

    with pytest.raises(SessionUnreadable, match="nested"):
        await manager.get("deep")
    with pytest.raises(SessionUnreadable, match="nested"):
        async with manager.edit("deep"):
            pytest.fail("an unreadable session was handed out")
    listed = await manager.list()
    assert [entry["session_id"] for entry in listed.entries] == ["good"]
    (problem,) = listed.problems
    assert problem["session_id"] == "deep"
    assert "nested" in str(problem["reason"])
    assert (tmp_path / "deep.json").read_text() == text


@pytest.mark.parametrize("layout", [json.dumps, in_our_layout])
@pytest.mark.parametrize("place", ["metadata", "rest", "messages"])
async def test_what_is_nested_less_deeply_is_kept(tmp_path: Path, place: str, layout: object):
    content = files(190)[place]
    (tmp_path / "deep.json").write_text(layout(content))  # type: ignore[operator]
    manager = SessionManager(sessions_dir=tmp_path)
    async with manager.edit("deep") as session:
        session.metadata.model = "other"
    assert len((await manager.list()).entries) == 1
    stored = json.loads((tmp_path / "deep.json").read_text())
    if place == "rest":
        assert stored["x"] == content["x"]
    elif place == "messages":
        assert stored["messages"] == content["messages"]
    else:
        assert stored["metadata"]["agent_settings"]["selection_metadata"] == deep(190)


@pytest.mark.parametrize("levels", [300, 900])
async def test_a_deep_message_is_kept_as_it_is_and_not_edited(tmp_path: Path, levels: int):
    text = in_our_layout(files(levels)["messages"])
    (tmp_path / "deep.json").write_text(text)
    manager = SessionManager(sessions_dir=tmp_path)
    async with manager.edit("deep") as session:
        session.metadata.model = "other"
    assert json.dumps(deep(levels)) in (tmp_path / "deep.json").read_text()
    with pytest.raises(SessionUnreadable, match="nested"):
        async with manager.edit("deep") as session:
            session.edit_user_message(0, "Hello")


@pytest.mark.parametrize("levels", [300, 900])
async def test_a_deep_message_of_another_layout_is_reported(tmp_path: Path, levels: int):
    (tmp_path / "deep.json").write_text(json.dumps(files(levels)["messages"]))
    manager = SessionManager(sessions_dir=tmp_path)
    with pytest.raises(SessionUnreadable, match="nested"):
        await manager.get("deep")
    assert len((await manager.list()).problems) == 1


async def test_a_long_file_that_could_not_be_written_again_is_reported_in_the_list(tmp_path: Path):
    """Of a long file the list reads the beginning only."""
    content = files(300)["metadata"]
    content["messages"] = [{"role": "user", "content": "x" * 1000}] * 40
    (tmp_path / "deep.json").write_text(in_our_layout(content))
    listed = await SessionManager(sessions_dir=tmp_path).list()
    assert listed.entries == []
    assert "nested" in str(listed.problems[0]["reason"])
