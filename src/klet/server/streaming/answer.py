"""The answer of the runtime's streaming endpoint, read by h11 like every other message. Pure."""

from typing import Final

import h11
from msgspec import Struct

from klet.server.http1 import (
    PIECE,
    HeadBytes,
    Headers,
    HttpRefusal,
    MessageLimits,
    RequestHead,
    decode_headers,
    read_events,
)

_NOT_HTTP: Final = "with something that is not HTTP"
_TOO_LARGE: Final = 431


class AnswerError(ValueError):
    """An answer that cannot be read; the message is a phrase to follow "answered": "with headers without end"."""


class AnswerHead(Struct, frozen=True):
    """Status and headers of an answer, and its bytes."""

    status: int
    headers: Headers
    data: bytes


class AnswerReader:
    """Reads the answer to one request that this side sent: the head, then the body if it is no upgrade."""

    def __init__(self, limits: MessageLimits) -> None:
        self._limits = limits
        self._head_bytes = HeadBytes(limits)
        self._h11 = h11.Connection(h11.CLIENT, max_incomplete_event_size=PIECE)
        self.body = bytearray()
        self.is_complete = False

    def write_request(self, head: RequestHead, body: bytes) -> bytes:
        """Return the bytes to send."""
        headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in head.headers]
        request = h11.Request(method=head.method, target=head.target, headers=headers)
        events = (request, *((h11.Data(data=body),) if body else ()), h11.EndOfMessage())
        return b"".join(self._h11.send(event) or b"" for event in events)

    def read_head(self, data: bytes) -> AnswerHead | None:
        """Return the head of the answer, or None while it is incomplete. Raises AnswerError."""
        self._head_bytes.buffer += data
        head = self._head_bytes.take()
        if head is None:
            return None
        if isinstance(head, HttpRefusal):
            raise AnswerError("with headers without end" if head.status == _TOO_LARGE else _NOT_HTTP)
        try:
            self._h11.receive_data(head)
            event = self._h11.next_event()
        except h11.RemoteProtocolError as error:
            raise AnswerError(_NOT_HTTP) from error
        if not isinstance(event, h11.Response | h11.InformationalResponse):
            raise AnswerError(_NOT_HTTP)
        return AnswerHead(event.status_code, decode_headers(event), head)

    def keep(self, data: bytes) -> None:
        """Buffer bytes that arrive before it is known whether they are body or upgraded stream."""
        self._head_bytes.buffer += data

    def take_rest(self) -> bytes:
        """Return what arrived after the head; after 101 Switching Protocols it belongs to the upgraded stream."""
        rest = bytes(self._head_bytes.buffer)
        self._head_bytes.buffer.clear()
        return rest

    def read_body(self, data: bytes) -> None:
        """Collect the body. `is_complete` is set at its end, beyond the size limit, or on a protocol error."""
        buffer = self._head_bytes.buffer
        buffer += data
        try:
            for event in read_events(self._h11, buffer):
                if isinstance(event, h11.Data):
                    self.body += event.data
                if isinstance(event, h11.EndOfMessage) or len(self.body) > self._limits.body_bytes:
                    self.is_complete = True
                    return
        except h11.RemoteProtocolError:
            self.is_complete = True
