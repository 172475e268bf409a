"""Programs that run others, read only, or change the shell they are called in: what rules know."""

from __future__ import annotations

SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh", "mksh", "ash", "rbash", "fish", "busybox"})
EVALUATORS = frozenset({"eval", "trap", "alias"})
"""What runs its words as a command line."""
WRAPPERS = SHELLS | frozenset(
    {
        *("sudo", "doas", "su", "runuser", "env", "xargs", "parallel", "timeout", "nohup"),
        *("nice", "ionice", "chrt", "taskset", "setsid", "stdbuf", "unbuffer", "time"),
        *("command", "builtin", "exec", "find", "fd", "watch", "script", "ssh", "strace"),
        *("ltrace", "gdb", "flock", "chroot", "unshare", "nsenter", "bwrap", "firejail"),
        *("systemd-run", "coproc", "then", "do", "else", "if", "while", "until", "!", "{"),
        *("caffeinate", "entr", "at", "batch", "tmux", "screen", "pkexec", "proot", "fakeroot"),
        *("faketime", "catchsegv", "valgrind", "perf", "rlwrap", "setpriv", "capsh", "prlimit"),
        *("numactl", "cgexec", "daemonize", "start-stop-daemon", "toybox", "expect", "socat"),
    }
)
"""Programs that run another one, which their words name."""
READERS = frozenset(
    {
        *("echo", "cat", "ls", "cd", "pwd", "grep", "egrep", "fgrep", "wc", "head", "tail"),
        *("uniq", "cut", "tr", "mkdir", "rmdir", "touch", "stat", "file", "diff", "cmp"),
        *("test", "[", "[[", "true", "false", ":", "basename", "dirname", "realpath"),
        *("readlink", "date", "sleep", "seq", "du", "df", "id", "whoami", "uname", "which"),
        *("type", "printf", "export", "declare", "local", "readonly", "typeset", "unset"),
        *("chmod", "chown"),
    }
)
"""Programs that never run another one, whatever their words are."""
CHANGES_SHELL = frozenset(
    {
        *("cd", "pushd", "popd", "export", "declare", "typeset", "local", "readonly", "unset"),
        *("read", "alias", "unalias", "set", "shopt", "source", ".", "eval", "exec", "trap"),
        *("hash", "enable", "command", "builtin", "mapfile", "readarray", "printf", "let"),
        *("umask", "getopts", "time"),
    }
)
"""What may make another command of one that comes after it."""
NAMES_VARIABLES = frozenset(
    {
        *("declare", "typeset", "local", "readonly", "export", "unset", "test", "[", "printf"),
        *("read", "mapfile", "readarray", "wait", "getopts"),
    }
)
"""What expands the names of variables in its words, also those in quotes: ``x[$(rm a)]``."""

ACTING_OPTIONS: dict[str, tuple[str, ...]] = {
    "git": ("--output", "--open-files-in-pager", "--ext-diff", "-O"),
    "find": ("-delete", "-exec", "-ok", "-fprint", "-fls"),
    "fd": ("--exec", "-x", "-X"),
    "sort": ("--output", "--compress-program", "-o"),
    "tree": ("-o",),
    "rg": ("--pre", "--hostname-bin"),
}
"""Options by which programs that read write to a file or run another program."""
