"""Run a program as on a system without POSIX: `python no_posix.py ARGS` is `cnllm ARGS`, `-c CODE` runs code.

What Python has on Windows stays. The standard library is imported before, because its own modules of this system need
the names. cnllm is imported after, and finds none of them.
"""

from __future__ import annotations

import asyncio
import concurrent.futures  # noqa: F401
import importlib
import logging.handlers  # noqa: F401
import multiprocessing.util  # noqa: F401
import os
import select  # noqa: F401
import selectors
import signal  # noqa: F401
import socket  # noqa: F401
import sqlite3  # noqa: F401
import ssl  # noqa: F401
import subprocess
import sys
import tempfile  # noqa: F401
import threading  # noqa: F401
import uuid  # noqa: F401
from typing import Any

__all__ = ["MODULES", "NAMES", "remove_names"]

_OS = """
geteuid getuid getegid getgid getgroups getgrouplist getlogin setuid setgid seteuid setegid setreuid setregid
getresuid getresgid initgroups setgroups fchmod fchown chown lchown lchmod chflags chroot fchdir mkfifo mknod major
minor makedev fork forkpty posix_spawn posix_spawnp register_at_fork setsid getsid setpgid getpgid getpgrp setpgrp
killpg nice getpriority setpriority getloadavg wait wait3 wait4 waitid WNOHANG WUNTRACED WIFEXITED WEXITSTATUS
WIFSIGNALED WTERMSIG WIFSTOPPED WSTOPSIG WCOREDUMP WCONTINUED pidfd_open P_PID P_PIDFD pread preadv pwrite pwritev
readv writev sendfile copy_file_range splice posix_fadvise posix_fallocate lockf fdatasync sync statvfs fstatvfs uname
sysconf confstr pathconf fpathconf ctermid openpty tcgetpgrp tcsetpgrp ttyname pipe2 sched_yield
sched_setaffinity sched_setscheduler memfd_create eventfd eventfd_read eventfd_write timerfd_create getxattr setxattr
listxattr removexattr O_NOFOLLOW O_DIRECTORY O_NONBLOCK O_CLOEXEC O_NOCTTY O_SYNC O_DSYNC O_RSYNC O_PATH O_TMPFILE
O_NOATIME O_ASYNC O_DIRECT O_NDELAY O_LARGEFILE F_LOCK F_ULOCK F_TLOCK F_TEST EX_OK EX_USAGE EX_DATAERR EX_NOINPUT
EX_SOFTWARE EX_OSERR EX_CANTCREAT EX_IOERR EX_TEMPFAIL EX_NOPERM EX_CONFIG
"""
_SIGNAL = """
SIGHUP SIGQUIT SIGKILL SIGPIPE SIGALRM SIGUSR1 SIGUSR2 SIGCHLD SIGCLD SIGCONT SIGSTOP SIGTSTP SIGTTIN SIGTTOU SIGBUS
SIGPOLL SIGPROF SIGSYS SIGTRAP SIGURG SIGVTALRM SIGXCPU SIGXFSZ SIGIO SIGPWR SIGWINCH SIGRTMIN SIGRTMAX ITIMER_REAL
ITIMER_VIRTUAL ITIMER_PROF setitimer getitimer alarm pause pthread_kill pthread_sigmask SIG_BLOCK SIG_UNBLOCK
SIG_SETMASK sigpending sigwait sigwaitinfo sigtimedwait siginterrupt
"""

NAMES: dict[str, tuple[str, ...]] = {
    "os": tuple(_OS.split()),
    "signal": tuple(_SIGNAL.split()),
    "select": ("poll", "epoll", "kqueue", "devpoll", "POLLIN", "POLLOUT", "POLLERR", "POLLHUP", "EPOLLIN"),
    "socket": ("SO_REUSEPORT", "sethostname", "CMSG_LEN", "SCM_RIGHTS"),
}
"""Names that Python has on POSIX and not on Windows, by module."""
MODULES = ("fcntl", "resource", "pwd", "grp", "termios", "tty", "pty", "syslog", "readline", "curses", "uvloop")
"""Modules that Python has on POSIX and not on Windows."""


def _refuse(*args: Any, **options: Any) -> Any:
    raise NotImplementedError


def remove_names() -> None:
    """Remove them from this process."""
    for module, names in NAMES.items():
        for name in names:
            if hasattr(sys.modules[module], name):
                delattr(sys.modules[module], name)
    os.supports_dir_fd = set()
    os.supports_effective_ids = set()
    os.supports_fd = os.supports_fd & {os.stat, os.truncate, os.chdir}
    for module in MODULES:
        sys.modules[module] = None  # type: ignore[assignment]  # an import of it fails
    setattr(selectors, "DefaultSelector", selectors.SelectSelector)  # noqa: B010 - types say that nobody may
    setattr(subprocess, "_PopenSelector", selectors.SelectSelector)  # noqa: B010
    setattr(subprocess, "_USE_POSIX_SPAWN", False)  # noqa: B010
    for kind in (asyncio.SelectorEventLoop, asyncio.BaseEventLoop):  # as those of Windows do
        setattr(kind, "add_signal_handler", _refuse)  # noqa: B010
        setattr(kind, "remove_signal_handler", _refuse)  # noqa: B010


def main(args: list[str]) -> int:
    """Run the command, or the code after `-c`."""
    for module in (
        "httpx",
        "httpcore",
        "anyio._backends._asyncio",
        "uvicorn",
        "click",
        "platformdirs.unix",
        "prometheus_client",
    ):
        importlib.import_module(module)
    remove_names()
    if args[:1] == ["-c"]:
        sys.argv = ["-c", *args[2:]]
        exec(compile(args[1], "<code>", "exec"), {"__name__": "__main__"})
        return 0
    from cnllm.cli import program

    sys.argv = ["cnllm", *args]
    return program()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
