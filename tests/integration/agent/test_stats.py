"""`/stats/summary` of real pods on real containerd: what they are known to use is what it shows."""

import asyncio
import json
import socket
import time
from pathlib import Path

import pytest

from klet.testing.leftovers import find_cgroups

MIB = 1 << 20
HELD = 64 * MIB
QUOTA = 300
"""Thousandths of a CPU."""


@pytest.fixture
def burner(manifest):
    pod = manifest("burner", main="while :; do :; done")
    pod["spec"]["containers"][0]["resources"] = {"limits": {"cpu": f"{QUOTA}m"}, "requests": {"cpu": "10m"}}
    return pod


@pytest.fixture
def holder(manifest):
    # A file in memory is neither given back nor counted as reclaimable.
    pod = manifest(
        "holder", main=f"dd if=/dev/zero of=/held/file bs=1M count={HELD // MIB} && echo held && exec sleep 1000"
    )
    pod["spec"]["volumes"] = [{"name": "held", "emptyDir": {"medium": "Memory"}}]
    container = pod["spec"]["containers"][0]
    container["volumeMounts"] = [{"name": "held", "mountPath": "/held"}]
    container["resources"] = {"limits": {"memory": "256Mi"}}
    return pod


async def summarize(agent, query=""):
    async with agent.session.get(f"http://agent/stats/summary{query}") as answer:
        text = await answer.text()
        assert (answer.status, answer.content_type) == (200, "application/json"), text
    return json.loads(text)


def by_name(summary):
    return {pod["podRef"]["name"].removesuffix("-node"): pod for pod in summary["pods"]}


class CpuCounter:
    """What the kernel has counted of a container: it may get less than its limit on a busy machine."""

    def __init__(self, pod, parent):
        container = pod.status.container_statuses[0].container_id.removeprefix("containerd://")
        # On a machine with version 1, version 2 is there too, and may count nothing.
        cgroups = [Path(each) for each in find_cgroups(container, below=parent)]
        self._files = [file for each in cgroups if (file := each / "cpuacct.usage").exists()]
        self._files += [file for each in cgroups if (file := each / "cpu.stat").exists()]

    def read(self):
        """Return the instant and the nanoseconds."""
        text = self._files[0].read_text()
        return time.monotonic(), int(text.split()[1]) * 1000 if text.startswith("usage_usec") else int(text)


async def test_known_use_of_cpu_and_memory_is_shown(node, burner, holder, containerd):
    async with node.run() as agent:
        node.write("burner", burner)
        node.write("holder", holder)
        await agent.recorded("burner", "Ready")
        await agent.said("holder", "main", until="held")
        counter = CpuCounter(await agent.pod("burner"), containerd.cgroup_parent)
        counted = [counter.read()]
        before = await summarize(agent)
        counted.append(counter.read())
        await asyncio.sleep(10.5)  # a snapshot is handed out again for ten seconds
        counted.append(counter.read())
        after = await summarize(agent)
        counted.append(counter.read())
    pods = by_name(after)
    assert set(pods) == {"burner", "holder"}
    [burnt_before], [burnt] = (by_name(each)["burner"]["containers"] for each in (before, after))
    used_before, used = (each["cpu"]["usageCoreNanoSeconds"] for each in (burnt_before, burnt))
    instants, counts = zip(*counted, strict=True)
    assert counts[0] <= used_before <= counts[1] < counts[2] <= used <= counts[3]
    lowest = (used - used_before) / (instants[3] - instants[0])
    highest = (used - used_before) / (instants[2] - instants[1])
    for stats in (pods["burner"], burnt):
        rate = stats["cpu"]["usageNanoCores"]
        assert lowest * 0.95 <= rate <= min(highest, QUOTA * 1_000_000) * 1.05
    [container] = pods["holder"]["containers"]
    assert container["memory"]["workingSetBytes"] == pytest.approx(HELD, rel=0.05)
    assert container["memory"]["availableBytes"] == 256 * MIB - container["memory"]["workingSetBytes"]
    assert pods["holder"]["memory"]["workingSetBytes"] >= container["memory"]["workingSetBytes"]
    assert pods["holder"]["process_stats"]["process_count"] == 1
    node_stats = after["node"]
    assert node_stats["memory"]["workingSetBytes"] > HELD
    assert node_stats["cpu"]["usageNanoCores"] > lowest * 0.9
    assert {each["name"] for each in node_stats["systemContainers"]} >= {"pods"}
    assert node_stats["rlimit"]["curproc"] > 0
    assert node_stats["fs"]["capacityBytes"] > 0
    assert node_stats["runtime"]["imageFs"]["capacityBytes"] > 0


async def test_the_first_request_has_a_rate_and_only_what_is_asked_for(node, burner):
    async with node.run() as agent:
        node.write("burner", burner)
        await agent.recorded("burner", "Ready")
        summary = await summarize(agent, "?only_cpu_and_memory=true")
    [pod] = summary["pods"]
    assert set(pod) == {"podRef", "startTime", "containers", "cpu", "memory", "swap"}
    assert pod["cpu"]["usageNanoCores"] > 0
    assert "usageNanoCores" in summary["node"]["cpu"]


async def test_pods_show_the_traffic_of_their_network(node, manifest):
    async with node.run() as agent:
        node.write("web", manifest("web", main="exec sleep 1000"))
        node.write("host", manifest("host", spec={"hostNetwork": True}, main="exec sleep 1000"))
        await agent.recorded("host", "Ready")
        await agent.recorded("web", "Ready")
        address = (await agent.pod("web")).status.pod_ip
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            for _ in range(100):
                sender.sendto(b"x" * 1000, (address, 9))
        summary = await summarize(agent)
    pods = by_name(summary)
    [interface] = pods["web"]["network"]["interfaces"]
    assert interface["name"] == pods["web"]["network"]["name"] == "eth0"
    assert 100 * 1000 < interface["rxBytes"] == pods["web"]["network"]["rxBytes"] < 200 * 1000
    assert interface["txBytes"] > 0  # it answers that the port is closed
    # One on the network of the host shows that of the host, as upstream.
    assert pods["host"]["network"]["name"] == summary["node"]["network"]["name"]
    shown = {interface["name"] for interface in pods["host"]["network"]["interfaces"]}
    assert shown >= {interface["name"] for interface in summary["node"]["network"]["interfaces"]}
