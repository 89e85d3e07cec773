"""Services on the node's loopback, asked from a pod by way of its gateway (CVE-2020-8558).

A kernel drops such packets unless `route_localnet` is set for the interface that they come in by. klet does not set it.
The CNI plugin of host ports does, for the bridge of the pods: see docs/security.md.
"""

import asyncio
from pathlib import Path

import pytest

pytestmark = [pytest.mark.root, pytest.mark.containerd]

CONF = Path("/proc/sys/net/ipv4/conf")
SECRET = b"only for the loopback\n"
ATTACK = """
gateway=$(ip route | sed -n 's/^default via \\([0-9.]*\\).*/\\1/p')
ip addr flush dev lo
ip route add 127.0.0.1/32 via "$gateway"
nc -w 3 127.0.0.1 {port} </dev/null
echo the attack is over
exec sleep 1000
"""


def routed():
    """The interfaces by which packets to the loopback are taken in."""
    return {path.parent.name for path in CONF.glob("*/route_localnet") if path.read_text().strip() != "0"}


async def greet(_reader, writer):
    writer.write(SECRET)
    await writer.drain()
    writer.close()


async def test_a_pod_does_not_reach_the_loopback_of_the_node(node, manifest):
    before = routed()
    service = await asyncio.start_server(greet, "127.0.0.1", 0)
    pod = manifest("evil", main=ATTACK.format(port=service.sockets[0].getsockname()[1]))
    pod["spec"]["containers"][0]["securityContext"] = {"capabilities": {"add": ["NET_ADMIN"]}}
    # The pod's own kernel settings would stop it, but for raw sockets: this stands for those.
    pod["spec"]["securityContext"] = {"sysctls": [{"name": "net.ipv4.conf.all.route_localnet", "value": "1"}]}
    node.write("evil", pod)
    async with service, node.run(allowedUnsafeSysctls=["net.ipv4.*"]) as agent:
        await agent.until(lambda pods: "evil" in pods and pods["evil"].status.phase == "Running", what="the pod")
        said = await agent.said("evil", "main", until="the attack is over")
        assert "the attack is over" in said
        assert SECRET.decode() not in said
        assert routed() - before == set()
        node.remove("evil")
        await agent.until(lambda pods: not pods, what="the end of the pod")
