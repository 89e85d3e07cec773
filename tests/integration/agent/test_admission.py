"""What a real host and containerd cannot do is found at admission; what a node has for pods is what containers see."""

import pytest

from klet.host.machine.reader import MachineReader
from klet.wire import cri_v1_pb2 as pb

pytestmark = [pytest.mark.root, pytest.mark.containerd]

FOREVER = "sleep 1000"
MIB = 1 << 20


async def test_a_profile_where_the_host_has_no_app_armor(node, manifest):
    context = {"securityContext": {"appArmorProfile": {"type": "RuntimeDefault"}}}
    node.write("armored", manifest("armored", main=FOREVER, spec=context))
    async with node.run() as agent:
        if MachineReader().has_app_armor():
            await agent.recorded("armored", "Ready")
            return
        await agent.recorded("armored", "AppArmor")
        await agent.until(lambda pods: pods["armored"].status.phase == "Failed", what="the rejection")
        status = (await agent.pod("armored")).status
        message = "Pod was rejected: Cannot enforce AppArmor: AppArmor is not enabled on the host"
        assert (status.reason, status.message) == ("AppArmor", message)


async def test_groups_that_the_runtime_would_add_all_the_same(node, cri, manifest):
    can = (await cri.status(pb.StatusRequest())).features.supplemental_groups_policy
    context = {"securityContext": {"supplementalGroupsPolicy": "Strict"}}
    node.write("strict", manifest("strict", main=FOREVER, spec=context))
    async with node.run() as agent:
        await agent.recorded("strict", "Ready" if can else "SupplementalGroupsPolicyNotSupported")


async def test_a_full_node(node, manifest):
    """Static pods are critical: none of them makes room for another."""
    node.write("first", manifest("first", main=FOREVER))
    async with node.run(maxPods=1) as agent:
        await agent.recorded("first", "Ready")
        node.write("second", manifest("second", main=FOREVER))
        (rejected,) = await agent.recorded("second", "UnexpectedAdmissionError")
        assert rejected["message"].endswith("to reclaim resources: [(res: pods, q: 1), ]")
        assert (rejected["measurements"]["used"], rejected["measurements"]["capacity"]) == (1, 1)
        assert (await agent.pod("first")).status.phase == "Running"


async def test_a_container_without_limits_sees_what_the_node_has_for_pods(node, manifest):
    machine = MachineReader().info()
    kept = 256 * MIB
    left = machine.memory - kept - sum(size * count for size, count in machine.hugepages.items())
    wanted = {"resourceFieldRef": {"resource": "limits.memory", "containerName": "main"}}
    script = "echo $MEMORY; cat /down/memory; echo; grep ' /scratch ' /proc/mounts; sleep 1000"
    volumes = [
        {"name": "down", "downwardAPI": {"items": [{"path": "memory"} | wanted]}},
        {"name": "scratch", "emptyDir": {"medium": "Memory"}},
    ]
    pod = manifest("told", main=script, spec={"volumes": volumes})
    pod["spec"]["containers"][0] |= {
        "env": [{"name": "MEMORY", "valueFrom": wanted}],
        "volumeMounts": [{"name": each["name"], "mountPath": f"/{each['name']}"} for each in volumes],
    }
    node.write("told", pod)
    settings = {
        "systemReserved": {"memory": "128Mi"},
        "kubeReserved": {"memory": "64Mi"},
        "evictionHard": {"memory.available": "64Mi"},
    }
    async with node.run(**settings) as agent:
        await agent.recorded("told", "Ready")
        environment, file, mounted = (await agent.said("told", "main", until="tmpfs")).splitlines()
        assert (int(environment), int(file)) == (left, left)
        (size,) = [option for option in mounted.split()[3].split(",") if option.startswith("size=")]
        # The kernel counts in pages.
        assert (
            int(size.removeprefix("size=").removesuffix("k")) * 1024
            == -(-left // machine.page_size) * machine.page_size
        )
