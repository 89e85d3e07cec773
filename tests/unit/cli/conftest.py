"""Pods for the tests of the command line, written as the agent sends them."""

from datetime import UTC, datetime, timedelta

import pytest

from klet.api.codec import convert
from klet.api.pod import Pod

NOW = datetime(2030, 1, 1, 12, 0, tzinfo=UTC)


def at(ago):
    return (NOW - timedelta(seconds=ago)).isoformat().replace("+00:00", "Z")


@pytest.fixture
def now():
    return NOW


@pytest.fixture
def build_pod():
    """Build a pod from the parts of its status; each container is `name=state` or `name=(state, more)`."""

    def status_of(name, state, **more):
        return {"name": name, "state": state, "ready": False, "restartCount": 0, "image": "i", "imageID": "", **more}

    def build(
        name="web-node", namespace="default", containers=(), init=(), sidecars=(), conditions=(), spec=None, **status
    ):
        conditions = [{"type": kind, "status": value} for kind, value in dict(conditions).items()]
        value = {
            "metadata": {"name": name, "namespace": namespace, "uid": "u1", **status.pop("metadata", {})},
            "spec": {
                "nodeName": "node",
                "containers": [{"name": c["name"], "image": "busybox"} for c in containers],
                "initContainers": [
                    {"name": c["name"], "restartPolicy": "Always" if c["name"] in sidecars else ""} for c in init
                ],
                **(spec or {}),
            },
            "status": {
                "phase": "Running",
                "startTime": at(90),
                "containerStatuses": list(containers),
                "initContainerStatuses": list(init),
                "conditions": conditions,
                **status,
            },
        }
        return convert(Pod, value)

    build.status = status_of
    build.at = at
    return build
