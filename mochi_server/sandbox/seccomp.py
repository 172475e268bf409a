"""The filter of system calls in a sandbox, as a program for the kernel (seccomp, classic BPF).

Namespaces and missing capabilities refuse most of this already; the filter also keeps what is left
of the kernel's attack surface, and what would reach other processes of the sandbox, from a command.
"""

from __future__ import annotations

import errno
import platform
import struct
from collections.abc import Iterator
from functools import cache

_ARCHES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
"""By machine: the kernel's number of the architecture, and the column of the tables."""

_DENIED = {
    # Other processes
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "kcmp": (312, 272),
    "pidfd_getfd": (438, 438),
    # Keys of the kernel, which no namespace separates completely
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    # Mounts and namespaces
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "move_mount": (429, 429),
    "open_tree": (428, 428),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "setns": (308, 268),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "open_by_handle_at": (304, 265),
    # The kernel and the machine
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "fanotify_init": (300, 262),
    "syslog": (103, 116),
    "acct": (163, 89),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "reboot": (169, 142),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "adjtimex": (159, 171),
    "clock_adjtime": (305, 266),
    "iopl": (172, None),
    "ioperm": (173, None),
    "modify_ldt": (154, None),
}
"""Refused with EPERM: numbers on x86-64 and on 64-bit ARM."""

_MISSING = {
    "openat2": (437, 437),  # its mode cannot be looked at
    "clone3": (435, 435),  # its flags cannot be looked at; the C library falls back to clone
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    # Memory that no limit of a process counts
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "shmget": (29, 194),
    "semget": (64, 190),
    "msgget": (68, 186),
    # What is counted for the user, with the processes of the server
    "io_setup": (206, 0),
    "inotify_init": (253, None),
    "inotify_init1": (294, 26),
}
"""As if the kernel did not have them (ENOSYS): programs then do without."""

_NEW_NAMESPACES = 0x7E020000
"""Every CLONE_NEW flag."""
_OWN_FILES = 0x400
"""CLONE_FILES: files of a thread alone, which are not seen in ``/proc`` of its process."""
_FLAGS = {
    "clone": ((56, 220), _NEW_NAMESPACES),
    "unshare": ((272, 97), _NEW_NAMESPACES | _OWN_FILES),
}
_SET_USER = 0o6000
"""Of a mode: the program would run as its owner, also outside."""
_MODES = {
    "chmod": ((90, None), 1),
    "fchmod": ((91, 52), 1),
    "fchmodat": ((268, 53), 2),
    "fchmodat2": ((452, 452), 2),
    "creat": ((85, None), 1),
    "mknod": ((133, None), 1),
    "mknodat": ((259, 33), 2),
}
"""Calls that set a mode, and the position of that argument."""
_OPEN = {"open": ((2, None), 1), "openat": ((257, 56), 2)}
"""Calls that set a mode, if they make a file, and the position of their flags."""
_MAKES_FILE = 0o100 | 0o20000000
"""O_CREAT and O_TMPFILE."""
_IOCTL, _SOCKET, _FCNTL, _PRLIMIT = (16, 29), (41, 198), (72, 25), (302, 261)
_LEASE = 1024
"""F_SETLEASE has whoever opens the file, outside, wait."""
_TERMINAL_INPUT = (0x5412, 0x541C)
"""TIOCSTI and TIOCLINUX type into a terminal."""
_FAMILIES = (1, 2, 10, 16)
"""Of sockets: Unix, IPv4, IPv6, and netlink, which looking up names needs. No namespace separates
others, such as vsock, which reaches the host of a virtual machine."""

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _ERROR, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_NUMBER, _ARCH, _ARGUMENTS = 0, 4, 16
_X32 = 0x40000000

_Instruction = tuple[int, int, int, int]


@cache
def seccomp_filter(machine: str = platform.machine()) -> bytes:
    """Return the filter for a kind of machine; empty for one that has none here."""
    if machine not in _ARCHES:
        return b""
    return b"".join(struct.pack("=HBBI", *each) for each in _program(*_ARCHES[machine]))


def _program(arch: int, column: int) -> Iterator[_Instruction]:
    yield _LOAD, 0, 0, _ARCH
    yield _EQUAL, 1, 0, arch
    yield _RETURN, 0, 0, _KILL
    yield _LOAD, 0, 0, _NUMBER
    if not column:
        yield from _refuse(_AT_LEAST, _X32, errno.ENOSYS)
    for table, error in ((_DENIED, errno.EPERM), (_MISSING, errno.ENOSYS)):
        for numbers in table.values():
            number = numbers[column]
            if number is not None:
                yield from _refuse(_EQUAL, number, error)
    for numbers, flags in _FLAGS.values():
        rules = [*_argument(0), *_refuse(_ANY_BIT, flags, errno.EPERM)]
        yield from _only_for(numbers[column], rules)
    yield from _modes(column)
    # Of others: a limit of its processor time would end the server that has started a command.
    rules = [*_argument(0), (_EQUAL, 1, 0, 0), (_RETURN, 0, 0, _ERROR | errno.EPERM)]
    yield from _only_for(_PRLIMIT[column], rules)
    rules = [*_argument(1), *_refuse(_EQUAL, _LEASE, errno.EPERM)]
    yield from _only_for(_FCNTL[column], rules)
    rules = _argument(1)
    for request in _TERMINAL_INPUT:
        rules += _refuse(_EQUAL, request, errno.EPERM)
    yield from _only_for(_IOCTL[column], rules)
    rules = _argument(0)
    for family in _FAMILIES:
        rules += [(_EQUAL, 0, 1, family), (_RETURN, 0, 0, _ALLOW)]
    rules.append((_RETURN, 0, 0, _ERROR | errno.EAFNOSUPPORT))
    yield from _only_for(_SOCKET[column], rules)
    yield _RETURN, 0, 0, _ALLOW


def _modes(column: int) -> Iterator[_Instruction]:
    for numbers, position in _MODES.values():
        number = numbers[column]
        if number is not None:
            rules = [*_argument(position), *_refuse(_ANY_BIT, _SET_USER, errno.EPERM)]
            yield from _only_for(number, rules)
    for numbers, position in _OPEN.values():
        number = numbers[column]
        if number is not None:
            rules = [*_argument(position + 1), *_refuse(_ANY_BIT, _SET_USER, errno.EPERM)]
            skip = (_ANY_BIT, 0, len(rules), _MAKES_FILE)
            yield from _only_for(number, [*_argument(position), skip, *rules])


def _refuse(test: int, value: int, error: int) -> list[_Instruction]:
    return [(test, 0, 1, value), (_RETURN, 0, 0, _ERROR | error)]


def _argument(position: int) -> list[_Instruction]:
    """Load the lower half of an argument."""
    return [(_LOAD, 0, 0, _ARGUMENTS + 8 * position)]


def _only_for(number: int, rules: list[_Instruction]) -> list[_Instruction]:
    """Apply rules to one system call, then have its number loaded again."""
    rules = [*rules, (_LOAD, 0, 0, _NUMBER)]
    return [(_EQUAL, 0, len(rules), number), *rules]
