"""Pods of an API server that use a feature whose gate is off on this node: it is ignored, or the pod cannot run."""

from klet.config.gates import resolve_gates
from klet.testing.builders import IMAGE

FROM_FILE = {"name": "A", "valueFrom": {"fileKeyRef": {"volumeName": "v", "path": "env", "key": "A"}}}
RESTARTS = {"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}


async def test_the_host_name_is_the_usual_one(node):
    node.gates = resolve_gates({"HostnameOverride": False})
    async with node.run():
        await node.bind(hostnameOverride="other")
        await node.until_running()
        [sandbox] = node.machine.runtime.sandboxes()
        assert sandbox.config.hostname == "p"


async def test_a_variable_from_a_file_is_empty(node):
    node.gates = resolve_gates({"EnvFiles": False})
    async with node.run():
        await node.bind(container={"env": [FROM_FILE]}, volumes=[{"name": "v", "emptyDir": {}}])
        await node.until_running()
        assert node.environment()["A"] == ""


async def test_the_restart_policy_of_the_pod_counts_for_all_containers(node):
    node.gates = resolve_gates({"ContainerRestartRules": False})
    async with node.run():
        await node.bind(container={"restartPolicy": "Never", "restartPolicyRules": [RESTARTS]}, restartPolicy="Never")
        await node.until_running()
        [container] = node.machine.runtime.containers()
        node.machine.runtime.end_container(container.id, 42)
        pod = await node.until(lambda pod: pod is not None and pod.status.phase == "Failed")
        assert pod.status.container_statuses[0].restart_count == 0


async def test_an_image_is_no_volume_that_the_node_knows(node):
    node.gates = resolve_gates({"ImageVolume": False})
    async with node.run():
        await node.bind(volumes=[{"name": "v", "image": {"reference": IMAGE}}])
        [message, *_] = await node.reported("FailedMount")
        assert 'failed to get Plugin from volumeSpec for volume "v" err=no volume plugin matched' in message
        assert node.machine.runtime.containers() == ()


async def test_a_pod_with_resources_of_its_own_is_rejected(node):
    node.gates = resolve_gates({"PodLevelResources": False})
    async with node.run():
        await node.bind(resources={"limits": {"cpu": "1"}})
        pod = await node.until(lambda pod: pod is not None and pod.status.phase == "Failed")
        assert (pod.status.reason, pod.status.message) == (
            "PodLevelResourcesNotSupported",
            "Pod was rejected: PodLevelResources feature gate is disabled",
        )


async def test_a_pod_has_no_condition_for_its_sandbox(node):
    node.gates = resolve_gates({"PodReadyToStartContainersCondition": False})
    async with node.run():
        await node.bind()
        pod = await node.until_running()
        assert {each.type for each in pod.status.conditions} == {
            "Initialized", "Ready", "ContainersReady", "PodScheduled"
        }  # fmt: skip
