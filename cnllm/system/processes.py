"""Processes: start and end them, their signals, limits, workers and event loops, and what a forked child starts with.

Whatever systems do in different ways is here. A system without `os.fork` runs one process. A forked child (gunicorn,
multiprocessing) has a copy of every socket and every lock, but none of the threads. It closes its copies of registered
sockets at once, frees registered locks, and registered owners drop their inherited state. The child sends no TLS or TCP
close, which the peer would take for the parent's.
"""

from __future__ import annotations

import functools
import os
import select
import signal
import stat
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypeVar

from cnllm.errors import CnllmError

if TYPE_CHECKING:
    import asyncio
    import logging

__all__ = [
    "INHERITED",
    "become",
    "cached_property",
    "can_fork",
    "drop_after_fork",
    "fork_safe",
    "generation",
    "handle_interrupt",
    "is_alive",
    "loop_factory",
    "loop_reads_pipes",
    "on_hangup",
    "raise_file_limit",
    "register_socket",
    "run_in_front",
    "run_workers",
    "start_companion",
    "start_time",
]

INHERITED = "the connection belongs to the process that forked this one"


class ProcessBound(Protocol):
    """An object with connections or other state of one process."""

    def drop_inherited(self) -> None:
        """Start empty in a child process. No other thread runs there yet."""


T = TypeVar("T")
_FORKS = hasattr(os, "register_at_fork")
_LOOK = 0.2  # seconds between two looks at a process, where the system cannot wait for it
_RELOAD_SECONDS = 10.0  # the first process waits so long for the others to read the files
_SHORT_LIFE = 2.0  # seconds
_LOOK_SECONDS = 0.1  # between two looks for workers that ended
_MOST_FAILURES = 5  # workers in a row that end so soon
_sockets: dict[int, int] = {}  # descriptor → inode, which differs for a later file with the same descriptor
_locks: weakref.WeakSet[Any] = weakref.WeakSet()
_owners: weakref.WeakSet[ProcessBound] = weakref.WeakSet()
_pid = os.getpid()
_generation = 0


def generation() -> int:
    """Return a number that this process shares with none of its parents. State is kept for one generation."""
    if os.getpid() != _pid:  # forked by code that does not run Python's hooks
        _reset_child()
    return _generation


def register_socket(descriptor: int) -> None:
    """Close a socket in forked children. A socket that this process closes need not be reported."""
    if _FORKS and descriptor >= 0:
        with suppress(OSError):
            _sockets[descriptor] = os.fstat(descriptor).st_ino


def drop_after_fork(owner: ProcessBound) -> None:
    """Call `owner.drop_inherited()` in each forked child, before any other code runs there."""
    _owners.add(owner)


def fork_safe(lock: T) -> T:
    """Free a lock or a condition in forked children, whichever thread holds it in the parent."""
    _locks.add(lock)
    return lock


class cached_property(functools.cached_property[T]):
    """`functools.cached_property` whose lock (of Python 3.11) is free in forked children."""

    def __init__(self, function: Callable[[Any], T]) -> None:
        super().__init__(function)
        lock = getattr(self, "lock", None)
        if lock is not None:
            fork_safe(lock)


def _reset_child() -> None:
    """Reset the state of a new process."""
    global _generation, _pid
    _pid = os.getpid()
    _generation += 1
    for lock in list(_locks):
        lock._at_fork_reinit()
    _drop_sockets()
    for owner in list(_owners):
        with suppress(Exception):  # a failing owner must not stop the others
            owner.drop_inherited()


def _drop_sockets() -> None:
    """Replace each inherited socket with another file.

    This closes the child's copy and nothing else: no shutdown, no TLS alert. Code that still has the descriptor cannot
    read the parent's bytes, and closes no other file when it is collected.
    """
    inherited = dict(_sockets)
    _sockets.clear()
    for descriptor, inode in inherited.items():
        with suppress(OSError):
            status = os.fstat(descriptor)
            if status.st_ino == inode and stat.S_ISSOCK(status.st_mode):
                _replace(descriptor)


def _replace(descriptor: int) -> None:
    try:
        replacement = os.open(os.devnull, os.O_RDWR)
    except OSError:  # no file can be opened
        os.close(descriptor)
        return
    os.dup2(replacement, descriptor, inheritable=False)
    os.close(replacement)


if _FORKS:
    os.register_at_fork(after_in_child=_reset_child)


# ── One process ──────────────────────────────────────────────────────────────


def can_fork() -> bool:
    """Whether this process can start copies of itself."""
    return hasattr(os, "fork")


def is_alive(process: int) -> bool:
    """Whether a process runs. False on a system without POSIX signals, where nobody can ask without ending it."""
    if not hasattr(signal, "SIGKILL"):
        return False
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):  # no process has so great a number
        return False
    except OSError:
        pass
    return True


def start_time(process: int) -> float | None:
    """Return when a process began, in seconds since 1970; None where the system does not say."""
    try:
        with open(f"/proc/{process}/stat", "rb") as file:
            ticks = int(file.read().rpartition(b")")[2].split()[19])  # since the system's start
        with open("/proc/stat", "rb") as file:
            boot = next(int(line.split()[1]) for line in file if line.startswith(b"btime "))
        return boot + ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, StopIteration):
        return None


def raise_file_limit() -> int | None:
    """Let the process open as many files as it may. Return how many; None where nobody knows."""
    try:
        import resource
    except ImportError:
        return None
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY:
        hard = max(soft, 65_536)
    if soft < hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
        except (OSError, ValueError):
            pass  # the system allows fewer than it says; what is there stays
    return soft


# ── Signals ──────────────────────────────────────────────────────────────────


def handle_interrupt(loop: asyncio.AbstractEventLoop, action: Callable[[], object]) -> Callable[[], object]:
    """Run an action in a loop at Ctrl-C instead of the `KeyboardInterrupt`. Return what ends that.

    Call it in the main thread.
    """
    try:
        loop.add_signal_handler(signal.SIGINT, action)
        return lambda: loop.remove_signal_handler(signal.SIGINT)
    except NotImplementedError:
        before = signal.signal(signal.SIGINT, lambda number, frame: loop.call_soon_threadsafe(action))
        return lambda: signal.signal(signal.SIGINT, before)


def on_hangup(action: Callable[[], object], stop: Callable[[], None]) -> None:
    """Run an action in a thread at each SIGHUP: one run at a time, and one more for signals that come meanwhile.

    The signal also comes when the terminal is closed from which the process was started. Then the process stops.
    A system without this signal runs nothing.
    """
    if (number := getattr(signal, "SIGHUP", None)) is None:
        return
    stops_with_terminal = signal.getsignal(number) is not signal.SIG_IGN and _has_terminal()  # nohup ignores it
    lock = threading.Lock()
    is_waiting = False

    def run() -> None:
        nonlocal is_waiting
        with lock:
            is_waiting = False
            action()

    def handle(number: int, frame: Any) -> None:
        nonlocal is_waiting
        if stops_with_terminal and not _has_terminal():
            stop()
        elif not is_waiting:
            is_waiting = True
            threading.Thread(target=run, name="cnllm-reload", daemon=True).start()

    signal.signal(number, handle)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})  # a new worker blocks it until here


def _has_terminal() -> bool:
    """Whether the process has a controlling terminal."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True


# ── Event loops ──────────────────────────────────────────────────────────────


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return uvloop's loop where it is installed: it takes less time for each request. None: Python's own."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


def loop_reads_pipes() -> bool:
    """Whether an event loop can read a pipe of `os.pipe`. The usual one on Windows cannot."""
    import asyncio

    return not hasattr(asyncio, "ProactorEventLoop")


# ── A program and a companion ────────────────────────────────────────────────


def become(program: str, command: Sequence[str], environment: Mapping[str, str]) -> NoReturn:
    """Replace this process by a program. Raises `OSError`."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it, and the program would inherit that
    os.execve(program, list(command), dict(environment))


def run_in_front(
    program: str, arguments: Sequence[str], environment: Mapping[str, str], on_end: Callable[[], None]
) -> int:
    """Run a program as the terminal's own, call `on_end` after it, and return its exit status. Raises `OSError`.

    It is in the group of this process: Ctrl-C, Ctrl-\\ and Ctrl-Z are its own, and where it stops, this process stops,
    too. A signal that ends it ends this process.
    """
    import subprocess

    from_terminal = (signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP)

    def restore() -> None:
        for number in (*from_terminal, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL)

    for number in from_terminal:
        signal.signal(number, signal.SIG_IGN)
    process = subprocess.Popen(arguments, executable=program, env=dict(environment), preexec_fn=restore)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda received, frame: process.send_signal(received))
    while True:
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            break
        os.kill(os.getpid(), signal.SIGSTOP)  # the shell sees a job that stopped, and continues it
        os.kill(process.pid, signal.SIGCONT)
    process.returncode = code = os.waitstatus_to_exitcode(status)
    on_end()
    if code < 0:
        sys.stderr.flush()
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


def start_companion(work: Callable[[Callable[[bytes], None]], None]) -> bytes:
    """Run work in a forked process, in a session of its own, until it returns or this process has ended.

    The work gets a function, which it calls once with a message for this process. Return that message: it is empty
    where the work ended without one. `become` keeps the number of this process, so the companion stays.
    """
    reader, writer = os.pipe()
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.close(reader)
            os.setsid()
            threading.Thread(target=_end_after, args=(parent,), name="cnllm-watch", daemon=True).start()

            def tell(message: bytes) -> None:
                with suppress(OSError):  # the other process has its message, or is gone
                    os.write(writer, message)
                    os.close(writer)

            work(tell)
            status = 0
        finally:
            os._exit(status)
    os.close(writer)
    with open(reader, "rb") as pipe:
        message = pipe.read()
    if not message:
        os.waitpid(pid, 0)
    return message


def _end_after(parent: int) -> None:
    """Wait until a parent process has ended, and end this process then."""
    try:
        descriptor = os.pidfd_open(parent)  # Linux
    except (AttributeError, OSError):
        while os.getppid() == parent:
            time.sleep(_LOOK)
    else:
        if os.getppid() == parent:  # it was still there when the descriptor was opened
            select.select([descriptor], [], [])
    while True:  # a signal that comes before the work is ready for it has no effect
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(1)


# ── Workers ──────────────────────────────────────────────────────────────────


class WorkerJob(Protocol):
    """Describe work that several processes do."""

    lock: threading.Lock
    """Held while a process is started, so that none begins in the middle of a change."""
    log: logging.Logger

    def begin(self) -> None:
        """Take, in the first process, what all need, before any of them starts."""

    def work(self, report: Callable[[], None]) -> None:
        """Run in a process of its own until SIGTERM. Call `report` after each reload."""

    def reload(self, pass_on: Callable[[], None]) -> None:
        """Read the settings again in the first process. `pass_on` sends SIGHUP to the others, and waits for them."""

    def drop(self, process: int) -> None:
        """Forget a process that has ended."""

    def stop(self) -> None:
        """Let go, in the first process, of what `begin` took: the others alone need it until they have ended."""


def run_workers(job: WorkerJob, count: int, on_ready: Callable[[], None] | None = None) -> None:
    """Run several processes, and replace those that die, until SIGTERM or SIGINT has ended all.

    Where this process is killed, the others end as if they had got SIGTERM: nobody would replace them any more.
    Raises `CnllmError` where the workers end as soon as they start.
    """
    workers: dict[int, float] = {}  # the time at which each was started
    failures = 0
    stopping = False
    parent = os.getpid()
    reports, report = os.pipe()  # a byte for each reload of a worker

    def send(number: int) -> None:
        for pid in list(workers):
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def stop(number: int, frame: Any) -> None:
        nonlocal stopping
        if stopping:
            send(number)  # a second Ctrl-C ends what still runs
            return
        stopping = True
        job.stop()
        send(signal.SIGTERM)

    def pass_on() -> None:
        send(signal.SIGHUP)
        deadline, count = time.monotonic() + _RELOAD_SECONDS, 0
        while count < len(workers) and time.monotonic() < deadline:
            if select.select([reports], [], [], 0.1)[0]:
                count += len(os.read(reports, 1024))

    def start() -> None:
        # No signal in between: this process would not know the worker yet, and the worker would have its handlers.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGINT, signal.SIGHUP))
        try:
            if not stopping:
                with job.lock:
                    pid = os.fork()
                    if pid:
                        workers[pid] = time.monotonic()
                if not pid:
                    _work(job, {*mask, signal.SIGHUP}, report, parent)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    on_hangup(lambda: job.reload(pass_on), lambda: stop(signal.SIGTERM, None))
    job.begin()
    for _ in range(count):
        start()
    try:
        if on_ready is not None:
            on_ready()
    except BaseException:  # the workers end first: they may use what the caller lets go
        stop(signal.SIGTERM, None)
        for pid in workers:
            with suppress(ChildProcessError):
                os.waitpid(pid, 0)
        raise
    while workers:
        # Not `os.wait`: a signal shortly before it would be handled only when a worker ends, and none would.
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            time.sleep(_LOOK_SECONDS)
            continue
        started = workers.pop(pid, 0.0)
        job.drop(pid)
        if stopping:
            continue
        short = time.monotonic() - started < _SHORT_LIFE
        failures = failures + 1 if short and os.waitstatus_to_exitcode(status) > 0 else 0  # a signal is no failure
        if failures >= _MOST_FAILURES:
            stop(signal.SIGTERM, None)
            raise CnllmError("the workers end as soon as they start", hint="the lines above say why")
        job.log.warning("worker %d ended; another takes its place", pid)
        start()


def _work(job: WorkerJob, mask: Iterable[int], report: int, parent: int) -> NoReturn:
    """Run a job in a worker, then end its process. `mask` are the signals to block until it can handle them."""
    status = 1
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the first process passes it on
        signal.signal(signal.SIGTERM, lambda number, frame: os._exit(0))  # until the work has its own handler
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        threading.Thread(target=_end_after, args=(parent,), name="cnllm-watch", daemon=True).start()
        job.work(lambda: _report(report))
        status = 0
    except BaseException:
        job.log.exception("a worker failed")
    finally:
        sys.stderr.flush()
        os._exit(status)


def _report(descriptor: int) -> None:
    os.write(descriptor, b".")
