"""The agent pulls from a registry that wants a login, with the login of the node."""

import pytest

pytestmark = [pytest.mark.root, pytest.mark.containerd]


def manifest(name, image):
    container = {"name": "main", "image": image, "imagePullPolicy": "Always", "command": ["sleep", "1000"]}
    spec = {"hostNetwork": True, "terminationGracePeriodSeconds": 0, "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


async def test_the_login_of_the_node_lets_its_pods_in(node, private_image, registry):
    node.write("stranger", manifest("stranger", private_image))
    async with node.run() as agent:
        [_, failed] = await agent.recorded("stranger", "Pulling", "Failed")
        assert private_image in failed["message"]
    node.remove("stranger")
    (node.root / "config.json").write_bytes(registry.docker_config())
    node.write("guest", manifest("guest", private_image))
    async with node.run() as agent:
        await agent.recorded("guest", "Pulling", "Pulled", "Started")
        assert "right-pass" not in await agent.text("/klet/v1/journal")
        node.remove("guest")
        await agent.until(lambda pods: not pods, what="the end of the pods")
        assert "right-pass" not in agent.log
