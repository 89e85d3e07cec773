"""A pod that the node does not take in has failed, and the others go on."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from klet.aio.clock import LoopClock
from klet.api.container import ContainerPort
from klet.api.handlers import Lifecycle
from klet.api.placement import Taint, Toleration
from klet.api.pod import PodOS
from klet.api.quantity import Quantity
from klet.api.security import AppArmorProfile, PodSecurityContext, Sysctl
from klet.model.features import PodFeatures
from klet.node.settings import NodeSettings, Reservations
from klet.simulation import DrivenPodSource, SimulatedNode
from klet.testing.builders import IMAGE, make_container, make_pod, with_resources
from klet.testing.fake_runtime import FakeImage, FakeRuntime
from klet.testing.loop import EPOCH, run_virtual
from klet.wire import cri_v1_pb2 as cri

A_WHILE = timedelta(seconds=10)


def on_port(uid, name):
    ports = (ContainerPort(container_port=80, host_port=8080),)
    return make_pod(replace(make_container("main"), ports=ports), uid=uid, name=name, source="file")


def new_node():
    runtime = FakeRuntime(start=EPOCH, images=(FakeImage(name=IMAGE),))
    return SimulatedNode(clock=LoopClock(epoch=EPOCH), runtime=runtime)


def test_two_pods_cannot_have_one_port_of_the_host():
    node = new_node()
    clock = LoopClock(epoch=EPOCH)

    async def story():
        wanted = DrivenPodSource()
        async with node.run_agent(wanted) as running:
            wanted.add(on_port("uid-1", "first"))
            await clock.sleep(A_WHILE)
            wanted.add(on_port("uid-2", "second"))
            await clock.sleep(A_WHILE)
            before = {uid: running.agent.statuses.get(uid) for uid in ("uid-1", "uid-2")}
            wanted.remove("uid-2")
            await clock.sleep(A_WHILE)
            return before, running.agent.statuses.all(), [cause.finding for cause in running.journal.all()]

    before, after, findings = run_virtual(story())
    assert before["uid-1"].phase == "Running"
    rejected = before["uid-2"]
    assert (rejected.phase, rejected.reason) == ("Failed", "NodePorts")
    assert rejected.message.startswith("Pod was rejected: Predicate NodePorts failed: ")
    assert rejected.container_statuses == ()
    (recorded,) = [finding for finding in findings if finding.decision == "NodePorts"]
    assert recorded.subject.name == "second"
    assert "held" not in recorded.message  # it is the event's too, which has upstream's words
    assert recorded.measurements["heldBy"] == "default/first"
    assert set(after) == {"uid-1"}


def test_a_pod_that_takes_the_place_of_another_may_have_its_port():
    node = new_node()
    clock = LoopClock(epoch=EPOCH)

    async def story():
        wanted = DrivenPodSource()
        async with node.run_agent(wanted) as running:
            wanted.add(on_port("uid-1", "pod"))
            await clock.sleep(A_WHILE)
            wanted.remove("uid-1")
            wanted.add(on_port("uid-2", "pod"))
            await clock.sleep(timedelta(minutes=2))
            return running.agent.statuses.get("uid-2")

    assert run_virtual(story()).phase == "Running"


def test_a_new_agent_rejects_no_pod_that_runs():
    node = new_node()
    clock = LoopClock(epoch=EPOCH)
    pods = (on_port("uid-1", "first"), on_port("uid-2", "second"))

    async def story():
        first = DrivenPodSource()
        async with node.run_agent(first):
            first.add(*pods)
            await clock.sleep(A_WHILE)
        second = DrivenPodSource()
        async with node.run_agent(second) as running:
            second.add(*reversed(pods))
            await clock.sleep(A_WHILE)
            return running.agent.statuses.all()

    statuses = run_virtual(story())
    assert statuses["uid-1"].phase == "Running"
    assert statuses["uid-2"].reason == "NodePorts"


@pytest.mark.parametrize(
    ("source", "features", "phase"),
    [
        pytest.param("api", PodFeatures(taint_comparisons=True), "Running", id="a toleration that compares"),
        pytest.param("api", PodFeatures(), "Failed", id="without its gate it tolerates nothing"),
        pytest.param("file", PodFeatures(), "Running", id="a static pod runs all the same"),
    ],
)
def test_a_taint_of_the_node_that_a_pod_does_not_tolerate(source, features, phase):
    node = new_node()
    node.taints = (Taint(key="sla", value="950", effect="NoExecute"),)
    pod = make_pod(uid="uid-1", source=source)
    tolerations = (Toleration(key="sla", operator="Lt", value="990", effect="NoExecute"),)
    pod = replace(pod, spec=replace(pod.spec, tolerations=tolerations))

    async def story():
        wanted = DrivenPodSource()
        async with node.run_agent(wanted, features=features) as running:
            wanted.add(pod)
            await LoopClock(epoch=EPOCH).sleep(A_WHILE)
            return running.agent.statuses.get("uid-1")

    status = run_virtual(story())
    assert status.phase == phase
    if phase == "Failed":
        message = "Pod was rejected: Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate"
        assert (status.reason, status.message) == ("TaintToleration", message)


@pytest.mark.parametrize(
    ("features", "expected"),
    [
        pytest.param(PodFeatures(stop_signals=True), "SIGUSR1", id="with the gate"),
        pytest.param(PodFeatures(), None, id="nothing without it"),
    ],
)
def test_a_stop_signal_reaches_the_runtime_and_the_status(features, expected):
    node = new_node()
    container = replace(make_container("main"), lifecycle=Lifecycle(stop_signal="SIGUSR1"))

    async def story():
        wanted = DrivenPodSource()
        async with node.run_agent(wanted, features=features) as running:
            wanted.add(make_pod(container, uid="uid-1", source="api"))
            await LoopClock(epoch=EPOCH).sleep(A_WHILE)
            return running.agent.statuses.get("uid-1")

    [status] = run_virtual(story()).container_statuses
    assert status.stop_signal == expected
    [made] = node.runtime.containers()
    assert made.config.stop_signal == (cri.SIGUSR1 if expected else cri.RUNTIME_DEFAULT)


def test_no_pod_gets_a_port_of_the_agent():
    """The port mapping leads around who listens: clients of the kubelet API would reach the pod."""
    node = new_node()
    node.own_ports = (ContainerPort(container_port=10250, host_port=10250),)
    container = replace(make_container("main"), ports=(ContainerPort(container_port=80, host_port=10250),))

    async def story():
        wanted = DrivenPodSource()
        async with node.run_agent(wanted) as running:
            wanted.add(make_pod(container, uid="uid-1", source="api"))
            await LoopClock(epoch=EPOCH).sleep(A_WHILE)
            return running.agent.statuses.get("uid-1")

    status = run_virtual(story())
    assert (status.phase, status.reason) == ("Failed", "NodePorts")
    assert node.runtime.sandboxes() == ()


def full_node(max_pods):
    node = new_node()
    node.settings = NodeSettings(name="node", max_pods=max_pods)
    return node


def api_pod(name):
    return make_pod(name=name, uid=name, source="api")


def test_a_node_takes_in_as_many_pods_as_it_has_room_for():
    node = full_node(2)
    clock = LoopClock(epoch=EPOCH)

    async def story():
        wanted = DrivenPodSource()
        async with node.run_agent(wanted) as running:
            for name in ("first", "second", "third"):
                wanted.add(api_pod(name))
                await clock.sleep(A_WHILE)
            full = running.agent.statuses.all()
            wanted.remove("first")
            await clock.sleep(timedelta(minutes=1))
            wanted.add(api_pod("fourth"))
            await clock.sleep(A_WHILE)
            return full, running.agent.statuses.get("fourth")

    full, fourth = run_virtual(story())
    assert {name: status.phase for name, status in full.items()} == {
        "first": "Running",
        "second": "Running",
        "third": "Failed",
    }
    message = "Pod was rejected: Node didn't have enough resource: pods, requested: 1, used: 2, capacity: 2"
    assert (full["third"].reason, full["third"].message) == ("OutOfpods", message)
    assert fourth.phase == "Running"


def test_a_new_agent_with_a_lower_limit_leaves_pods_that_run_alone():
    node = full_node(2)
    clock = LoopClock(epoch=EPOCH)

    async def story():
        first = DrivenPodSource()
        async with node.run_agent(first):
            first.add(api_pod("first"), api_pod("second"))
            await clock.sleep(A_WHILE)
        node.settings = NodeSettings(name="node", max_pods=1)
        second = DrivenPodSource()
        async with node.run_agent(second) as running:
            second.add(api_pod("first"), api_pod("second"), api_pod("third"))
            await clock.sleep(A_WHILE)
            return running.agent.statuses.all()

    statuses = run_virtual(story())
    assert {name: status.phase for name, status in statuses.items()} == {
        "first": "Running",
        "second": "Running",
        "third": "Failed",
    }
    assert statuses["third"].message.endswith("requested: 1, used: 2, capacity: 1")


def test_a_pod_makes_room_for_a_static_one():
    node = full_node(2)
    clock = LoopClock(epoch=EPOCH)

    async def story():
        wanted = DrivenPodSource()
        async with node.run_agent(wanted) as running:
            wanted.add(make_pod(name="old", uid="old", source="file"), api_pod("victim"))
            await clock.sleep(A_WHILE)
            wanted.add(make_pod(name="new", uid="new", source="file"))
            await clock.sleep(timedelta(minutes=2))
            return running.agent.statuses.all(), [cause.finding for cause in running.journal.all()]

    statuses, findings = run_virtual(story())
    assert (statuses["old"].phase, statuses["new"].phase) == ("Running", "Running")
    victim = statuses["victim"]
    message = "Preempted in order to admit critical pod"
    assert (victim.phase, victim.reason, victim.message) == ("Failed", "Preempting", message)
    (disrupted,) = [each for each in victim.conditions if each.type == "DisruptionTarget"]
    assert (disrupted.status, disrupted.reason) == ("True", "TerminationByKubelet")
    (recorded,) = [finding for finding in findings if finding.decision == "Preempting"]
    assert (recorded.subject.name, recorded.message) == ("victim", message)


def requesting(name, source="api", **spec):
    """A pod with requests: those that are named here, and the rest of its spec."""
    requests = {key: spec.pop(key) for key in ("cpu", "memory") if key in spec}
    pod = make_pod(with_resources(make_container("main"), requests=requests), name=name, uid=name, source=source)
    return replace(pod, spec=replace(pod.spec, **spec))


def run_story(node, *steps):
    """Add pods, each step at a time; return the statuses, the findings and the metrics at the end."""

    async def story():
        wanted = DrivenPodSource()
        async with node.run_agent(wanted) as running:
            for pods in steps:
                wanted.add(*pods)
                await LoopClock(epoch=EPOCH).sleep(timedelta(minutes=1))
            findings = [cause.finding for cause in running.journal.all()]
            return running.agent.statuses.all(), findings, running.agent.metrics.agent.write().decode()

    return run_virtual(story())


def test_a_pod_that_requests_more_than_is_left_is_rejected():
    statuses, findings, metrics = run_story(
        new_node(), [requesting("first", cpu="1")], [requesting("second", cpu="1500m")], [requesting("third", cpu="1")]
    )
    assert {name: status.phase for name, status in statuses.items()} == {
        "first": "Running",
        "second": "Failed",
        "third": "Running",
    }
    message = "Node didn't have enough resource: cpu, requested: 1500, used: 1000, capacity: 2000"
    assert (statuses["second"].reason, statuses["second"].message) == ("OutOfcpu", f"Pod was rejected: {message}")
    assert statuses["second"].container_statuses == ()
    (recorded,) = [finding for finding in findings if finding.decision == "OutOfcpu"]
    assert recorded.message == message
    why = "the pod requests 1500m of cpu; the node has 2 for pods, of which others have 1"
    assert recorded.measurements["why"] == why
    assert 'kubelet_admission_rejections_total{reason="OutOfcpu"} 1' in metrics


def test_a_static_pod_preempts_by_memory():
    """Of two that suffice the one whose requests are nearest to what is missing."""
    statuses, findings, metrics = run_story(
        new_node(),
        [requesting("small", memory="1Gi"), requesting("large", memory="2Gi")],
        [requesting("static", source="file", memory="1500Mi")],
    )
    assert {name: (status.phase, status.reason) for name, status in statuses.items()} == {
        "small": ("Failed", "Preempting"),
        "large": ("Running", ""),
        "static": ("Running", ""),
    }
    (disrupted,) = [each for each in statuses["small"].conditions if each.type == "DisruptionTarget"]
    assert (disrupted.status, disrupted.reason) == ("True", "TerminationByKubelet")
    assert [finding.subject.name for finding in findings if finding.decision == "Preempting"] == ["small"]
    assert 'kubelet_preemptions{preemption_signal="memory"} 1' in metrics


def test_static_pods_that_do_not_fit_together():
    statuses, _, _ = run_story(
        new_node(), [requesting("first", "file", cpu="1")], [requesting("second", "file", cpu="1500m")]
    )
    assert statuses["first"].phase == "Running"
    assert statuses["second"].reason == "UnexpectedAdmissionError"
    assert statuses["second"].message.endswith(
        "no set of running pods found to reclaim resources: [(res: cpu, q: 500), ]"
    )


TUNED = PodSecurityContext(sysctls=(Sysctl(name="kernel.panic", value="1"),))
ARMORED = PodSecurityContext(app_armor_profile=AppArmorProfile(type="RuntimeDefault"))


@pytest.mark.parametrize(
    ("pod", "reason"),
    [
        pytest.param(
            requesting("new", cpu="9", security_context=TUNED), "SysctlForbidden", id="kernel parameters first"
        ),
        pytest.param(requesting("new", cpu="9", os=PodOS(name="windows")), "PodOSNotSupported", id="then the system"),
        pytest.param(requesting("new", cpu="9", memory="9Gi"), "OutOfcpu", id="then resources in their order"),
        pytest.param(
            requesting("new", cpu="9", node_selector={"disk": "ssd"}), "OutOfcpu", id="resources before labels"
        ),
        pytest.param(
            requesting("new", node_selector={"disk": "ssd"}, node_name="other"),
            "NodeAffinity",
            id="labels before the name",
        ),
        pytest.param(
            requesting("new", node_name="other", security_context=ARMORED), "NodeName", id="AppArmor after all"
        ),
        pytest.param(requesting("new", security_context=ARMORED), "AppArmor", id="AppArmor"),
        pytest.param(
            requesting("new", "file", cpu="9", security_context=ARMORED),
            "UnexpectedAdmissionError",
            id="a critical pod for which too little can be freed",
        ),
    ],
)
def test_the_first_reason_decides(pod, reason):
    statuses, _, _ = run_story(new_node(), [pod])
    assert statuses["new"].reason == reason


def test_nobody_makes_room_for_a_pod_that_a_later_check_rejects():
    statuses, _, _ = run_story(
        new_node(), [requesting("other", cpu="2")], [requesting("new", "file", cpu="1", security_context=ARMORED)]
    )
    assert (statuses["other"].phase, statuses["new"].reason) == ("Running", "AppArmor")


def test_labels_of_a_node_without_an_api_server():
    """They are those that it would register with."""
    node = new_node()
    node.settings = NodeSettings(name="node", labels={"disk": "ssd"})
    selector = {"disk": "ssd", "kubernetes.io/os": "linux"}
    statuses, _, _ = run_story(node, [requesting("new", node_selector=selector, node_name="node")])
    assert statuses["new"].phase == "Running"


def test_a_restart_admits_nothing_again():
    """Also where the node has less by now than its pods have been given; new pods find it full."""
    node = new_node()
    pods = [requesting("first", cpu="1"), requesting("second", cpu="1")]
    before, _, _ = run_story(node, pods)
    assert {status.phase for status in before.values()} == {"Running"}
    node.settings = NodeSettings(name="node", reservations=Reservations(fixed={"cpu": Quantity.parse("1")}))
    statuses, _, _ = run_story(node, [*pods, requesting("third", cpu="100m")])
    assert {name: (status.phase, status.reason) for name, status in statuses.items()} == {
        "first": ("Running", ""),
        "second": ("Running", ""),
        "third": ("Failed", "OutOfcpu"),
    }
    assert statuses["third"].message.endswith("requested: 100, used: 2000, capacity: 1000")


def test_a_hundred_pods_at_once_never_get_more_than_there_is():
    pods = [requesting(f"pod-{number}", cpu="30m", memory="8Mi") for number in range(100)]
    statuses, _, _ = run_story(new_node(), pods)
    phases = [status.phase for status in statuses.values()]
    assert (phases.count("Running"), phases.count("Failed")) == (66, 34)
