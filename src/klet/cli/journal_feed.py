"""The agent's decisions as they are made, read by a thread of its own and handed over in a queue."""

import queue
import threading
from datetime import datetime
from typing import Self

from klet.api import klet_v1
from klet.api.codec import DecodeError, decode
from klet.api.klet_v1 import CauseRecord
from klet.cli.client import AgentClient, AgentError, AgentStream, AgentUnavailable, OtherVersion

RECONNECT_SECONDS = 0.5


class JournalFeed:
    """Follows the journal until closed, also across restarts of the agent."""

    def __init__(self, *, client: AgentClient, since: datetime) -> None:
        self._client = client
        self._since = since
        self._records: queue.SimpleQueue[CauseRecord | OtherVersion] = queue.SimpleQueue()
        self._closing = threading.Event()
        self._stream: AgentStream | None = None
        self._thread = threading.Thread(target=self._run, name="journal", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        if self._stream is not None:
            self._stream.interrupt()
        self._thread.join(timeout=2)

    def wait(self, seconds: float) -> list[CauseRecord]:
        """Return what came, waiting for the first record at most so long. Raises OtherVersion if it cannot be read."""
        found: list[CauseRecord] = []
        try:
            found.append(_readable(self._records.get(timeout=seconds)))
            while True:
                found.append(_readable(self._records.get_nowait()))
        except queue.Empty:
            return found

    def _run(self) -> None:
        while not self._closing.is_set():
            try:
                self._stream = self._client.follow_journal({"since": self._since.isoformat().replace("+00:00", "Z")})
                with self._stream as stream:
                    for line in stream.lines():
                        self._take(line)
            except (AgentUnavailable, AgentError):
                pass  # between two lives of the agent; asked again below
            except OtherVersion as error:
                self._records.put(error)
                return
            self._closing.wait(RECONNECT_SECONDS)

    def _take(self, line: bytes) -> None:
        try:
            record = decode(CauseRecord, line)
        except DecodeError as error:
            raise OtherVersion(klet_v1.JOURNAL, str(error)) from error
        if record.at > self._since:
            self._since = record.at
        self._records.put(record)


def _readable(item: CauseRecord | OtherVersion) -> CauseRecord:
    if isinstance(item, OtherVersion):
        raise item
    return item
