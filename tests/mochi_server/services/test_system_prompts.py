from __future__ import annotations

import os
import stat
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mochi_server.errors import (
    InvalidRequest,
    PromptExists,
    PromptInvalid,
    PromptNotFound,
    StorageError,
)
from mochi_server.services.system_prompts import (
    FILENAME,
    MAX_FILE,
    PromptListing,
    SystemPromptService,
    summarize,
)
from tests.support.unprivileged import run_unprivileged


@pytest.fixture
def prompts(tmp_path):
    return SystemPromptService(tmp_path / "prompts")


async def test_a_folder_that_does_not_exist_has_no_prompts(prompts):
    assert await prompts.list() == PromptListing()
    with pytest.raises(PromptNotFound):
        await prompts.read("a.md")
    assert not prompts.folder.exists()


async def test_of_those_who_create_the_same_prompt_one_wins_and_the_others_leave_nothing(prompts):
    outcomes = []

    async def create(text):
        try:
            await prompts.create("a.md", text)
        except PromptExists:
            outcomes.append("refused")
        else:
            outcomes.append(text)

    with anyio.fail_after(30):
        async with anyio.create_task_group() as group:
            for number in range(8):
                group.start_soon(create, f"text {number}")
    (winner,) = set(outcomes) - {"refused"}
    assert outcomes.count("refused") == 7
    assert await prompts.read("a.md") == winner
    assert [path.name for path in prompts.folder.iterdir()] == ["a.md"]


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


@pytest.fixture
def strange(prompts, tmp_path):
    """Names that lead to no plain file."""
    prompts.folder.mkdir()
    (tmp_path / "secret.md").write_text("secret")
    (prompts.folder / "link.md").symlink_to(tmp_path / "secret.md")
    (prompts.folder / "loop.md").symlink_to("loop.md")
    (prompts.folder / "folder.md").mkdir()
    os.mkfifo(prompts.folder / "pipe.md")
    (prompts.folder / "good.md").write_text("Be brief.")
    return ["link.md", "loop.md", "folder.md", "pipe.md"]


async def test_only_plain_files_are_prompts(prompts, strange, tmp_path):
    with anyio.fail_after(30):
        assert [prompt.filename for prompt in (await prompts.list()).prompts] == ["good.md"]
        for name in strange:
            with pytest.raises(PromptNotFound):
                await prompts.read(name)
            with pytest.raises(PromptNotFound):
                await prompts.update(name, "text")
            with pytest.raises(PromptNotFound):
                await prompts.delete(name)
            with pytest.raises(PromptExists):
                await prompts.create(name, "text")
    assert sorted(path.name for path in prompts.folder.iterdir()) == sorted([*strange, "good.md"])
    assert (tmp_path / "secret.md").read_text() == "secret"


async def test_of_a_huge_file_only_the_beginning_is_read(prompts):
    prompts.folder.mkdir()
    with (prompts.folder / "huge.md").open("wb") as file:
        file.write(b"Once upon a time ")
        file.truncate(50 * 1024**3)
    with anyio.fail_after(30):
        (listed,) = (await prompts.list()).prompts
        assert listed.preview.startswith("Once upon a time")
        with pytest.raises(PromptInvalid, match="more than"):
            await prompts.read("huge.md")


async def test_a_prompt_of_any_length_is_read_but_only_a_short_one_is_for_a_session(prompts):
    """Whoever wrote it by hand may read it here; the rule for texts holds where they are used."""
    prompts.folder.mkdir()
    for name, text in (("long.md", "x" * 10_000), ("empty.md", " \n"), ("ok.md", "x" * 9_999)):
        (prompts.folder / name).write_text(text)
        assert await prompts.read(name) == text
    (prompts.folder / "largest.md").write_text("x" * MAX_FILE)
    assert len(await prompts.read("largest.md")) == MAX_FILE
    assert len(await prompts.text_for_session("ok.md")) == 9_999
    with pytest.raises(InvalidRequest, match=r"'long.md'.*10,000"):
        await prompts.text_for_session("long.md")
    with pytest.raises(InvalidRequest, match=r"'empty.md'.*empty"):
        await prompts.text_for_session("empty.md")


@pytest.mark.parametrize("mode", [0o664, 0o600, 0o640])
async def test_a_prompt_keeps_the_rights_that_its_owner_gave_it(prompts, mode):
    await prompts.create("a.md", "first")
    (prompts.folder / "a.md").chmod(mode)
    await prompts.update("a.md", "second")
    assert stat.S_IMODE((prompts.folder / "a.md").stat().st_mode) == mode
    assert await prompts.read("a.md") == "second"


async def use_a_prompt_that_may_not_be_read(folder: Path) -> None:
    prompts = SystemPromptService(folder)
    await prompts.create("mine.md", "Be brief.")
    await prompts.create("secret.md", "Be brief.")
    (folder / "secret.md").chmod(0)
    with pytest.raises(StorageError, match=r"'secret.md'.*Permission denied"):
        await prompts.read("secret.md")
    listed = (await prompts.list()).prompts
    assert [(prompt.filename, prompt.word_count) for prompt in listed] == [
        ("mine.md", 2),
        ("secret.md", 0),
    ]
    await prompts.update("secret.md", "Be kind.")


def test_a_prompt_that_may_not_be_read_is_named_and_hides_no_other(tmp_path):
    run_unprivileged(use_a_prompt_that_may_not_be_read, tmp_path)


async def use_a_folder_that_may_not_be_read(folder: Path) -> None:
    prompts = SystemPromptService(folder)
    await prompts.create("a.md", "Be brief.")
    folder.chmod(0)
    with pytest.raises(StorageError, match="Permission denied"):
        await prompts.list()
    for work in (
        prompts.read("a.md"),
        prompts.update("a.md", "x"),
        prompts.create("b.md", "x"),
        prompts.delete("a.md"),
    ):
        with pytest.raises(StorageError, match="Permission denied"):
            await work


def test_a_folder_that_may_not_be_read_is_named(tmp_path):
    run_unprivileged(use_a_folder_that_may_not_be_read, tmp_path / "prompts")
    (tmp_path / "prompts").chmod(0o700)
