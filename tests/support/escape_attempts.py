"""Attempts to get out of a sandbox: a script of the standard library that runs inside.

Each function tries one thing. It returns what it got, a text that proves the escape; it returns
None or raises when it got nothing. The script takes the facts about the outside as JSON in its
first argument and prints ``{name: ["held" | "ESCAPED", text]}``.
"""

import array
import ctypes
import fcntl
import json
import os
import platform
import resource
import signal
import socket
import stat
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

ATTEMPTS: dict[str, Callable[[dict], str | None]] = {}
NEEDS_CONFINEMENT: set[str] = set()
"""Attempts that succeed where nothing is confined, so that a failure means something."""
X86 = platform.machine() == "x86_64"


def attempt(*, unconfined: bool = False):
    def register(function):
        ATTEMPTS[function.__name__] = function
        if unconfined:
            NEEDS_CONFINEMENT.add(function.__name__)
        return function

    return register


def libc_call(name, *arguments):
    libc = ctypes.CDLL(None, use_errno=True)
    result = getattr(libc, name)(*arguments)
    if result == -1:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def system_call(x86, arm, *arguments):
    return libc_call("syscall", x86 if X86 else arm, *arguments)


def wrote(path):
    with open(path, "a") as file:
        file.write("# escaped\n")
    return f"wrote {path}"


# ---- files -----------------------------------------------------------------------------------


@attempt(unconfined=True)
def read_a_file_by_its_absolute_path(facts):
    return Path(facts["secret"]).read_text()


@attempt(unconfined=True)
def read_a_file_by_dots(facts):
    return Path(f"{os.getcwd()}{'/..' * 20}{facts['secret']}").read_text()


@attempt(unconfined=True)
def write_a_file_outside(facts):
    return wrote(f"{facts['outside']}/written")


@attempt(unconfined=True)
def follow_a_link_made_inside(facts):
    os.symlink(facts["secret"], "link-made-inside")
    return Path("link-made-inside").read_text()


@attempt(unconfined=True)
def follow_a_link_that_was_there(facts):
    return Path("link-to-secret").read_text()


@attempt(unconfined=True)
def write_through_a_link_to_a_folder(facts):
    return wrote("link-to-outside/written")


@attempt(unconfined=True)
def make_a_hard_link_to_a_file_outside(facts):
    os.link(facts["secret"], "hard-link")
    return Path("hard-link").read_text()


@attempt(unconfined=True)
def read_the_temporary_folder_of_the_machine(facts):
    return Path(facts["in_tmp"]).read_text()


@attempt(unconfined=True)
def list_the_home_of_the_user(facts):
    return " ".join(os.listdir(facts["home"]))


@attempt()
def read_the_password_hashes(facts):
    return Path("/etc/shadow").read_text()


@attempt(unconfined=True)
def read_the_configuration_of_the_machine(facts):
    return Path("/etc/fstab").read_text() + Path("/etc/machine-id").read_text()


@attempt()
def read_through_the_root_of_process_1(facts):
    return Path(f"/proc/1/root{facts['secret']}").read_text()


@attempt()
def read_through_the_folder_of_process_1(facts):
    return Path(f"/proc/1/cwd{'/..' * 20}{facts['secret']}").read_text()


@attempt(unconfined=True)
def read_through_the_root_of_any_process(facts):
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            return Path(f"{folder}/root{facts['secret']}").read_text()
        except OSError:
            continue
    return None


@attempt()
def use_an_open_file_of_the_server(facts):
    """The starter leaves a file of its own open."""
    for name in os.listdir("/proc/self/fd"):
        try:
            text = os.pread(int(name), 100, 0).decode()
        except (OSError, UnicodeDecodeError):
            continue
        if "secret" in text:
            return text
    return None


@attempt()
def overwrite_the_program_that_started_it(facts):
    """As CVE-2019-5736 did with runc."""
    os.open("/proc/1/exe", os.O_WRONLY)
    return "opened for writing"


@attempt()
def open_a_file_by_its_handle(facts):
    """As the program *shocker* left Docker: inode 2 is the root of most file systems."""
    handle = struct.pack("=IIQ", 8, 1, 2)
    buffer = ctypes.create_string_buffer(handle)
    here = os.open(".", os.O_RDONLY)
    return f"folder {system_call(304, 265, here, buffer, os.O_RDONLY)}"


# ---- places that are read-only ---------------------------------------------------------------


@attempt()
def write_among_the_programs(facts):
    return wrote("/usr/bin/escaped")


@attempt()
def write_in_the_root_folder(facts):
    return wrote("/escaped")


@attempt()
def write_among_the_settings_of_the_machine(facts):
    return wrote("/etc/ld.so.preload")


@attempt()
def add_a_user(facts):
    return wrote("/etc/passwd")


@attempt()
def change_the_standard_library(facts):
    return wrote(json.__file__)


@attempt()
def leave_code_in_the_site_packages(facts):
    return wrote(f"{facts['site_packages']}/escaped.pth")


@attempt()
def change_the_code_of_the_server(facts):
    return wrote(f"{facts['package']}/__init__.py")


@attempt()
def change_the_launcher(facts):
    return wrote(f"{facts['package']}/sandbox/launcher.py")


@attempt()
def change_the_mode_of_a_program(facts):
    os.chmod(os.path.realpath(sys.executable), 0o777)
    return "changed"


@attempt()
def write_through_the_root_of_itself(facts):
    return wrote("/proc/self/root/usr/bin/escaped")


@attempt(unconfined=True)
def leave_a_hook_of_git(facts):
    return wrote(".git/hooks/post-commit")


@attempt(unconfined=True)
def leave_a_command_in_the_configuration_of_git(facts):
    return wrote(".git/config")


@attempt()
def replace_the_folder_of_git(facts):
    """Last of the three, as it moves the folder away."""
    os.rename(".git", "old-git")
    return "renamed"


@attempt(unconfined=True)
def write_into_a_folder_given_for_reading(facts):
    return wrote(f"{facts['readonly']}/written")


@attempt(unconfined=True)
def leave_a_start_file_in_the_home(facts):
    return wrote(f"{facts['home']}/.profile")


# ---- devices, mounts, namespaces -------------------------------------------------------------


@attempt()
def open_a_disk(facts):
    for path in [*Path("/dev").glob("*"), *Path("/dev").glob("*/*")]:
        if stat.S_ISBLK(path.stat().st_mode):
            os.open(path, os.O_RDONLY)
            return str(path)
    return None


@attempt()
def open_the_memory_of_the_machine(facts):
    for name in ("mem", "kmem", "port", "kmsg", "kvm", "fuse", "net/tun", "vhost-vsock"):
        try:
            os.open(f"/dev/{name}", os.O_RDONLY)
        except OSError:
            continue
        return name
    return None


@attempt()
def make_the_device_of_a_disk(facts):
    major, minor = facts["disk"]
    os.mknod("disk", 0o600 | stat.S_IFBLK, os.makedev(major, minor))
    return f"device {os.open('disk', os.O_RDONLY)}"


@attempt()
def change_the_devices_of_the_machine(facts):
    """Of root's server they are of the same owner; what is set is what they have."""
    changed = []
    for name in ("null", "zero", "full", "random", "urandom", "tty"):
        path = f"/dev/{name}"
        status = os.stat(path)
        for change, *values in (
            (os.chmod, stat.S_IMODE(status.st_mode)),
            (os.chown, status.st_uid, status.st_gid),
            (os.utime, (status.st_atime, status.st_mtime)),
        ):
            try:
                change(path, *values)
            except OSError:
                continue
            changed.append(path)
    return " ".join(changed) if facts["confined"] else None


@attempt()
def mount_a_file_system(facts):
    libc_call("mount", b"none", b"/tmp", b"tmpfs", 0, None)
    return "mounted"


@attempt()
def mount_proc_again(facts):
    os.mkdir("proc")
    libc_call("mount", b"proc", b"proc", b"proc", 0, None)
    return "mounted"


@attempt()
def make_the_system_writable(facts):
    remount, bind = 32, 4096
    libc_call("mount", b"none", b"/usr", None, remount | bind, None)
    return wrote("/usr/bin/escaped")


@attempt()
def make_a_mount_by_the_new_calls(facts):
    return f"mount {system_call(430, 430, b'tmpfs', 0)}"


@attempt()
def remove_a_mount(facts):
    libc_call("umount2", b"/etc/passwd", 2)
    return "removed"


@attempt()
def change_the_root_folder(facts):
    os.chroot(".")
    return "changed"


@attempt()
def make_a_user_namespace(facts):
    libc_call("unshare", 0x10000000)
    return "made"


@attempt()
def make_a_user_namespace_by_clone3(facts):
    arguments = struct.pack("=8Q", 0x10000000, 0, 0, 0, signal.SIGCHLD, 0, 0, 0)
    pid = system_call(435, 435, ctypes.create_string_buffer(arguments), len(arguments))
    if pid == 0:
        os._exit(0)
    return "made"


@attempt()
def make_a_namespace_by_the_program_unshare(facts):
    done = subprocess.run(["unshare", "-Urm", "id"], capture_output=True, check=True, text=True)
    return done.stdout


@attempt()
def enter_the_namespaces_of_process_1(facts):
    for name in ("mnt", "user", "net", "pid"):
        libc_call("setns", os.open(f"/proc/1/ns/{name}", os.O_RDONLY), 0)
    return "entered"


@attempt()
def have_a_capability(facts):
    for line in Path("/proc/self/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name in ("CapEff", "CapPrm", "CapBnd", "CapAmb") and int(value, 16):
            return line
    return None


@attempt()
def become_another_user(facts):
    """Also by a program with the setuid bit that was put into the folder."""
    before = os.geteuid()
    for uid in (0, 1, 65534):
        try:
            os.setresuid(uid, uid, uid)
        except OSError:
            continue
        if os.geteuid() != before:
            return f"user {os.geteuid()}"
    done = subprocess.run(["./setuid-id", "-u"], capture_output=True, check=True, text=True)
    return done.stdout if int(done.stdout) != before else None


@attempt()
def get_privileges_by_executing(facts):
    get_no_new_privileges = 39
    return None if libc_call("prctl", get_no_new_privileges, 0, 0, 0, 0) else "possible"


# ---- processes -------------------------------------------------------------------------------


@attempt(unconfined=True)
def see_a_process_outside(facts):
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:  # it has ended
            continue
        if facts["victim_name"].encode() in words:
            return str(folder)
    return None


@attempt()
def speak_by_the_output_of_the_first_process(facts):
    """It is bubblewrap, which holds the same standard output as a server that runs inside."""
    number = os.open("/proc/1/fd/1", os.O_WRONLY)
    return f"opened {number}"


@attempt()
def see_an_environment_with_secrets(facts):
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            text = (folder / "environ").read_text()
        except OSError:
            continue
        if facts["server_secret"] in text:
            return str(folder)
    return None


@attempt()
def have_a_secret_in_the_environment(facts):
    return os.environ.get("SERVER_SECRET")


@attempt(unconfined=True)
def signal_a_process_outside(facts):
    os.kill(facts["victim"], 0)
    return "possible"


@attempt()
def kill_everything(facts):
    """That the process outside goes on is looked at afterwards."""
    if facts["confined"]:
        for signal_number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.kill(1, signal_number)
            except OSError:
                continue
        for pid in range(max(2, facts["victim"] - 3), facts["victim"] + 3):
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                continue


@attempt()
def trace_a_process_outside(facts):
    libc_call("ptrace", 16, facts["victim"], 0, 0)
    return "attached"


@attempt()
def trace_the_first_process(facts):
    libc_call("ptrace", 16, 1, 0, 0)
    return "attached"


@attempt()
def read_the_memory_of_a_process_outside(facts):
    number = os.open(f"/proc/{facts['victim']}/mem", os.O_RDWR)
    command = Path(f"/proc/{facts['victim']}/cmdline").read_text()
    return f"memory {number}" if facts["victim_name"] in command else None


@attempt()
def read_the_memory_of_another_process(facts):
    buffer = ctypes.create_string_buffer(8)
    vector = struct.pack("=QQ", ctypes.addressof(buffer), 8)
    local = ctypes.create_string_buffer(vector)
    system_call(310, 270, os.getppid(), local, 1, local, 1, 0)
    return "read"


@attempt()
def take_a_file_of_another_process(facts):
    handle = os.pidfd_open(os.getppid())
    return f"file {system_call(438, 438, handle, 1, 0)}"


@attempt()
def protect_itself_from_the_end_of_memory(facts):
    Path("/proc/self/oom_score_adj").write_text("-1000")
    return "protected"


@attempt()
def raise_its_own_limits(facts):
    for kind in (resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE, resource.RLIMIT_DATA):
        hard = resource.getrlimit(kind)[1]
        if hard == resource.RLIM_INFINITY:
            return f"no limit {kind}"
        try:
            resource.setrlimit(kind, (hard, hard * 2))
        except (OSError, ValueError):
            continue
        return f"raised {kind}"
    return None


@attempt(unconfined=True)
def lower_the_limits_of_another_process(facts):
    kind = resource.RLIMIT_CORE
    resource.prlimit(os.getppid(), kind, (0, resource.getrlimit(kind)[1]))
    return "lowered"


@attempt()
def take_more_of_the_processor(facts):
    os.nice(-5)
    return "taken"


# ---- network ---------------------------------------------------------------------------------


@attempt(unconfined=True)
def reach_the_server_over_loopback(facts):
    return str(socket.create_connection(("127.0.0.1", facts["port"]), 2))


@attempt(unconfined=True)
def reach_the_server_over_loopback_6(facts):
    return str(socket.create_connection(("::1", facts["port6"]), 2))


@attempt()
def reach_an_address_of_the_machine(facts):
    for address in facts["addresses"]:
        try:
            return str(socket.create_connection((address, facts["port_everywhere"]), 2))
        except OSError:
            continue
    return None


@attempt()
def reach_the_world(facts):
    return str(socket.create_connection(("1.1.1.1", 53), 2))


@attempt()
def look_up_a_name(facts):
    return str(socket.getaddrinfo("example.com", 80))


@attempt()
def send_a_datagram_to_the_server(facts):
    """That it did not arrive is looked at afterwards."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.sendto(b"escaped" if facts["confined"] else b"", ("127.0.0.1", facts["udp_port"]))


@attempt(unconfined=True)
def connect_to_a_socket_by_its_path(facts):
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(facts["socket_path"])
    return "connected"


@attempt(unconfined=True)
def connect_to_an_abstract_socket(facts):
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(f"\0{facts['abstract']}")
    return "connected"


@attempt()
def connect_to_d_bus_or_docker(facts):
    paths = [
        *("/run/dbus/system_bus_socket", "/var/run/docker.sock", "/run/podman/podman.sock"),
        *map(str, Path("/run/user").glob("*/bus")),
        *("/run/systemd/private", "/tmp/.X11-unix/X0"),
    ]
    for path in paths:
        with socket.socket(socket.AF_UNIX) as client:
            try:
                client.connect(path)
            except OSError:
                continue
            return path
    return None


@attempt(unconfined=True)
def see_a_network_interface(facts):
    names = [name for _, name in socket.if_nameindex() if name != "lo"]
    return " ".join(names) if names or facts["confined"] else "only lo here"


@attempt()
def open_a_vsock(facts):
    """No namespace separates it: it would reach the host of a virtual machine."""
    socket.socket(40, socket.SOCK_STREAM)
    return "opened"


@attempt()
def open_a_raw_socket(facts):
    socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    return "opened"


@attempt()
def open_a_socket_of_the_kernels_ciphers(facts):
    socket.socket(38, socket.SOCK_SEQPACKET)
    return "opened"


# ---- the kernel ------------------------------------------------------------------------------


@attempt()
def change_a_setting_of_the_kernel(facts):
    path = Path("/proc/sys/vm/swappiness")
    path.write_text(path.read_text())
    return "written"


@attempt()
def read_what_only_root_may_know_of_the_kernel(facts):
    """Where things are in its memory helps to attack it; ``keys`` names those of the server."""
    names = ["keys", "kpageflags", "pagetypeinfo", "slabinfo", "timer_list", "vmallocinfo"]
    known = []
    for name in [*names, "tty/driver/serial"]:
        try:
            known += [name] if Path("/proc", name).read_bytes() else []
        except OSError:
            continue
    return " ".join(known)


@attempt()
def name_a_program_for_core_files(facts):
    os.open("/proc/sys/kernel/core_pattern", os.O_WRONLY)
    return "opened for writing"


@attempt()
def pull_the_emergency_brake(facts):
    os.open("/proc/sysrq-trigger", os.O_WRONLY)
    return "opened for writing"


@attempt()
def use_the_control_groups(facts):
    return " ".join(os.listdir("/sys/fs/cgroup"))


@attempt()
def change_devices_through_sys(facts):
    return " ".join(os.listdir("/sys/class"))


@attempt()
def add_a_key_to_the_keyring(facts):
    return f"key {system_call(248, 217, b'user', b'escaped', b'x', 1, -4)}"


@attempt()
def read_the_keyring(facts):
    return f"key {system_call(250, 219, 0, -4, 0)}"


@attempt()
def load_a_program_into_the_kernel(facts):
    return f"map {system_call(321, 280, 0, ctypes.create_string_buffer(128), 128)}"


@attempt()
def use_io_uring(facts):
    return f"ring {system_call(425, 425, 4, ctypes.create_string_buffer(128))}"


@attempt()
def handle_page_faults(facts):
    return f"handle {system_call(323, 282, 0)}"


@attempt()
def measure_the_kernel(facts):
    attributes = ctypes.create_string_buffer(struct.pack("=IIQ", 1, 112, 0) + bytes(96))
    return f"event {system_call(298, 241, attributes, 0, -1, -1, 0)}"


@attempt()
def load_a_module(facts):
    system_call(175, 105, b"", 0, b"")
    return "loaded"


@attempt()
def read_the_log_of_the_kernel(facts):
    buffer = ctypes.create_string_buffer(1000)
    return f"bytes {system_call(103, 116, 3, buffer, 1000)}"


@attempt()
def set_the_clock(facts):
    time.clock_settime(time.CLOCK_REALTIME, time.time())
    return "set"


@attempt()
def use_calls_by_their_x32_numbers(facts):
    if X86:
        pid = system_call(0x40000000 + 39, 0)
        return f"process {pid}"
    return None


@attempt()
def type_into_the_terminal(facts):
    for number in (0, 1, 2, os.open("/dev/tty", os.O_RDWR)):
        try:
            fcntl.ioctl(number, 0x5412, array.array("b", b"x"))
        except OSError:
            continue
        return f"typed into {number}"
    return None


@attempt()
def make_memory_that_is_not_counted(facts):
    try:
        return f"file {os.memfd_create('escaped')}"
    except OSError:
        return f"segment {system_call(29, 194, 0, 4096, 0o1600)}"


@attempt(unconfined=True)
def leave_a_program_that_runs_as_its_owner(facts):
    """A file with the set-user bit, for whoever is outside."""
    mode = 0o4755
    Path("program").touch()
    how = struct.pack("=QQQ", os.O_CREAT | os.O_WRONLY, mode, 0)
    ways = [
        lambda: os.chmod("program", mode),
        lambda: os.fchmod(os.open("program", os.O_RDONLY), mode),
        lambda: os.chmod("program", mode, dir_fd=os.open(".", os.O_RDONLY)),
        lambda: system_call(452, 452, -100, b"program", mode, 0),
        lambda: os.open("program1", os.O_CREAT | os.O_WRONLY, mode),
        lambda: libc_call("creat", b"program2", mode),
        lambda: os.mknod("program3", mode | stat.S_IFREG),
        lambda: system_call(437, 437, -100, b"program4", ctypes.create_string_buffer(how, 24), 24),
    ]
    for way in ways:
        try:
            way()
        except OSError:
            continue
    made = [path for path in Path().glob("program*") if path.stat().st_mode & 0o6000]
    return " ".join(map(str, made))


@attempt(unconfined=True)
def hold_a_file_against_its_readers(facts):
    """A lease has whoever opens the file, outside, wait for it."""
    fcntl.fcntl(os.open("attempts.py", os.O_RDONLY), fcntl.F_SETLEASE, fcntl.F_RDLCK)
    return "held"


@attempt(unconfined=True)
def use_what_is_counted_for_the_user(facts):
    """Watches of files, and requests, of which the user of the server has so many."""
    ways = [lambda: libc_call("inotify_init1", 0)]
    if X86:
        ways += [
            lambda: libc_call("inotify_init"),
            lambda: system_call(206, 0, 1, ctypes.create_string_buffer(8)),
        ]
    ways += [lambda: system_call(64, 190, 0, 1, 0o1600), lambda: system_call(68, 186, 0, 0o1600)]
    made = []
    for number, way in enumerate(ways[: None if facts["confined"] else 1]):
        try:
            way()
        except OSError:
            continue
        made.append(str(number))
    return " ".join(made)


@attempt(unconfined=True)
def hide_open_files_from_the_limits(facts):
    """Files of one thread alone are not seen in the folder of its process."""
    libc_call("unshare", 0x400)
    return "unshared"


@attempt()
def share_memory_with_the_machine(facts):
    """That it is not seen outside is looked at afterwards."""
    if facts["confined"]:
        Path(f"/dev/shm/{facts['victim_name']}").write_text("escaped")


@attempt()
def rename_the_machine(facts):
    if facts["confined"]:
        socket.sethostname("escaped")
        return "renamed"
    return None


def run(name: str, facts: dict) -> list[str]:
    """Try one in a process of its own, as it may be killed."""
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        signal.alarm(10)
        try:
            proof = ATTEMPTS[name](facts)
            outcome = ["ESCAPED", proof] if proof else ["held", "nothing was got"]
        except BaseException as error:  # noqa: BLE001
            outcome = ["held", str(error) or type(error).__name__]
        os.write(writing, json.dumps(outcome).encode()[:4000])
        os._exit(0)
    os.close(writing)
    text = b""
    while part := os.read(reading, 4096):
        text += part
    os.close(reading)
    status = os.waitpid(pid, 0)[1]
    return json.loads(text) if text else ["held", f"ended with status {status}"]


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    print(json.dumps({name: run(name, given) for name in given.get("only") or ATTEMPTS}))
