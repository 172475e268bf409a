from __future__ import annotations

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mochi_server.errors import InvalidRequest, PromptExists, PromptNotFound, StorageError
from mochi_server.services.system_prompts import FILENAME, SystemPromptService, summarize


@pytest.fixture
def prompts(tmp_path):
    return SystemPromptService(tmp_path / "prompts")


async def test_a_folder_that_does_not_exist_has_no_prompts(prompts):
    assert await prompts.list() == []
    with pytest.raises(PromptNotFound):
        await prompts.read("a.md")
    assert not prompts.folder.exists()


async def test_of_two_who_create_the_same_prompt_one_wins(prompts):
    outcomes = []

    async def create(text):
        try:
            await prompts.create("a.md", text)
        except PromptExists:
            outcomes.append("refused")
        else:
            outcomes.append(text)

    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            for number in range(8):
                group.start_soon(create, f"text {number}")
    (winner,) = set(outcomes) - {"refused"}
    assert outcomes.count("refused") == 7
    assert await prompts.read("a.md") == winner


async def test_a_refused_write_leaves_no_temporary_file(prompts):
    await prompts.create("a.md", "first")
    with pytest.raises(PromptExists):
        await prompts.create("a.md", "second")
    assert [path.name for path in prompts.folder.iterdir()] == ["a.md"]


async def test_a_prompt_that_is_no_utf8_is_shown_as_far_as_it_can_be(prompts):
    prompts.folder.mkdir()
    (prompts.folder / "a.txt").write_bytes(b"gr\xfc\xdfe")
    assert await prompts.read("a.txt") == "gr��e"


async def test_a_folder_that_is_a_file_is_a_storage_error(tmp_path):
    (tmp_path / "prompts").write_text("no folder")
    prompts = SystemPromptService(tmp_path / "prompts")
    with pytest.raises(StorageError):
        await prompts.list()
    with pytest.raises(StorageError):
        await prompts.create("a.md", "x")


async def test_updating_a_prompt_that_is_not_there_creates_none(prompts):
    with pytest.raises(PromptNotFound):
        await prompts.update("a.md", "x")
    assert await prompts.list() == []


async def test_an_empty_update_keeps_the_old_text(prompts):
    await prompts.create("a.md", "first")
    with pytest.raises(InvalidRequest):
        await prompts.update("a.md", "  ")
    assert await prompts.read("a.md") == "first"


def test_a_long_preview_is_cut_at_a_hundred_characters():
    summary = summarize("a.md", "word " * 100)
    assert len(summary.preview) == 103
    assert summary.preview.endswith("...")
    assert summary.word_count == 100


@given(st.text())
def test_no_accepted_name_leads_anywhere_else(name):
    if FILENAME.fullmatch(name):
        assert "/" not in name
        assert "\\" not in name
        assert "\0" not in name
        assert not name.startswith(".")
        assert len(name) <= 128
