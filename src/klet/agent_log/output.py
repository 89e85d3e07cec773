"""Writes log lines to file descriptors: at once if they accept it, and without ever blocking the caller.

A line is written by the caller itself, so that a kill loses none. Only when a pipe or a socket is full are lines kept
back, in order and up to a limit, and a thread writes them as soon as there is room. `infoBufferSize` keeps the lines
of the info stream back on purpose, until its buffer is full or `flushFrequency` is over.
"""

import os
import select
import stat
import threading
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

MOST_HELD: Final = 4 * 1024 * 1024
"""Bytes that are kept for a reader who does not read. What comes then is dropped and counted."""
LONGEST_BUFFER: Final = 2 * 1024 * 1024 * 1024
LAST_WAIT: Final = 5.0
"""Seconds that the end of the process waits for a slow reader."""
_AT_ONCE: Final = select.PIPE_BUF
"""A pipe that has room takes at least this much without waiting."""
_LOOK_AGAIN: Final = 0.1


class LogOutput(Protocol):
    """Takes whole lines."""

    def write(self, line: bytes) -> None: ...

    def flush(self) -> None:
        """Hand on what is kept back on purpose."""
        ...

    def finish(self) -> None:
        """Write all that is kept back, for the end of the process; waits for a limited time."""
        ...


class DescriptorStream:
    """Writes to a file descriptor without waiting for its reader. Safe for all threads."""

    def __init__(self, descriptor: int, *, describe_loss: Callable[[int], bytes], last_wait: float = LAST_WAIT) -> None:
        self._descriptor = descriptor
        self._last_wait = last_wait
        self._describe_loss = describe_loss
        """Returns the line that reports how many lines were dropped."""
        # Of its holder too: a finalizer or a signal handler may log while a line is being written.
        self._lock = threading.RLock()
        # Parts of lines, not copies: a full buffer may be long, and is written in small pieces.
        self._held: deque[memoryview] = deque()
        self._size = 0
        self._dropped = 0
        self._has_thread = False
        self._room = select.poll()
        self._room.register(descriptor, select.POLLOUT)
        # A file takes everything; of others poll only promises room for one small write.
        self._chunk = 1 << 20 if _is_file(descriptor) else _AT_ONCE

    def write(self, line: bytes) -> None:
        with self._lock:
            whole = memoryview(line)
            rest = whole if self._held else self._write_now(whole)
            if rest:
                self._hold(rest, is_begun=len(rest) < len(whole))

    def flush(self) -> None:
        """Nothing is kept back on purpose."""

    def finish(self) -> None:
        waited = 0.0
        # Only the time without room counts: a reader that reads gets everything.
        while not self._write_held() and waited < self._last_wait:
            waited += 0.0 if self._wait_for_room(_LOOK_AGAIN) else _LOOK_AGAIN

    def _hold(self, rest: memoryview, *, is_begun: bool) -> None:
        # The rest of a line that was begun is always kept: without it the next one would continue it.
        if self._held and self._size + len(rest) > MOST_HELD and not is_begun:
            self._dropped += bytes(rest).count(b"\n")
            return
        self._held.append(rest)
        self._size += len(rest)
        if not self._has_thread:
            try:
                threading.Thread(target=self._write_later, name="klet-log", daemon=True).start()
            except RuntimeError:
                return  # the process ends: `finish` writes it
            self._has_thread = True

    def _write_later(self) -> None:
        while not self._write_held(is_thread=True):
            # With a limit: `finish` may have written all that was held meanwhile.
            self._wait_for_room(1.0)

    def _wait_for_room(self, seconds: float) -> bool:
        # An object of its own: one cannot be asked by two threads at a time.
        room = select.poll()
        room.register(self._descriptor, select.POLLOUT)
        return bool(room.poll(seconds * 1000))

    def _write_held(self, *, is_thread: bool = False) -> bool:
        """Write what there is room for; True if nothing is left."""
        with self._lock:
            while self._held:
                line = self._held.popleft()
                rest = self._write_now(line)
                self._size -= len(line) - len(rest)
                if rest:
                    self._held.appendleft(rest)
                    return False
                if not self._held and self._dropped:
                    report = memoryview(self._describe_loss(self._dropped))
                    self._dropped = 0
                    self._held.append(report)
                    self._size += len(report)
            if is_thread:
                self._has_thread = False
            return True

    def _write_now(self, data: memoryview) -> memoryview:
        """Return what could not be written without waiting."""
        while data and self._room.poll(0):
            try:
                data = data[os.write(self._descriptor, data[: self._chunk]) :]
            except BlockingIOError:
                break
            except OSError:
                # Its reader is gone for good, or the disk is full. A log has no other place to say so.
                return data[:0]
        return data


class BufferedStream:
    """Keeps lines back until they fill the buffer; a line that is longer than it is passed on at once."""

    def __init__(self, stream: LogOutput, *, size: int, flush_every: float) -> None:
        self._stream = stream
        self._limit = min(size, LONGEST_BUFFER)
        self._flush_every = min(flush_every, threading.TIMEOUT_MAX)
        self._buffer = bytearray()
        self._lock = threading.RLock()
        self._ended = threading.Event()

    def start(self) -> None:
        """Flush regularly from now on, in a thread: the lines are wanted most while the event loop is stuck."""
        threading.Thread(target=self._flush_forever, name="klet-log-flush", daemon=True).start()

    def write(self, line: bytes) -> None:
        with self._lock:
            if len(self._buffer) + len(line) > self._limit:
                self._pass_on()
            if len(line) > self._limit:
                self._stream.write(line)
            else:
                self._buffer += line

    def flush(self) -> None:
        with self._lock:
            self._pass_on()

    def finish(self) -> None:
        self._ended.set()
        self.flush()
        self._stream.finish()

    def _pass_on(self) -> None:
        if self._buffer:
            self._stream.write(bytes(self._buffer))
            self._buffer.clear()

    def _flush_forever(self) -> None:
        while not self._ended.wait(self._flush_every):
            self.flush()


def _is_file(descriptor: int) -> bool:
    try:
        return stat.S_ISREG(os.fstat(descriptor).st_mode)
    except OSError:
        return False
