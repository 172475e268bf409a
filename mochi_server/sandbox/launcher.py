"""Starts a confined command, watches its limits, and ends with its exit code.

The process that the server starts, and may kill at any moment, only waits for a second one, the
watcher, which does the rest and ends the command when the first one is gone.

It uses the standard library alone: it runs outside of the sandbox, as ``python -I -S``, with a plan
(see :func:`mochi_server.sandbox.launch.launch`) in the variable ``MOCHI_SANDBOX_PLAN``.
"""

from __future__ import annotations

import _thread
import binascii
import fcntl
import marshal
import os
import resource
import select
import stat
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections.abc import Callable
    from typing import Any, Final, NoReturn

    Limits = dict[str, Any]
else:
    import _signal as signal  # importing signal, typing or json takes longer than bubblewrap

if TYPE_CHECKING or __package__:
    from . import watching
    from .mounts import Mounts, Replaced, open_place
else:  # in its own process
    import watching
    from mounts import Mounts, Replaced, open_place

PLAN: Final = "MOCHI_SANDBOX_PLAN"
OVER_LIMIT: Final = 125
"""Exit code after a limit was exceeded, or when the sandbox could not be made."""
SIGNALLED: Final = 128
"""Exit code of a command that a signal has killed, less the number of the signal."""
SEALS: Final = 0xF
"""No more changes of content, size and seals."""
COPY_SECONDS: Final = 5.0
"""How long a reader may take for the last output."""
END_SECONDS: Final = 10.0
"""How long killed processes may take to end."""
DEVICES: Final = (b"null", b"zero", b"full", b"random", b"urandom", b"tty")
"""Those of the machine that bubblewrap shows."""
MANY: Final = 1000


# ---- what is handed to the command -----------------------------------------------------------


def close_all_but(kept: set[int]) -> None:
    for number in [int(name) for name in os.listdir("/proc/self/fd")]:
        if number not in kept:
            try:
                os.close(number)
            except OSError:  # the one of this look is closed by now
                pass


class Streams:
    """Standard output and error of the command; copied through pipes where they need it.

    A file or a terminal of the server is not handed to the command, which could open it again for
    reading, truncate it or control it. Pipes, sockets and ``/dev/null`` are, unless their output is
    counted.
    """

    def __init__(self, most: float) -> None:
        self._left = most
        self._copies: dict[int, int] = {}
        self._running: list[Any] = []
        """A lock for each copying thread, which holds it."""
        self.given = {0: 0, 1: 1, 2: 2}
        if not is_harmless(0):
            self.given[0] = os.open(os.devnull, os.O_RDONLY)
        for number in (1, 2):
            if most != watching.NO_LIMIT or not is_harmless(number):
                ours, self.given[number] = os.pipe()
                self._copies[ours] = number

    def started(self) -> None:
        """Close the command's ends here, and begin to copy: threads, as a reader may be slow."""
        for number, given in self.given.items():
            if given != number:
                os.close(given)
        for ours, target in self._copies.items():
            lock = _thread.allocate_lock()
            lock.acquire()
            self._running.append(lock)
            _thread.start_new_thread(self._copy, (ours, target, lock))

    def _copy(self, ours: int, target: int, running: Any) -> None:
        try:
            while self._left > 0 and (data := os.read(ours, 65_536)):
                counted = len(data)
                data = data[: int(min(counted, self._left))]
                self._left -= counted
                while data:
                    data = data[os.write(target, data) :]
        except OSError:  # nobody reads any more
            pass
        finally:
            os.close(ours)
            running.release()

    def check(self) -> None:
        """Raise OverLimit if there was too much output."""
        if self._left < 0:
            raise watching.OverLimit("more output than allowed")

    def finish(self, seconds: float) -> None:
        """Wait until what the command has written before its end is copied."""
        ends = time.monotonic() + seconds
        for lock in self._running:
            if lock.acquire(timeout=max(0.0, ends - time.monotonic())):
                lock.release()


def is_harmless(number: int) -> bool:
    try:
        status = os.fstat(number)
    except OSError:  # closed
        return False
    if stat.S_ISCHR(status.st_mode):
        return os.path.samestat(status, os.stat(os.devnull))
    return stat.S_ISFIFO(status.st_mode) or stat.S_ISSOCK(status.st_mode)


def set_limits(limits: Limits) -> None:
    """Set what the system itself limits for each process."""
    wanted = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_NOFILE: limits["open_files"],
        resource.RLIMIT_FSIZE: limits["file_bytes"],
        resource.RLIMIT_DATA: limits["memory_bytes"],
        resource.RLIMIT_CPU: limits["cpu_seconds"],
        resource.RLIMIT_MEMLOCK: 65_536,
        resource.RLIMIT_MSGQUEUE: 65_536,
    }
    for kind, most in wanted.items():
        if most is not None:
            lower(kind, int(most))


def lower(kind: int, most: int, pid: int = 0) -> None:
    hard = resource.prlimit(pid, kind)[1]
    if hard != resource.RLIM_INFINITY:
        most = min(most, hard)
    resource.prlimit(pid, kind, (most, most))


def prefer_for_oom() -> None:
    """When the machine's memory runs out: this, not the server."""
    try:
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("900")
    except OSError:
        pass


# ---- drivers ---------------------------------------------------------------------------------


class Launched:
    """A command that was started."""

    def __init__(self, pid: int, top: int) -> None:
        self.pid = pid
        """The child of this process."""
        self.top = top
        """The process under which all others of the command are."""
        self.in_memory: list[str] = []
        """Folders of the command whose files are in memory."""
        self._top_file = os.pidfd_open(top)

    def end(self) -> None:
        """Kill the command and all its processes, and wait until they have ended."""
        if self.top == os.getpid():
            end_children()
            return
        try:
            signal.pidfd_send_signal(self._top_file, signal.SIGKILL)
        except ProcessLookupError:
            pass
        select.select([self._top_file], [], [], END_SECONDS)
        watching.kill(self.pid)

    def wait(self) -> int:
        """Return the exit code of the command, which has ended; leave none of its processes."""
        code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        if self.top == os.getpid():
            end_children()
        return code if code >= 0 else SIGNALLED - code


def reap() -> bool:
    """Collect the children that have ended; tell whether there are more."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def end_children() -> None:
    """Kill all processes below this one; their orphans become its children."""
    while left := watching.descendants(os.getpid(), MANY):
        for pid in left:
            watching.kill(pid)
        if not reap():
            return


def spawn(plan: Any, streams: Streams, argv: list[str], prepare: Callable[[], None]) -> int:
    """Start a program with the streams, limits and environment of the plan."""
    environment = plan["client_environment"]
    pid = os.fork()
    if pid:
        streams.started()
        return pid
    try:
        for number, given in streams.given.items():
            if given != number:
                os.dup2(given, number)
                os.close(given)
        prepare()
        os.execve(argv[0], argv, environment)
    except OSError as error:
        watching.say(f"{argv[0]} cannot be started: {error.strerror}")
    finally:
        os._exit(127)


def exit_code_of(pid: int) -> int:
    """Wait for a child that has made no sandbox, and return its exit code, which is not 0."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) or OVER_LIMIT


class HeldFile:
    """A file with a content; whoever reads it, waits at its end until it is let go.

    Its pipe has room for one packet: there is room for the second one when the first one is read.
    """

    def __init__(self, content: bytes) -> None:
        self.file, self._writer = os.pipe2(os.O_CLOEXEC | os.O_DIRECT)
        fcntl.fcntl(self._writer, fcntl.F_SETPIPE_SZ, 1)
        os.write(self._writer, content[:1])
        self._rest = content[1:]

    def wait(self) -> None:
        """Wait until somebody reads.

        Raises:
            BrokenPipeError: Nobody will.
        """
        os.write(self._writer, self._rest)

    def let_go(self) -> None:
        os.close(self._writer)


def data_file(data: bytes) -> int:
    number = os.memfd_create("plan", 0)
    os.write(number, data)
    os.lseek(number, 0, os.SEEK_SET)
    return number


def sealed_copy(program: str) -> str:
    """Return the path of a copy of a program that nobody can change.

    The program is the first process of the sandbox, which could open it for writing where both are
    root's (``/proc/1/exe``, CVE-2019-5736).
    """
    with open(program, "rb") as file:
        content = file.read()
    if not content.startswith(b"\x7fELF"):  # a script around it, which must keep its path
        return program
    try:
        number = os.memfd_create("bwrap", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    except OSError:
        return program
    os.write(number, content)
    fcntl.fcntl(number, fcntl.F_ADD_SEALS, SEALS)
    return f"/proc/self/fd/{number}"


def devices_protection() -> Callable[[], None]:
    """Return what makes the devices read-only for this process, in mounts of its own.

    They can still be written to. Else a sandbox of root, their owner, could change their modes.
    """
    if os.getuid():
        return lambda: None
    import ctypes  # noqa: PLC0415 - slow

    new_mounts, slave, bind, again, read_only = 0x20000, 0x84000, 0x1000, 0x1020, 0x3
    libc = ctypes.CDLL(None)
    paths = [b"/dev/" + name for name in DEVICES]

    def protect() -> None:
        if libc.unshare(new_mounts) or libc.mount(b"none", b"/", None, slave, None):
            return  # root of a container, whose devices are the container's
        for path in paths:
            libc.mount(path, path, None, bind, None)
            libc.mount(b"none", path, None, again | read_only, None)

    return protect


def start_bubblewrap(plan: Any, streams: Streams) -> Launched:
    """Start bubblewrap; the command runs when its mounts are right, and its limits are set."""
    info, info_end = os.pipe()
    mounts = Mounts(plan, bound_by(plan["options"]))
    held = HeldFile([*plan["files"].values()][-1].encode())
    argv, files = command_of(plan, held.file)
    argv[1:1] = ["--info-fd", str(info_end)]
    handed = [info_end, *files, *plan["keep_fds"]]
    protect_devices = devices_protection()

    def prepare() -> None:
        for number in handed:
            os.set_inheritable(number, True)
        protect_devices()
        prefer_for_oom()
        set_limits(plan["limits"])

    pid = spawn(plan, streams, argv, prepare)
    for number in handed:
        os.close(number)
    top = read_child_pid(info)
    if top is None:
        sys.exit(exit_code_of(pid))
    launched = Launched(pid, top)
    launched.in_memory = plan["in_memory"]
    try:
        held.wait()
    except BrokenPipeError:  # it has ended, and has said why
        sys.exit(exit_code_of(pid))
    lower(resource.RLIMIT_NPROC, plan["limits"]["processes"] + 2, top)
    try:
        mounts.complete(top)
    except (Replaced, OSError) as error:
        launched.end()
        watching.say(f"it cannot be made: {error}")
        sys.exit(OVER_LIMIT)
    held.let_go()
    return launched


def command_of(plan: Any, held: int) -> tuple[list[str], list[int]]:
    """Return the command line of bubblewrap, and the files that it reads, one of them held."""
    *contents, _ = plan["files"].values()
    files = [*(data_file(text.encode()) for text in contents), held]
    options = [*plan["options"]]
    for number, target in zip(files, plan["files"], strict=True):
        options += ["--perms", "0444", "--ro-bind-data", str(number), target]
    options += plan["last_options"]
    for name, value in plan["environment"].items():
        options += ["--setenv", name, value]
    files.append(data_file("".join(f"{option}\0" for option in options).encode()))
    program = plan["program"] if os.getuid() else sealed_copy(plan["program"])
    argv = [program, "--args", str(files[-1])]
    if plan["seccomp"]:
        files.append(data_file(bytes.fromhex(plan["seccomp"])))
        argv += ["--seccomp", str(files[-1])]
    return [*argv, "--", *plan["argv"]], files


def bound_by(options: list[str]) -> list[tuple[str, str]]:
    """Return the paths, outside and inside, of what options of bubblewrap mount by name."""
    return [
        (options[at + 1], options[at + 2])
        for at, option in enumerate(options)
        if option in ("--bind", "--ro-bind")
    ]


def read_child_pid(info: int) -> int | None:
    """Read ``{"child-pid": 123, …}``; None if bubblewrap ends before it has a child."""
    text = b""
    while not text.rstrip().endswith(b"}") and (part := os.read(info, 4096)):
        text += part
    os.close(info)
    number = text.partition(b'"child-pid":')[2].replace(b"}", b",").partition(b",")[0]
    return int(number) if number.strip() else None


def start_process(plan: Any, streams: Streams) -> Launched:
    """Start the command itself; what it leaves behind becomes a child of this process."""
    import ctypes  # noqa: PLC0415 - slow

    libc = ctypes.CDLL(None, use_errno=True)
    set_subreaper, die_with_parent, no_new_privileges = 36, 1, 38
    libc.prctl(set_subreaper, 1, 0, 0, 0)

    def prepare() -> None:
        libc.prctl(die_with_parent, signal.SIGKILL, 0, 0, 0)
        libc.prctl(no_new_privileges, 1, 0, 0, 0)
        close_all_but({0, 1, 2, *plan["keep_fds"]})
        prefer_for_oom()
        set_limits(plan["limits"])
        os.chdir(plan["workdir"])

    pid = spawn(plan, streams, plan["argv"], prepare)
    for number in plan["keep_fds"]:
        os.close(number)
    return Launched(pid, os.getpid())


def start_docker(plan: Any, streams: Streams) -> Launched:
    """Start the client of Docker; another process removes the container when this one is gone."""
    life, _ = os.pipe()  # the other end closes when this process ends, however it ends
    if os.fork() == 0:
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(null, number)
        close_all_but({0, 1, 2, life})
        while os.read(life, 1):
            pass
        os.execve(plan["remove"][0], plan["remove"], plan["client_environment"])
    os.close(life)
    variables = data_file(plan["variables"].encode())
    os.set_inheritable(variables, True)
    argv = [plan["program"], *plan["options"], "--env-file", f"/proc/self/fd/{variables}"]
    pid = spawn(plan, streams, [*argv, *plan["argv"]], lambda: None)
    return Launched(pid, pid)


DRIVERS = {"bubblewrap": start_bubblewrap, "process": start_process, "docker": start_docker}


# ---- the whole -------------------------------------------------------------------------------


def run(plan: Any, life: int, server: int) -> int:
    """Start the command, and return its exit code when it has ended or was ended.

    Args:
        plan: What to start.
        life: A pipe whose other end the first process holds.
        server: The process that waits for the command, as a file.
    """
    come_first()
    limits = plan["limits"]
    most = limits["output_bytes"]
    streams = Streams(watching.NO_LIMIT if most is None else most)
    watched = [open_place(folder) for folder in plan["watched"]]
    for folder in watched:
        watching.make_usable(folder)
    ends = time.monotonic() + (limits["seconds"] or watching.NO_LIMIT)
    launched = DRIVERS[plan["driver"]](plan, streams)
    try:
        ended = os.pidfd_open(launched.pid)
        watch = watching.Watch(launched.top, watched, launched.in_memory, limits)
        files = [ended, life, server]
        while ended not in (ready := select.select(files, [], [], watching.LOOK_SECONDS)[0]):
            check_end(ready, ends, limits["seconds"])
            streams.check()
            watch.look()
        streams.finish(COPY_SECONDS)
        streams.check()
    except watching.OverLimit as over:
        launched.end()
        watching.say(f"{over}; it is ended")
        streams.finish(COPY_SECONDS)
        return OVER_LIMIT
    return launched.wait()


def check_end(gone: list[int], ends: float, seconds: float) -> None:
    """Raise OverLimit when nobody waits for the command any more, or its time is over."""
    if gone:
        raise watching.OverLimit("the server has ended")
    if time.monotonic() > ends:
        raise watching.OverLimit(f"more than {seconds:g} seconds")


def come_first() -> None:
    """Take precedence over all commands: a fork bomb of root's would else delay the watch."""
    try:
        os.sched_setscheduler(0, os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(1))
    except OSError:  # an ordinary user, whose number of processes the kernel limits
        pass


def main() -> NoReturn:
    """Run the plan of the environment."""
    text = os.environ.pop(PLAN)  # noqa: TID251 - the server has put it there
    plan = marshal.loads(binascii.a2b_base64(text))  # noqa: S302 - made by the server
    close_all_but({0, 1, 2, *plan["keep_fds"]})
    server = os.pidfd_open(os.getppid())
    life, held = os.pipe()
    watcher = os.fork()
    if watcher:
        for number in plan["keep_fds"]:
            os.close(number)
        code = os.waitstatus_to_exitcode(os.waitpid(watcher, 0)[1])
        os._exit(code if code >= 0 else SIGNALLED - code)
    os.setsid()  # the process group of the first may be killed as well
    os.close(held)
    os._exit(run(plan, life, server))
