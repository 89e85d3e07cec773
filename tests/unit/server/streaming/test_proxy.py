"""The two sides of a stream, one of which has gone."""

import asyncio

from klet.server.streaming.proxy import StreamProxy


class UvTransport(asyncio.Transport):
    """As uvloop's: nothing may be written once it is closed."""

    def __init__(self):
        super().__init__()
        self.written = []
        self.is_closed = False

    def is_closing(self):
        return self.is_closed

    def close(self):
        self.is_closed = True

    def write(self, data):
        if self.is_closed:
            raise RuntimeError("unable to perform operation; the handler is closed")
        self.written.append(data)


async def test_what_a_client_still_sends_to_a_runtime_that_has_gone_is_dropped():
    runtime = UvTransport()
    link = StreamProxy(client=None)
    link.connection_made(runtime)
    link.client_data(b"heard")
    link.close()
    link.client_data(b"too late")
    assert runtime.written == [b"heard"]
