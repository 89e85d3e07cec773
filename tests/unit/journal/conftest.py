"""Pods as the agent has them, and the records about them."""

from datetime import UTC, datetime, timedelta

import pytest

from klet.api.codec import convert
from klet.api.pod import Pod
from klet.journal.records import to_id, to_microseconds
from klet.model.causes import Cause, Finding, FindingSubject
from klet.model.reasons import read_reason

NOW = datetime(2030, 1, 1, 12, 0, tzinfo=UTC)


@pytest.fixture
def now():
    return NOW


@pytest.fixture
def ago():
    """The instant so many seconds before now; negative ones are to come."""

    def instant(seconds: float) -> datetime:
        return NOW - timedelta(seconds=seconds)

    return instant


@pytest.fixture
def recorded(ago):
    """A record made so many seconds ago: `recorded(3, "Started", container="main")`."""

    def build(seconds: float, decision: str, *, container: str = "", uid: str = "u1", **fields) -> Cause:
        at = ago(seconds)
        subject = FindingSubject(namespace="default", name="web", uid=uid, container=container)
        finding = Finding(subject=subject, decider="test", decision=read_reason(decision), **fields)
        return Cause(id=to_id(to_microseconds(at)), parent=None, at=at, finding=finding)

    return build


@pytest.fixture
def build_pod(ago):
    """A pod of one container, or of several: `build_pod(state={"waiting": {…}}, phase="Running", spec={…})`."""

    def build(
        *,
        state=None,
        last=None,
        init=None,
        is_ready=False,
        metadata=None,
        spec=None,
        container=None,
        given=None,
        **status,
    ):
        def status_of(name, state, last=None, **more):
            more = {"ready": False, "restartCount": 0, **more}
            return {"name": name, "image": "", "imageID": "", "state": state, "lastState": last or {}, **more}

        restarts = status.pop("restarts", 0)
        own = status_of("main", state or {}, last, ready=is_ready, restartCount=restarts, started=True)
        own |= {"resources": given} if given else {}
        ready = {
            "type": "Ready",
            "status": "True" if is_ready else "False",
            "lastTransitionTime": "2030-01-01T11:00:00Z",
        }
        value = {
            "metadata": {"name": "web", "namespace": "default", "uid": "u1", **(metadata or {})},
            "spec": {
                "containers": [{"name": "main", "image": "remote:1", **(container or {})}],
                "initContainers": [{"name": name, "image": "remote:1"} for name in init or {}],
                **(spec or {}),
            },
            "status": {
                "phase": "Running",
                "startTime": ago(100).isoformat().replace("+00:00", "Z"),
                "conditions": [ready],
                "containerStatuses": [own],
                "initContainerStatuses": [status_of(name, state) for name, state in (init or {}).items()],
                **status,
            },
        }
        return convert(Pod, value)

    return build
