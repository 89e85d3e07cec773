"""What a node declares, and pods that need what it does not. The cases are upstream's."""

import pytest
from msgspec.structs import replace

from klet.admission.declared_features import (
    DeclaredFeatureCheck,
    discover_features,
    find_missing,
    find_missing_for_update,
)
from klet.api.container import ContainerRestartRule, ResourceRequirements
from klet.api.pod import PodStatus
from klet.api.quantity import Quantity
from klet.model.reasons import Reason
from klet.model.verdicts import Admit, Reject
from klet.testing.builders import make_container, make_pod

CPU_RESIZE = "GuaranteedQoSPodCPUResize"
POD_RESIZE = "InPlacePodLevelResourcesVerticalScaling"
RESTART_ALL = "RestartAllContainersOnContainerExits"
EXCLUSIVE = "InPlacePodVerticalScalingExclusiveCPUs"


@pytest.mark.parametrize(
    ("gates", "policy", "declared"),
    [
        pytest.param([EXCLUSIVE], "static", (CPU_RESIZE,), id="exclusive CPUs can be resized"),
        pytest.param([], "static", (), id="exclusive CPUs cannot be resized"),
        pytest.param([], "none", (CPU_RESIZE,), id="no exclusive CPUs"),
        pytest.param([EXCLUSIVE], "none", (CPU_RESIZE,), id="the gate alone changes nothing"),
        pytest.param([], "", (), id="a policy that is not known"),
        pytest.param([POD_RESIZE], "static", (POD_RESIZE,), id="pods can be resized as a whole"),
        pytest.param([RESTART_ALL], "static", (RESTART_ALL,), id="all containers of a pod can be restarted"),
        pytest.param([RESTART_ALL, POD_RESIZE], "none", (CPU_RESIZE, POD_RESIZE, RESTART_ALL), id="in order"),
    ],
)
def test_discovery(gates, policy, declared):
    assert discover_features(lambda gate: gate in gates, cpu_policy=policy) == declared


def with_rule(action):
    return replace(make_container("main"), restart_policy_rules=(ContainerRestartRule(action=action),))


@pytest.mark.parametrize(
    ("pod", "missing"),
    [
        pytest.param(make_pod(make_container("main")), (), id="no rules"),
        pytest.param(make_pod(with_rule("Restart")), (), id="a rule for one container"),
        pytest.param(make_pod(with_rule("RestartAllContainers")), (RESTART_ALL,), id="a rule for all containers"),
    ],
)
async def test_what_a_pod_needs_to_run(pod, missing):
    assert find_missing(pod, ()) == missing
    assert find_missing(pod, (RESTART_ALL,)) == ()
    assert await DeclaredFeatureCheck(declared=(RESTART_ALL,)).admit(pod, ()) == Admit()


async def test_a_rule_of_an_init_container_is_enough():
    pod = make_pod(make_container("main"))
    pod = replace(pod, spec=replace(pod.spec, init_containers=(with_rule("RestartAllContainers"),)))
    assert await DeclaredFeatureCheck(declared=(CPU_RESIZE,)).admit(pod, ()) == Reject(
        Reason.POD_FEATURE_UNSUPPORTED, f"Pod requires node features that are not available: {RESTART_ALL}"
    )


def sized(request="1", limit="1", *, whole=None, qos="Guaranteed"):
    asked, most = {"cpu": Quantity.parse(request)}, {"cpu": Quantity.parse(limit)}
    container = replace(make_container("main"), resources=ResourceRequirements(requests=asked, limits=most))
    pod = make_pod(container)
    resources = ResourceRequirements(requests={"cpu": Quantity.parse(whole)}) if whole is not None else None
    return replace(pod, spec=replace(pod.spec, resources=resources), status=PodStatus(qos_class=qos))


@pytest.mark.parametrize(
    ("old", "new", "missing"),
    [
        pytest.param(sized(qos="Burstable"), sized("2", qos="Burstable"), (), id="not guaranteed"),
        pytest.param(sized(), sized(), (), id="nothing changes"),
        pytest.param(sized(), sized("1000m"), (), id="another way to write the same"),
        pytest.param(sized(), sized("2"), (CPU_RESIZE,), id="another CPU request"),
        pytest.param(sized(), sized(limit="2"), (), id="another CPU limit, and the same request"),
        pytest.param(sized(), sized(whole="1"), (POD_RESIZE,), id="resources of the pod are added"),
        pytest.param(sized(whole="1"), sized(), (POD_RESIZE,), id="resources of the pod are removed"),
        pytest.param(sized(whole="1"), sized(whole="2"), (POD_RESIZE,), id="resources of the pod change"),
        pytest.param(sized(whole="1"), sized(whole="1"), (), id="resources of the pod stay"),
        pytest.param(sized(), sized("2", whole="1"), (CPU_RESIZE, POD_RESIZE), id="both"),
    ],
)
def test_what_a_change_needs(old, new, missing):
    assert find_missing_for_update(old, new, ()) == missing
    assert find_missing_for_update(old, new, (CPU_RESIZE, POD_RESIZE)) == ()
