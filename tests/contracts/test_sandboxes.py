"""What every sandbox promises: the command runs as if alone, within limits, and leaves nothing."""

from __future__ import annotations

import ast
import contextlib
import ctypes
import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path, PurePosixPath

import pytest

from mochi_server.sandbox import SandboxFolder, SandboxLimits, SandboxSpec
from mochi_server.sandbox.docker import DockerSandbox
from mochi_server.sandbox.process import ProcessSandbox
from tests.support.sandboxes import (
    SandboxUser,
    as_ordinary_user,
    as_this_user,
    bubblewrap_or_skip,
)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")

SECONDS = 100.0


def bubblewrap(place: Path) -> SandboxUser:
    return as_this_user(bubblewrap_or_skip(), place)


def bubblewrap_ordinary(place: Path) -> SandboxUser:
    bubblewrap_or_skip()
    return as_ordinary_user(place)


def process(place: Path) -> SandboxUser:
    return as_this_user(ProcessSandbox(), place)


def docker(place: Path) -> SandboxUser:
    program = place / "docker"
    script = (Path(__file__).parent.parent / "support" / "docker_stand_in.py").read_text("utf-8")
    program.write_text(f"#!{sys.executable}\n{script}")
    program.chmod(0o755)
    return as_this_user(DockerSandbox(program=str(program)), place)


LOCAL = [bubblewrap, bubblewrap_ordinary, process]
"""Drivers whose processes are limited here; those of a container are limited by Docker."""


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that every user may enter."""
    with tempfile.TemporaryDirectory(prefix="mochi-sandbox-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@pytest.fixture(params=[*LOCAL, docker], ids=lambda make: make.__name__)
def user(request: pytest.FixtureRequest, place: Path) -> SandboxUser:
    made: SandboxUser = request.param(place)
    return made


@pytest.fixture(params=LOCAL, ids=lambda make: make.__name__)
def limited(request: pytest.FixtureRequest, place: Path) -> SandboxUser:
    made: SandboxUser = request.param(place)
    return made


@pytest.fixture(params=[bubblewrap, bubblewrap_ordinary], ids=lambda make: make.__name__)
def confined(request: pytest.FixtureRequest, place: Path) -> SandboxUser:
    made: SandboxUser = request.param(place)
    return made


def workspace(user: SandboxUser, **limits: float) -> SandboxSpec:
    return SandboxSpec.of_workspace(user.folder, limits=SandboxLimits(**limits))


def until(condition: Callable[[], bool]) -> None:
    ends = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < ends, "it did not happen in time"
        os.sched_yield()


def is_running(mark: str) -> bool:
    """Tell whether a process has this word among its arguments."""
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if mark.encode() in (folder / "cmdline").read_bytes().split(b"\0"):
                return True
    return False


# ---- the command -----------------------------------------------------------------------------


async def test_it_works_here(user: SandboxUser) -> None:
    if user.options is None:  # a trial is made as this user
        assert await user.sandbox.problem() is None


def test_a_command_has_its_folder_as_working_directory(user: SandboxUser) -> None:
    (user.folder / "in.txt").write_text("text")
    (user.folder / "in.txt").chmod(0o644)
    done = user.run(["sh", "-c", "cat in.txt; echo more > out.txt"])
    assert (done.returncode, done.stdout, done.stderr) == (0, "text", "")
    assert (user.folder / "out.txt").read_text() == "more\n"


def test_a_command_reads_standard_input_and_gives_its_exit_code(user: SandboxUser) -> None:
    spec = workspace(user)
    pipe = subprocess.PIPE
    started = user.start(
        ["sh", "-c", "cat; echo wrong >&2; exit 3"],
        spec,
        stdin=pipe,
        stdout=pipe,
        stderr=pipe,
        text=True,
    )
    assert started.communicate("hello", timeout=SECONDS) == ("hello", "wrong\n")
    assert started.returncode == 3


def test_a_program_that_is_not_there_is_named(user: SandboxUser) -> None:
    done = user.run(["no-such-program"])
    assert done.returncode != 0
    assert "no-such-program" in done.stderr


def test_the_environment_is_what_is_named(user: SandboxUser) -> None:
    os.environ["SERVER_SECRET"] = "secret"
    try:
        spec = replace(workspace(user), environment={"NAME": "a b=c"})
        done = user.run(["env"], spec)
    finally:
        del os.environ["SERVER_SECRET"]
    names = {line.partition("=")[0] for line in done.stdout.splitlines()}
    assert "NAME=a b=c\n" in done.stdout
    assert names - {"PWD", "SHLVL", "_", "container"} == {"PATH", "HOME", "LANG", "NAME"}


def test_variables_of_the_command_have_no_effect_on_the_launcher(user: SandboxUser) -> None:
    """Else a file in its folder would be run outside of the sandbox."""
    evil = user.folder / "json.py"
    evil.write_text(f"open({str(user.folder / 'ran')!r}, 'w')")
    variables = {"PYTHONPATH": str(user.folder), "PYTHONHOME": "/none", "LD_PRELOAD": str(evil)}
    user.run(["true"], replace(workspace(user), environment=variables))
    assert not (user.folder / "ran").exists()


def test_the_command_is_not_shown_its_secrets_in_arguments(user: SandboxUser) -> None:
    spec = replace(workspace(user), environment={"KEY": "sk-secret"})
    assert "sk-secret" not in " ".join(user.command(["true"], spec).argv)


def test_another_folder_is_seen_where_it_is(confined: SandboxUser, place: Path) -> None:
    other = place / "other"
    other.mkdir()
    (other / "file").write_text("seen")
    for path in (other, other / "file"):
        path.chmod(0o755)
    spec = replace(workspace(confined), folders=[SandboxFolder(path=other)])
    done = confined.run(
        ["sh", "-c", f"cat {other}/file; touch {other}/new"], replace(spec, workdir=None)
    )
    assert done.stdout == "seen"
    assert "Read-only" in done.stderr


def test_of_a_covered_folder_only_what_is_named_is_seen(confined: SandboxUser, place: Path) -> None:
    data = place / "data"
    (data / "files").mkdir(parents=True)
    for path in (data / ".env", data / "notes", data / "files" / "file"):
        path.write_text(path.name)
        path.chmod(0o644)
    for path in (data, data / "files"):
        path.chmod(0o755)
    shown = [SandboxFolder(path=path) for path in (place, data / "files", data / "notes")]
    spec = SandboxSpec(folders=shown, covered=[data])
    code = f"cd {data}; cat notes files/file; ls -A; touch new"
    done = confined.run(["sh", "-c", code], spec)
    assert done.stdout == "notesfilefiles\nnotes\n"
    assert "Read-only" in done.stderr


@pytest.mark.parametrize("inner_writable", [True, False])
def test_a_folder_in_another_one_has_its_own_rights(
    confined: SandboxUser, inner_writable: bool
) -> None:
    inner = confined.folder / "outer" / "inner"
    inner.mkdir(parents=True)
    for path in (inner, inner.parent):
        path.chmod(0o777)
    folders = [
        SandboxFolder(path=inner, writable=inner_writable),
        SandboxFolder(path=inner.parent, writable=not inner_writable),
    ]
    done = confined.run(
        ["sh", "-c", f"touch {inner}/new; touch {inner.parent}/new"], SandboxSpec(folders=folders)
    )
    assert "Read-only" in done.stderr
    assert [(inner / "new").exists(), (inner.parent / "new").exists()] == [
        inner_writable,
        not inner_writable,
    ]


def folder_outside(place: Path) -> Path:
    """Make a folder that a command would like to have mounted."""
    folder = place / "outside"
    folder.mkdir()
    folder.chmod(0o777)
    (folder / "secret").write_text("the secret")
    (folder / "secret").chmod(0o644)
    return folder


@pytest.mark.parametrize(
    ("inside", "writable", "shared"),
    [
        pytest.param("/workspace", True, False, id="moved"),
        pytest.param(None, True, False, id="writable"),
        pytest.param(None, False, False, id="read-only"),
        pytest.param(None, False, True, id="read-only in a writable one"),
        pytest.param(None, True, True, id="writable in a writable one"),
    ],
)
def test_a_folder_that_is_replaced_while_it_is_mounted_is_refused(
    place: Path, monkeypatch: pytest.MonkeyPatch, inside: str | None, writable: bool, shared: bool
) -> None:
    """As a command of another sandbox may, which writes where the folder lies."""
    user, outside = bubblewrap(place), folder_outside(place)
    folder = user.folder / "mine"
    folder.mkdir()
    program = place / "bwrap"  # it is replaced when bubblewrap is about to look for it
    replace_it = f"mv {folder} {folder}.away && ln -s {outside} {folder}"
    program.write_text(f"""#!/bin/sh
[ "$1" = --version ] || {{ {replace_it}; }}
exec {shutil.which("bwrap")} "$@"
""")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(place), prepend=os.pathsep)
    folders = [
        *([SandboxFolder(path=user.folder, writable=True)] if shared else []),
        SandboxFolder(
            path=folder, inside=PurePosixPath(inside) if inside else None, writable=writable
        ),
    ]
    seen = inside or str(folder)
    code = f"cat {seen}/secret; echo more > {seen}/written"
    done = user.run(["sh", "-c", code], SandboxSpec(folders=folders))
    assert (done.returncode, done.stdout) == (125, "")
    assert "sandbox: it cannot be made" in done.stderr
    assert [path.name for path in outside.iterdir()] == ["secret"]


SWAP_BEFORE_A_STEP = """

real, pipes, steps = os, [], {steps}


def count():
    global steps
    pipes[:] = pipes or [real.open(path, real.O_RDWR | real.O_CLOEXEC) for path in {pipes!r}]
    steps -= 1
    if not steps or (steps == -1 and {swaps_back}):
        real.write(pipes[0], b"swap")
        real.read(pipes[1], 1)


class Counting:
    def __getattr__(self, name):
        return getattr(real, name)

    def open(self, path, *arguments, **options):
        if path.endswith((".git", "hooks")):
            count()
        return real.open(path, *arguments, **options)


def call(*arguments, call=call):
    count()
    return call(*arguments)


os = Counting()
"""
"""Appended to a copy of ``mounts.py``; what does not look at the repository is no step."""


@pytest.mark.slow
@pytest.mark.parametrize("link", ["", "/oldroot"], ids=["outside", "through bubblewrap's own root"])
@pytest.mark.parametrize("name", [".git", ".git/hooks"])
@pytest.mark.parametrize("swaps_back", [False, True])
def test_a_repository_that_another_sandbox_swaps_leads_nowhere(
    confined: SandboxUser, place: Path, name: str, link: str, swaps_back: bool
) -> None:
    """Before each step in which it is mounted in turn, it is exchanged with a link."""
    outside = folder_outside(place)
    repository, other = confined.folder / name, confined.folder / "link"
    launcher, owner = place / "swapping", confined.folder.stat()
    launcher.mkdir(mode=0o755)
    for each in Path(confined.launcher).glob("*.py"):
        shutil.copy(each, launcher)
    mounts = (launcher / "mounts.py").read_text("utf-8")
    pipes = [str(place / pipe) for pipe in ("ask", "answer")]
    for pipe in pipes:
        os.mkfifo(pipe)
        Path(pipe).chmod(0o666)
    ask, answer = (os.open(pipe, os.O_RDWR | os.O_CLOEXEC) for pipe in pipes)
    user = replace(confined, launcher=str(launcher))
    code = f"cat {name}/secret; echo more > {name}/written"
    exchange, here = 2, -100
    try:
        for steps in range(1, 50):
            ordered = SWAP_BEFORE_A_STEP.format(pipes=pipes, steps=steps, swaps_back=swaps_back)
            (launcher / "mounts.py").write_text(mounts + ordered)
            os.utime(launcher / "mounts.py", (steps, steps))  # else its compiled form is taken
            for folder in (confined.folder / ".git", confined.folder / ".git/hooks"):
                folder.mkdir()
                os.chown(folder, owner.st_uid, owner.st_gid)
            other.symlink_to(f"{link}{outside}")
            swaps = 0
            with user.start(["sh", "-c", code], workspace(user), stdout=subprocess.PIPE) as started:
                while ask in select.select([ask, started.stdout], [], [], SECONDS)[0]:
                    os.read(ask, 4)
                    assert not ctypes.CDLL(None).renameat2(
                        here, bytes(repository), here, bytes(other), exchange
                    )
                    swaps += 1
                    os.write(answer, b".")
                assert started.communicate(timeout=SECONDS)[0] == b""
            assert [path.name for path in outside.iterdir()] == ["secret"]
            if not swaps:
                break
            for each in confined.folder.iterdir():
                each.unlink() if each.is_symlink() else shutil.rmtree(each)
    finally:
        os.close(ask)
        os.close(answer)
    assert steps > 5


def test_the_interpreter_and_its_packages_can_be_used(place: Path) -> None:
    user = bubblewrap(place)
    code = "import anyio, mochi_server.sandbox, ssl; print(ssl.OPENSSL_VERSION)"
    done = user.run([sys.executable, "-c", code])
    assert (done.returncode, done.stderr) == (0, "")


def test_an_open_file_that_is_named_is_inherited_and_no_other(limited: SandboxUser) -> None:
    reading, writing = os.pipe()
    other = os.open("/", os.O_RDONLY)
    spec = replace(workspace(limited), keep_fds=[writing])
    try:
        code = f"import os; os.write({writing}, b'through'); print(os.listdir('/proc/self/fd'))"
        done = limited.run([limited.python, "-c", code], spec, pass_fds=[writing, other])
        assert done.returncode == 0
        assert os.read(reading, 100) == b"through"
    finally:
        for number in (reading, writing, other):
            os.close(number)
    numbers = set(map(int, ast.literal_eval(done.stdout)))
    assert len(numbers - {0, 1, 2, writing}) == 1  # that of the folder of the list


def test_a_file_of_the_server_is_not_handed_in(limited: SandboxUser, place: Path) -> None:
    log = place / "log"
    log.write_text("secrets of the server\n")
    log.chmod(0o666)
    code = "readlink /proc/self/fd/1 > kind; : > /proc/self/fd/1; echo line >&2"
    with log.open("a+") as file:
        started = limited.start(
            ["sh", "-c", code], workspace(limited), stdin=file, stdout=file, stderr=file
        )
        started.wait(SECONDS)
    assert log.read_text() == "secrets of the server\nline\n"
    assert (limited.folder / "kind").read_text() != f"{log}\n"


def test_a_terminal_is_not_handed_in(confined: SandboxUser) -> None:
    ours, theirs = os.openpty()
    code = """
import fcntl, os
for number in (0, 1, 2):
    print(os.isatty(number))
try:
    os.open("/dev/tty", os.O_RDWR)
except OSError as error:
    print(error.errno)
"""
    try:
        started = confined.start(
            [confined.python, "-c", code],
            workspace(confined),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
        )
        assert started.wait(SECONDS) == 0
        assert os.read(ours, 1000).split() == [b"False", b"False", b"False", b"6"]
    finally:
        os.close(ours)
        os.close(theirs)


# ---- limits ----------------------------------------------------------------------------------


def test_the_time_is_limited(user: SandboxUser) -> None:
    began = time.monotonic()
    done = user.run(["sleep", "300"], workspace(user, seconds=0.3))
    assert time.monotonic() - began < SECONDS
    assert (done.returncode, done.stderr) == (125, "sandbox: more than 0.3 seconds; it is ended\n")


def test_the_output_is_limited(user: SandboxUser) -> None:
    done = user.run(["yes"], workspace(user, output_mb=1))
    assert done.returncode == 125
    assert len(done.stdout) == 1_000_000
    assert "more output than allowed" in done.stderr


def test_a_slow_reader_gets_all_output_up_to_the_limit(user: SandboxUser) -> None:
    reader, writer = os.pipe()
    before = os.write(writer, bytes(fcntl.fcntl(writer, fcntl.F_GETPIPE_SZ)))  # it is full
    spec = workspace(user, output_mb=0.001)
    pipe = subprocess.PIPE
    with user.start(["yes"], spec, stdout=writer, stderr=pipe, text=True) as started:
        os.close(writer)
        assert "more output than allowed" in started.stderr.readline()
        with os.fdopen(reader, "rb") as output:
            assert len(output.read()) == before + 1000


def test_output_within_the_limit_arrives_completely(user: SandboxUser) -> None:
    done = user.run(["sh", "-c", "yes | head -c 900000"], workspace(user, output_mb=1))
    assert (done.returncode, len(done.stdout)) == (0, 900_000)


def test_the_processor_time_is_limited(limited: SandboxUser) -> None:
    done = limited.run(
        [limited.python, "-c", "while True: pass"], workspace(limited, cpu_seconds=1)
    )
    assert done.returncode == 128 + signal.SIGKILL


def test_a_process_cannot_have_more_memory(limited: SandboxUser) -> None:
    done = limited.run(
        [limited.python, "-c", "bytearray(400_000_000)"], workspace(limited, memory_mb=200)
    )
    assert "MemoryError" in done.stderr


FORK_AND_FILL = """
import os, sys, time
begin, all_are_there = os.pipe()
for _ in range(20):
    if not os.fork():
        os.close(all_are_there)
        os.read(begin, 1)
        text = b"x" * 60_000_000
        time.sleep(300)
os.close(all_are_there)
"""


def test_many_processes_cannot_have_more_memory_together(limited: SandboxUser) -> None:
    code = FORK_AND_FILL + "print('lives', flush=True)\nos.wait()"
    done = limited.run([limited.python, "-c", code], workspace(limited, memory_mb=200, seconds=80))
    assert "more than 200 MB of memory; the processes that it has started are ended" in done.stderr
    assert (done.returncode, done.stdout) == (0, "lives\n")


def test_shared_memory_counts(limited: SandboxUser) -> None:
    code = "import mmap, time; m = mmap.mmap(-1, 400_000_000); m.write(b'x' * 100_000_000);"
    code += "m.write(b'x' * 100_000_000); m.write(b'x' * 100_000_000); time.sleep(300)"
    done = limited.run([limited.python, "-c", code], workspace(limited, memory_mb=200, seconds=80))
    assert (done.returncode, done.stderr) == (
        125,
        "sandbox: more than 200 MB of memory; it is ended\n",
    )


BOMB = """
import mmap, os, time
born = mmap.mmap(-1, 8)
while born[0] < 250:
    try:
        os.fork()
        born[0] = min(250, born[0] + 1)
    except OSError:
        time.sleep(0.1)
open("exploded", "w").close()
time.sleep(300)
"""
"""It ends by itself at some 250 processes, so that the machine survives if nothing stops it."""


def test_a_fork_bomb_is_stopped(confined: SandboxUser) -> None:
    mark = f"bomb of {confined.folder}"  # another worker may have one as well
    done = confined.run(
        [confined.python, "-c", BOMB, mark],
        workspace(confined, processes=16, seconds=1),
    )
    assert done.returncode == 125
    assert not is_running(mark)
    if confined.options is not None:  # not root, for whom the kernel limits nothing
        assert not (confined.folder / "exploded").exists()


def test_threads_are_limited(limited: SandboxUser) -> None:
    code = """
import threading, time
for _ in range(100):
    threading.Thread(target=time.sleep, args=(300,), daemon=True).start()
print("100 threads", flush=True)
time.sleep(300)
"""
    done = limited.run([limited.python, "-c", code], workspace(limited, processes=16, seconds=10))
    assert done.returncode != 0
    assert "100 threads" not in done.stdout


def test_open_files_are_limited(limited: SandboxUser) -> None:
    code = "files = [open('/dev/null') for _ in range(300)]"
    done = limited.run([limited.python, "-c", code])
    assert "Too many open files" in done.stderr


def test_a_file_cannot_be_larger(limited: SandboxUser) -> None:
    limited.run(["sh", "-c", "cat /dev/zero > large"], workspace(limited, file_mb=5))
    assert (limited.folder / "large").stat().st_size <= 5_000_000


@pytest.mark.parametrize(
    "fill",
    [
        "for i in $(seq 200); do head -c 4000000 /dev/zero > file$i; done",
        "mkdir b; while chmod 700 b; do head -c 4000000 /dev/zero > b/$((i+=1)); chmod 0 b; done",
        "for i in $(seq 200); do head -c 4000000 /dev/zero > .$i; done",
    ],
    ids=["many files", "unreadable folders", "hidden files"],
)
def test_the_disk_is_limited(limited: SandboxUser, fill: str) -> None:
    done = limited.run(
        ["sh", "-c", f"{fill}; sleep 300"], workspace(limited, disk_mb=20, seconds=80)
    )
    assert (done.returncode, "more than 20 MB in the writable folders" in done.stderr) == (
        125,
        True,
    )


def test_a_folder_that_its_command_has_closed_can_be_used_again(limited: SandboxUser) -> None:
    closed = limited.run(["sh", "-c", "chmod 0 .; sleep 0.3; echo watched"])
    assert (closed.returncode, closed.stdout) == (0, "watched\n"), closed.stderr
    limited.folder.chmod(0)
    again = limited.run(["sh", "-c", "touch new; echo used"])
    assert (again.returncode, again.stdout) == (0, "used\n"), again.stderr


ENDED = {
    "page tables": (
        """
import mmap, time
flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
taken = mmap.mmap(-1, 60_000_000_000, flags=flags, prot=mmap.PROT_READ)
taken.madvise(mmap.MADV_NOHUGEPAGE)
for place in range(0, len(taken), 2 << 20):
    taken[place]
time.sleep(300)
""",
        {"memory_mb": 50},
        "more than 50 MB of memory",
    ),
    "deleted files that are open": (
        """
import os, time
files = []
for number in range(50):
    files.append(open(f"file{number}", "wb"))
    os.unlink(f"file{number}")
    files[-1].write(bytes(4_000_000))
    files[-1].flush()
time.sleep(300)
""",
        {"disk_mb": 20},
        "more than 20 MB in the writable folders",
    ),
    "deleted files that are mapped": (
        """
import ctypes, mmap, os, time
libc = ctypes.CDLL(None)
for number in range(20):
    file = os.open(f"file{number}", os.O_RDWR | os.O_CREAT)
    os.write(file, bytes(4_000_000))
    libc.mmap(None, 4_000_000, mmap.PROT_READ, mmap.MAP_SHARED, file, 0)
    os.close(file)
    os.unlink(f"file{number}")
time.sleep(300)
""",
        {"disk_mb": 20},
        "more than 20 MB in the writable folders",
    ),
    "many files": (
        "for number in range(10_000_000): open(f'file{number}', 'w').close()",
        {"files": 1000},
        "more than 1,000 files",
    ),
}
"""Programs that a limit ends, the limit, and its name."""


@pytest.mark.parametrize(("code", "limits", "told"), ENDED.values(), ids=ENDED)
def test_what_takes_more_than_its_limit_is_ended(
    limited: SandboxUser, code: str, limits: dict[str, float], told: str
) -> None:
    done = limited.run([limited.python, "-c", code], workspace(limited, seconds=80, **limits))
    assert f"{told}; it is ended" in done.stderr


def test_a_tree_that_is_too_deep_to_be_measured_ends_the_command(limited: SandboxUser) -> None:
    code = """
import os, time
for _ in range(300):
    os.mkdir("folder")
    os.chdir("folder")
time.sleep(300)
"""
    done = limited.run([limited.python, "-c", code], workspace(limited, seconds=80))
    assert "folders nested deeper than 128; it is ended" in done.stderr
    shutil.rmtree(limited.folder)


@pytest.mark.parametrize("folder", ["/tmp", "/dev/shm", "/var/tmp"])
def test_folders_in_memory_are_limited(confined: SandboxUser, folder: str) -> None:
    code = (
        f"i=0; while head -c 4000000 /dev/zero > {folder}/$i; do i=$((i+1)); done; du -smx {folder}"
    )
    done = confined.run(["sh", "-c", code], workspace(confined, seconds=80))
    assert "No space left" in done.stderr
    assert int(done.stdout.split()[0]) <= 64


@pytest.mark.parametrize("folder", ["/tmp", "/dev/shm", "/var/tmp"])
def test_files_in_memory_are_counted(confined: SandboxUser, folder: str) -> None:
    code = f"for number in range(10_000_000): open(f'{folder}/{{number}}', 'w').close()"
    done = confined.run([confined.python, "-c", code], workspace(confined, files=1000, seconds=80))
    assert "more than 1,000 files; it is ended" in done.stderr


def test_what_was_there_before_does_not_end_a_command(limited: SandboxUser) -> None:
    (limited.folder / "large").write_bytes(bytes(3_000_000))
    done = limited.run(
        ["sh", "-c", "sleep 0.5; rm -f large; echo done"], workspace(limited, disk_mb=1)
    )
    assert (done.returncode, done.stdout) == (0, "done\n")


# ---- the end ---------------------------------------------------------------------------------

SURVIVORS = {
    "nohup": "nohup sh -c 'sleep 300' {mark} >/dev/null 2>&1 & sleep 0.2",
    "setsid": "setsid sh -c 'sleep 300' {mark} >/dev/null 2>&1 & sleep 0.2",
    "double fork": "(setsid sh -c 'sleep 300; :' {mark} >/dev/null 2>&1 &) ; sleep 0.2",
    "deaf": "(setsid sh -c 'trap : TERM HUP INT; sleep 300; :' {mark} >/dev/null 2>&1 &); sleep .3",
}


@pytest.mark.parametrize("way", SURVIVORS)
def test_no_process_survives_its_command(limited: SandboxUser, way: str) -> None:
    mark = f"survivor-{os.getpid()}-{time.monotonic_ns()}"
    done = limited.run(["sh", "-c", SURVIVORS[way].format(mark=mark)])
    assert done.returncode == 0
    until(lambda: not is_running(mark))


@pytest.mark.parametrize("end", ["kill", "terminate", "kill the group"])
def test_the_end_of_its_process_ends_all(confined: SandboxUser, end: str) -> None:
    mark = f"mark-{os.getpid()}-{time.monotonic_ns()}"
    code = f"(setsid sh -c 'sleep 300; :' {mark} &); echo started; sleep 300"
    started = confined.start(
        ["sh", "-c", code], workspace(confined), stdout=subprocess.PIPE, start_new_session=True
    )
    with started:
        assert started.stdout is not None
        assert started.stdout.readline() == b"started\n"
        until(lambda: is_running(mark))
        if end == "kill the group":
            os.killpg(started.pid, signal.SIGKILL)
        else:
            getattr(started, end)()
        started.wait(SECONDS)
    until(lambda: not is_running(mark))


@pytest.mark.parametrize("end", [os.kill, os.killpg], ids=["the process", "the group"])
def test_an_end_at_any_moment_of_the_start_ends_all(
    limited: SandboxUser, end: Callable[[int, int], None]
) -> None:
    mark = f"mark-{os.getpid()}-{time.monotonic_ns()}"
    for number in range(16):
        started = limited.start(
            ["sh", "-c", "sleep 300; :", mark], workspace(limited), start_new_session=True
        )
        time.sleep(number * 0.005)
        end(started.pid, signal.SIGKILL)
        started.wait(SECONDS)
    until(lambda: not is_running(mark))


def test_the_death_of_the_server_ends_all(user: SandboxUser, place: Path) -> None:
    mark = f"mark-{os.getpid()}-{time.monotonic_ns()}"
    made = user.command(
        ["sh", "-c", f"echo started; while sleep 1; do :; done; : {mark}", mark], workspace(user)
    )
    server = "import json, os, subprocess, sys; argv, env = json.loads(sys.argv[1])\n"
    server += "subprocess.Popen(argv, env=env, start_new_session=True); sys.stdin.read()"
    started = subprocess.Popen(
        [user.python, "-c", server, json.dumps([made.argv, dict(made.env)])],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        **(user.options or {}),
    )
    with started:
        assert started.stdout is not None
        assert started.stdout.readline() == b"started\n"
        started.kill()
    until(lambda: not is_running(mark))
