"""What `klet explain` says of a container whose image is being pulled."""

from datetime import UTC, datetime, timedelta

import pytest

from klet.journal.evidence import ReasonKind, StateReason
from klet.journal.pull_reasons import add_progress
from klet.model.pull_progress import PullProgress, PullStage

SINCE = datetime(2026, 1, 1, tzinfo=UTC)
WAITS = StateReason(
    kind=ReasonKind.PROGRESS, word="Pulling", message="it is being pulled", measurements={"image": "registry.test/app"}
)


def pull(image="registry.test/app:latest", **more):
    seconds = timedelta(seconds=4)
    return PullProgress(image=image, namespace="default", pod="web", since=SINCE, elapsed=seconds, **more)


KNOWN = {"stage": PullStage.FETCHING, "fetched": 512, "total": 2048, "rate": 128.4, "left": timedelta(seconds=12)}


@pytest.mark.parametrize(
    ("reason", "pulls", "message", "measured"),
    [
        pytest.param(
            WAITS,
            [pull("registry.test/other:1"), pull(**KNOWN)],
            "it is being pulled, 512 B of 2.0 KiB (25 %), 128 B/s, 12s left",
            {
                "elapsedSeconds": 4.0,
                "stage": "fetching",
                "fetchedBytes": 512,
                "totalBytes": 2048,
                "bytesPerSecond": 128,
                "secondsLeft": 12.0,
            },
            id="all is known",
        ),
        pytest.param(WAITS, [pull()], "it is being pulled, for 4s", {"elapsedSeconds": 4.0}, id="only the time"),
        pytest.param(WAITS, [pull("registry.test/other:1")], "it is being pulled", {}, id="another image"),
        pytest.param(WAITS, [], "it is being pulled", {}, id="no pull any more"),
        pytest.param(
            StateReason(word="ErrImagePull", message="no", measurements={"image": "registry.test/app"}),
            [pull(**KNOWN)],
            "no",
            {},
            id="another state",
        ),
    ],
)
def test_progress(reason, pulls, message, measured):
    found = add_progress(reason, pulls)
    assert found.message == message
    assert found.measurements == {"image": "registry.test/app", **measured}
    assert (found.word, found.kind) == (reason.word, reason.kind)
