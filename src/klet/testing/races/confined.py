"""Child processes without privileges, for code that is expected to do damage.

A child of root becomes nobody. It may have mounts of its own, in a user and mount namespace that ends with it.
"""

import ctypes
import os
import select
import signal
import traceback
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from klet.errors import KletError
from klet.host.mounts import Propagation, set_propagation

NOBODY: Final = 65534
OTHER_GROUP: Final = 65533
"""A second group of the children, so that they can give files another group."""
_SET_DUMPABLE: Final = 4
_NEW_NAMESPACES: Final = 0x00020000 | 0x10000000
_PROBE: Final = 30.0
_PIECE: Final = 1 << 16
_WELL: Final = b"="
_FAILED: Final = b"!"


class ChildError(KletError):
    """A child that failed, or did not end in time."""


class Child:
    """A running child; `end` it in any case."""

    def __init__(self, *, pid: int, results: int, lifeline: int) -> None:
        self._pid = pid
        self._results = results
        self._lifeline = lifeline

    def stop(self) -> None:
        """Ask it to finish."""
        os.close(self._lifeline)
        self._lifeline = -1

    def result(self, *, within: float) -> bytes:
        """Return the result of its work. One that takes longer is killed: then, as for one that failed, ChildError."""
        poll = select.poll()
        poll.register(self._results, select.POLLIN)
        data = b""
        while poll.poll(within * 1000):
            piece = os.read(self._results, _PIECE)
            if not piece:
                break
            data += piece
        else:
            raise ChildError(f"the child has not ended within {within} s")
        if not data.startswith(_WELL):
            raise ChildError(data.removeprefix(_FAILED).decode(errors="replace") or "the child has died")
        return data.removeprefix(_WELL)

    def end(self) -> None:
        if self._lifeline >= 0:
            os.close(self._lifeline)
        os.close(self._results)
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)


def start(work: Callable[[Callable[[], bool]], bytes], *, mounts: bool = False) -> Child:
    """Run some work in a child. It is given a function that says whether it should finish."""
    results, to_results = os.pipe()
    from_lifeline, lifeline = os.pipe()
    with warnings.catch_warnings():
        # The child uses no lock that a thread of ours could hold.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        os.close(results)
        os.close(lifeline)
        _live(work, to_results, from_lifeline, mounts=mounts)
    os.close(to_results)
    os.close(from_lifeline)
    return Child(pid=pid, results=results, lifeline=lifeline)


def why_no_mounts() -> str | None:
    """Return why a child cannot have mounts of its own here; None if it can."""
    child = start(lambda _: b"", mounts=True)
    try:
        child.result(within=_PROBE)
    except ChildError as error:
        return str(error).strip().rpartition("\n")[2]
    finally:
        child.end()
    return None


def _live(work: Callable[[Callable[[], bool]], bytes], results: int, lifeline: int, *, mounts: bool) -> None:
    """Run the child, which must never return into its parent's code."""
    poll = select.poll()
    poll.register(lifeline, select.POLLIN)
    answer = _FAILED
    try:
        _drop_privileges()
        if mounts:
            _enter_namespaces()
        answer = _WELL + work(lambda: bool(poll.poll(0)))
    except BaseException:  # noqa: BLE001 - whatever it is, the parent raises it
        answer = _FAILED + traceback.format_exc().encode()
    finally:
        with suppress(OSError):
            os.write(results, answer)
        os._exit(0)


def _drop_privileges() -> None:
    if os.geteuid() == 0:
        os.setgroups([NOBODY, OTHER_GROUP])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
    # Or else its own files in /proc were root's.
    ctypes.CDLL(None).prctl(_SET_DUMPABLE, 1, 0, 0, 0)


def _enter_namespaces() -> None:
    uid, gid = os.geteuid(), os.getegid()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_NEW_NAMESPACES) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"no namespaces: {os.strerror(number)}")
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
    Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
    set_propagation(Path("/"), Propagation.PRIVATE, recursive=True)
