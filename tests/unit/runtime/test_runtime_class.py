"""Runtime classes and the features of their handlers."""
# ruff: noqa: ARG002 - the fakes keep the signatures of the protocols

import pytest
from msgspec.structs import replace

from klet.errors import KletError
from klet.runtime.errors import SandboxConfigError
from klet.runtime.runtime_class import HandlerFeatures, KnownRuntimeClasses, choose_features, find_handler
from klet.testing.builders import make_pod
from klet.wire import cri_v1_pb2 as cri


class BrokenClasses:
    async def handler_of(self, name: str) -> str:
        raise KletError("the cache is on fire")


def pod_of(name: str | None):
    pod = make_pod()
    return replace(pod, spec=replace(pod.spec, runtime_class_name=name))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        pytest.param(None, "", id="no class"),
        pytest.param("", "", id="an empty class"),
        pytest.param("quick", "crun", id="a class"),
    ],
)
async def test_find_handler(name, expected):
    assert await find_handler(pod_of(name), KnownRuntimeClasses(handlers={"quick": "crun"})) == expected


@pytest.mark.parametrize(
    ("classes", "message"),
    [
        pytest.param(KnownRuntimeClasses(handlers={}), 'runtimeclass.node.k8s.io "kata" not found', id="unknown"),
        pytest.param(BrokenClasses(), "failed to lookup RuntimeClass kata: the cache is on fire", id="unreadable"),
    ],
)
async def test_classes_that_cannot_be_had(classes, message):
    with pytest.raises(SandboxConfigError) as caught:
        await find_handler(pod_of("kata"), classes)
    assert str(caught.value) == message


def handler(name: str, **features: bool) -> cri.RuntimeHandler:
    return cri.RuntimeHandler(name=name, features=cri.RuntimeHandlerFeatures(**features))


@pytest.mark.parametrize(
    ("handlers", "expected"),
    [
        pytest.param([], HandlerFeatures(), id="a runtime that says nothing"),
        pytest.param([handler("runc")], HandlerFeatures(is_known=False), id="one that is not in the list"),
        pytest.param(
            [handler("runc"), handler("crun", user_namespaces=True)],
            HandlerFeatures(user_namespaces=True),
            id="user namespaces",
        ),
        pytest.param(
            [handler("crun", recursive_read_only_mounts=True)],
            HandlerFeatures(recursive_read_only_mounts=True),
            id="recursive read-only mounts",
        ),
        pytest.param([cri.RuntimeHandler(name="crun")], HandlerFeatures(), id="no features"),
    ],
)
def test_features(handlers, expected):
    assert choose_features(handlers, "crun") == expected
