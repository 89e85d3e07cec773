"""Where the termination message of a container are, and how they are read."""

import pytest

from klet.errors import KletError
from klet.runtime.kill.termination import MessageLocation, find_termination_message, read_termination_message
from klet.runtime.reader import build_container_record
from klet.wire import cri_v1_pb2 as cri

PATH = "io.kubernetes.container.terminationMessagePath"
POLICY = "io.kubernetes.container.terminationMessagePolicy"
FALLBACK = "FallbackToLogsOnError"


def ended(
    *,
    path: str = "/dev/termination-log",
    policy: str = "File",
    exit_code: int = 1,
    reason: str = "Error",
    message: str = "",
    state: int = cri.CONTAINER_EXITED,
) -> cri.ContainerStatus:
    return cri.ContainerStatus(
        id="c",
        state=state,
        exit_code=exit_code,
        reason=reason,
        message=message,
        log_path="/logs/0.log",
        annotations={PATH: path, POLICY: policy},
        mounts=[
            cri.Mount(container_path="/data", host_path="/volume"),
            cri.Mount(container_path="/dev/termination-log", host_path="/host/words"),
        ],
    )


class Files:
    """Files as a dictionary; an error in the place of a content is raised."""

    def __init__(self, **contents: bytes | KletError) -> None:
        self._contents = contents

    async def read_tail(self, path: str, *, limit: int) -> bytes | None:
        assert (path, limit) == ("/host/words", 4096)
        return self._get("file")

    async def read_log_tail(self, path: str, *, lines: int, limit: int) -> bytes:
        assert (path, lines, limit) == ("/logs/0.log", 80, 2048)
        return self._get("log") or b""

    def _get(self, name: str) -> bytes | None:
        content = self._contents.get(name)
        if isinstance(content, KletError):
            raise content
        return content


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        pytest.param(ended(), MessageLocation(file="/host/words"), id="the file that is mounted at the path"),
        pytest.param(
            ended(path="dev/termination-log"), MessageLocation(file="/host/words"), id="a path without its slash"
        ),
        pytest.param(ended(path="/elsewhere"), MessageLocation(), id="nothing is mounted there"),
        pytest.param(ended(path=""), MessageLocation(), id="no path"),
        pytest.param(ended(state=cri.CONTAINER_RUNNING), MessageLocation(), id="it still runs"),
        pytest.param(ended(state=cri.CONTAINER_UNKNOWN), MessageLocation(), id="nobody knows its state"),
        pytest.param(
            ended(policy=FALLBACK), MessageLocation("/host/words", "/logs/0.log"), id="the log if the file is empty"
        ),
        pytest.param(
            ended(policy=FALLBACK, path=""), MessageLocation("", "/logs/0.log"), id="the log if there is no file"
        ),
        pytest.param(
            ended(policy=FALLBACK, exit_code=0), MessageLocation("/host/words"), id="not the log of a success"
        ),
        pytest.param(
            ended(policy=FALLBACK, reason="ContainerCannotRun"),
            MessageLocation("/host/words"),
            id="not the log of one that never ran",
        ),
    ],
)
def test_where_they_are(status, expected):
    assert find_termination_message(status) == expected


BOTH = MessageLocation("/host/words", "/logs/0.log")


@pytest.mark.parametrize(
    ("where", "files", "expected"),
    [
        pytest.param(BOTH, Files(file=b"bye", log=b"line"), "bye", id="the file first"),
        pytest.param(BOTH, Files(file=b"", log=b"line\n"), "line\n", id="an empty file"),
        pytest.param(BOTH, Files(log=b"line\n"), "line\n", id="no file"),
        pytest.param(MessageLocation("/host/words"), Files(log=b"line"), "", id="neither"),
        pytest.param(MessageLocation("/host/words"), Files(file=b"\xff!"), "\ufffd!", id="not UTF-8"),
        pytest.param(
            BOTH,
            Files(file=KletError("denied"), log=b"line"),
            "Error on reading termination log /host/words: denied",
            id="a file that cannot be read stands for itself",
        ),
        pytest.param(
            BOTH,
            Files(log=KletError("denied")),
            "Error on reading termination message from logs: denied",
            id="a log that cannot be read",
        ),
        pytest.param(MessageLocation(), Files(), "", id="nowhere to look"),
    ],
)
async def test_how_they_are_read(where, files, expected):
    assert await read_termination_message(files, where) == expected


@pytest.mark.parametrize(
    ("message", "words", "state", "expected"),
    [
        pytest.param("", "bye", cri.CONTAINER_EXITED, "bye", id="only the container's"),
        pytest.param("oops", "", cri.CONTAINER_EXITED, "oops", id="only the runtime's"),
        pytest.param("oops", "bye", cri.CONTAINER_EXITED, "oops: bye", id="both"),
        pytest.param("oops", "bye", cri.CONTAINER_RUNNING, "", id="not of one that runs"),
    ],
)
def test_how_they_are_reported(message, words, state, expected):
    assert build_container_record(ended(message=message, state=state), termination_message=words).message == expected
