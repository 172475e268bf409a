"""Session files among everything else that may lie in a folder."""

import asyncio
import os
import stat
import time
from pathlib import Path

import anyio
import pytest

from mochi_server.core.leases import FileLock
from mochi_server.errors import SessionNotFound, StorageError
from mochi_server.sessions import JSONFileStorage, SessionManager
from mochi_server.sessions.storage.json_files import LEFTOVER_SECONDS, scan


async def test_nothing_but_the_session_is_left_behind(tmp_path):
    storage = JSONFileStorage(tmp_path)
    async with storage.claim("one"), storage.lock("one"):
        await storage.write("one", [b"x"])

    names = {path.name for path in tmp_path.rglob("*")}
    assert names == {"one.json", ".locks"}


async def test_links_folders_and_pipes_are_shown_as_problems_and_hide_no_session(tmp_path):
    secret = tmp_path / "secret.txt"
    secret.write_text("{}")
    folder = tmp_path / "sessions"
    manager = SessionManager(sessions_dir=folder)
    await manager.create("m", session_id="good")
    (folder / "link.json").symlink_to(secret)
    (folder / "dangling.json").symlink_to(tmp_path / "nowhere")
    (folder / "loop.json").symlink_to(folder / "loop.json")
    (folder / "folder.json").mkdir()
    os.mkfifo(folder / "pipe.json")
    (folder / "my notes.json").write_text("{}")
    (folder / "notes.txt").write_text("no session")

    listed = await manager.list()

    assert [entry["session_id"] for entry in listed.entries] == ["good"]
    found = {problem["session_id"]: problem["reason"] for problem in listed.problems}
    assert set(found) == {"link", "dangling", "loop", "folder", "pipe", "my notes"}
    assert found["my notes"] == "the file's name is not a session id"
    for name in ("link", "dangling", "loop", "folder", "pipe"):
        with anyio.fail_after(30), pytest.raises(SessionNotFound):
            await manager.get(name)


async def test_temporary_files_of_crashed_processes_are_swept_away(tmp_path):
    storage = JSONFileStorage(tmp_path)
    await storage.write("one", [b"x"])
    old, fresh = tmp_path / f".one.{7:016x}.tmp", tmp_path / f".one.{8:016x}.tmp"
    others = [tmp_path / name for name in (".notes.tmp", ".one.0123.tmp", f".a b.{7:016x}.tmp")]
    for path in (old, fresh, *others):
        path.write_bytes(b'{"metadata": {')
    long_ago = time.time() - LEFTOVER_SECONDS - 5
    for path in (old, *others):
        os.utime(path, (long_ago, long_ago))

    assert [entry.session_id for entry in await storage.entries()] == ["one"]
    assert (old.exists(), fresh.exists()) == (False, True)
    assert all(path.exists() for path in others)


async def test_what_a_killed_writer_leaves_is_swept_away(tmp_path):
    """The name that is written is the name that is looked for."""
    storage = JSONFileStorage(tmp_path)
    seen: list[str] = []

    def parts():
        yield b"half"
        seen.extend(path.name for path in tmp_path.iterdir())
        yield b"the rest"

    await storage.write("one", parts())
    (tmp_path / seen[0]).write_bytes(b"half")
    os.utime(tmp_path / seen[0], (0, 0))
    await storage.entries()
    assert [path.name for path in tmp_path.iterdir()] == ["one.json"]


async def test_a_write_outlives_a_clock_that_jumps_ahead(tmp_path):
    storage = JSONFileStorage(tmp_path)

    def parts():
        yield b"half, "
        for path in tmp_path.iterdir():
            os.utime(path, (0, 0))
        assert scan(tmp_path) == []
        yield b"and the rest"

    await storage.write("one", parts())
    assert (await storage.read("one"))[0] == b"half, and the rest"


@pytest.mark.parametrize("mode", [0o600, 0o664, 0o640])
async def test_a_session_keeps_the_rights_that_its_owner_gave_it(tmp_path, mode):
    manager = SessionManager(sessions_dir=tmp_path)
    await manager.create("m", session_id="one")
    (tmp_path / "one.json").chmod(mode)
    async with manager.edit("one") as session:
        session.metadata.model = "other"
    assert stat.S_IMODE((tmp_path / "one.json").stat().st_mode) == mode


async def test_nobody_reads_a_private_session_while_it_is_saved(tmp_path):
    storage = JSONFileStorage(tmp_path)
    await storage.write("one", [b"old"])
    (tmp_path / "one.json").chmod(0o600)
    modes: set[int] = set()

    def parts():
        yield b"secret"
        modes.update(stat.S_IMODE(path.stat().st_mode) for path in tmp_path.glob(".one.*"))

    await storage.write("one", parts())
    assert modes == {0o600}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
async def test_a_session_that_root_writes_stays_with_its_owner(tmp_path):
    """A server that is no root must not lose it to a command that is."""
    storage = JSONFileStorage(tmp_path)
    await storage.create("one", [b"old"])
    os.chown(tmp_path / "one.json", 12345, 12345)
    (tmp_path / "one.json").chmod(0o600)
    await storage.write("one", [b"new"])
    status = (tmp_path / "one.json").stat()
    assert (status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)) == (12345, 12345, 0o600)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
async def test_what_root_makes_belongs_to_the_owner_of_the_folder(tmp_path):
    os.chown(tmp_path, 12345, 12345)
    storage = JSONFileStorage(tmp_path / "chats")
    await storage.create("one", [b"new"])
    async with storage.claim("one"):
        assert {(p.stat().st_uid, p.stat().st_gid) for p in tmp_path.rglob("*")} == {(12345, 12345)}


async def test_a_look_whether_a_claim_is_idle_refuses_no_turn(tmp_path):
    """Whoever tidies up takes each lock for a moment, which is longer on a busy machine."""
    storage = JSONFileStorage(tmp_path)
    await storage.create("one", [b"{}"])
    claim = FileLock(tmp_path / ".locks" / "one.claim")
    assert claim.acquire()
    asyncio.get_running_loop().call_later(0.03, claim.release)
    async with storage.claim("one") as version:
        assert version is not None


@pytest.mark.parametrize("umask", [0, 0o022, 0o027])
async def test_a_new_session_and_its_folder_are_for_their_owner_alone(tmp_path, umask):
    storage = JSONFileStorage(tmp_path / "new" / "sessions")
    before = os.umask(umask)
    try:
        await storage.create("one", [b"new"])
    finally:
        os.umask(before)
    assert stat.S_IMODE((storage.folder / "one.json").stat().st_mode) == 0o600
    assert stat.S_IMODE(storage.folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o700


async def test_a_folder_that_is_there_keeps_its_mode(tmp_path):
    tmp_path.chmod(0o775)
    await JSONFileStorage(tmp_path).create("one", [b"new"])
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o775


async def test_a_refused_write_leaves_the_old_content_and_no_litter(tmp_path):
    storage = JSONFileStorage(tmp_path)
    await storage.write("one", [b"old"])

    def failing():
        yield b"half"
        raise OSError(28, "No space left on device")

    with pytest.raises(StorageError, match="No space left on device"):
        await storage.write("one", failing())
    assert (await storage.read("one"))[0] == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["one.json"]


async def test_a_folder_that_is_a_file_is_a_storage_error(tmp_path):
    (tmp_path / "file").write_text("")
    storage = JSONFileStorage(tmp_path / "file")

    with pytest.raises(StorageError):
        await storage.write("one", [b"x"])
    with pytest.raises(StorageError):
        await storage.entries()
    with pytest.raises(StorageError):
        await storage.read("one")
    with pytest.raises(StorageError):
        async with storage.claim("one"):
            pass


async def test_an_abandoned_lock_file_hinders_nobody(tmp_path):
    (tmp_path / ".locks").mkdir()
    for kind in ("lock", "claim"):
        (tmp_path / ".locks" / f"one.{kind}").write_bytes(b"")
    storage = JSONFileStorage(tmp_path)
    with anyio.fail_after(30):
        async with storage.claim("one"), storage.lock("one"):
            pass
    await storage.aclose()
    assert list((tmp_path / ".locks").iterdir()) == []


async def test_who_is_cancelled_at_any_moment_leaves_no_lock_and_no_handle_behind(tmp_path):
    storage = JSONFileStorage(tmp_path)
    async with storage.claim("one"), storage.lock("one"):
        pass
    handles = len(list(Path("/proc/self/fd").iterdir()))
    for step in range(40):
        with anyio.move_on_after(step * 0.0001):
            async with storage.claim("one"), storage.lock("one"):
                await anyio.sleep_forever()
        with anyio.fail_after(30):
            async with storage.claim("one"), storage.lock("one"):
                pass
    assert len(list(Path("/proc/self/fd").iterdir())) <= handles  # others may close theirs
    await storage.aclose()
    assert list((tmp_path / ".locks").iterdir()) == []


async def test_a_folder_in_the_place_of_the_lock_folder_or_a_link_is_an_error(tmp_path):
    target = tmp_path / "precious"
    target.write_text("precious")
    folder = tmp_path / "sessions"
    storage = JSONFileStorage(folder)
    async with storage.lock("other"):
        pass
    (folder / ".locks" / "one.claim").symlink_to(target)
    with pytest.raises(StorageError):
        async with storage.claim("one"):
            pytest.fail("followed a link")
    assert target.read_text() == "precious"


async def test_a_folder_of_a_sessions_name_costs_no_handle(tmp_path):
    (tmp_path / "one.json").mkdir()
    storage = JSONFileStorage(tmp_path)
    for _ in range(2):
        handles = len(list(Path("/proc/self/fd").iterdir()))
        with pytest.raises(SessionNotFound):
            await storage.read("one")
    assert len(list(Path("/proc/self/fd").iterdir())) <= handles
