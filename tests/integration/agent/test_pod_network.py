"""The pod network of a node without an API server, on a containerd that has none."""

import json

from klet.node.bridge_network import FILE


async def test_the_bridge_network_has_the_pod_network_of_the_configuration(own_containerd, build_node):
    async with own_containerd("podcidr") as daemon:
        (daemon.settings.cni_conf_dir / "10-klet.conflist").unlink()
        node = build_node(daemon)
        async with node.run("--klet-bridge-network", podCIDR="10.97.0.0/24") as agent:
            # Without a network before; no pod is started, as that would make the bridge of this machine.
            await agent.until_recorded(lambda: is_written(daemon), what="the network's configuration")
            written = json.loads((daemon.settings.cni_conf_dir / FILE).read_text())

            async def is_ready() -> bool:
                return "NetworkReady" in await agent.text("/klet/v1/journal")

            await agent.until_recorded(is_ready, what="a network that is ready")
    plugins = {plugin["type"]: plugin for plugin in written["plugins"]}
    assert plugins["bridge"]["ipam"]["ranges"] == [[{"subnet": "10.97.0.0/24"}]]
    assert plugins["bandwidth"]["capabilities"] == {"bandwidth": True}


async def is_written(daemon) -> bool:
    return (daemon.settings.cni_conf_dir / FILE).exists()
