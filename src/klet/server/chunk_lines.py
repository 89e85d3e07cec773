"""The lines between the chunks of a body, and those behind the last one. Pure.

h11 takes what stands behind a chunk's size, and the values of trailers, as they come. A CR or another control character
there is an end of the line to some servers and none to others, so such a body could hide a request from one of them.
"""

import re
from typing import Final

_CHUNK: Final = re.compile(rb"([0-9A-Fa-f]{1,16})[ \t]*(?:;[\t\x20-\x7e\x80-\xff]*+)?\r\n")
_TRAILER: Final = re.compile(rb"[\x21-\x7e\x80-\xff][\t\x20-\x7e\x80-\xff]*+\r?\n")
_END: Final = (b"\r\n", b"\n")


class ChunkLines:
    """Follows one body as it arrives. It only ever refuses: where the body ends, h11 decides.

    A line between chunks, and all lines behind them together, may have `longest` bytes. h11 has such a limit too, but
    whether it meets that depends on the pieces in which the bytes arrive.
    """

    def __init__(self, *, longest: int) -> None:
        self.is_too_long = False
        self._longest = longest
        self._trailers = 0
        self._line = bytearray()
        self._skipped = 0
        """Bytes of data, with the end of the line behind them, that are still to come."""
        self._is_in_trailers = False
        self._is_over = False

    def are_plain(self, piece: bytes) -> bool:
        """Take the next bytes; return whether every parser reads all lines so far in the same way."""
        at = 0
        while at < len(piece) and not self._is_over:
            if self._skipped:
                step = min(self._skipped, len(piece) - at)
                self._skipped -= step
                at += step
                continue
            end = piece.find(b"\n", at) + 1 or len(piece)
            self._line += piece[at:end]
            at = end
            self.is_too_long = self._trailers + len(self._line) > self._longest
            if self.is_too_long:
                return False
            if self._line.endswith(b"\n") and not self._take_line():
                return False
        return True

    def _take_line(self) -> bool:
        line = bytes(self._line)
        self._line.clear()
        if self._is_in_trailers:
            self._trailers += len(line)
            self._is_over = line in _END
            return self._is_over or _TRAILER.fullmatch(line) is not None
        chunk = _CHUNK.fullmatch(line)
        if chunk is None:
            return False
        size = int(chunk[1], 16)
        self._is_in_trailers = size == 0
        self._skipped = size + len(b"\r\n") if size else 0
        return True
