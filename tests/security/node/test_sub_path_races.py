"""A race for subPath (CVE-2017-1002101, CVE-2021-25741): a container swaps the part for a link while others start.

The swapper is a sidecar, so that it also runs beside init containers. tests/integration/runtime/test_sub_paths.py and
the races of klet.testing have many more rounds, on the code that binds.
"""

import asyncio
from contextlib import aclosing

import pytest

pytestmark = [pytest.mark.root, pytest.mark.containerd]

SWAP = """
while true; do
    rm -rf /all/part; ln -sn {outside} /all/part 2>/dev/null
    rm -f /all/part; mkdir /all/part 2>/dev/null
done
"""
LOOK = "cat /part/flag >>/all/caught 2>/dev/null; touch /part/visited 2>/dev/null; sleep 1000"
VICTIMS = 6


def with_swapper(pod, outside, *, victims):
    """The swapper is started first; victims have the part of the volume that it swaps."""
    whole = {"name": "data", "mountPath": "/all"}
    evil = {
        "name": "evil",
        "image": "klet.local/busybox:1",
        "command": ["sh", "-c", SWAP.format(outside=outside)],
        "restartPolicy": "Always",
        "volumeMounts": [whole],
    }
    spec = pod["spec"]
    for container in (*spec["containers"], *spec["initContainers"]):
        if container["name"] in victims:
            container["volumeMounts"] = [whole, {"name": "data", "mountPath": "/part", "subPath": "part"}]
    spec["initContainers"] = [evil, *spec["initContainers"]]
    spec["volumes"] = [{"name": "data", "emptyDir": {}}]
    return pod


async def until_tried(agent, name, victims):
    """Until each of the victims was started or refused."""
    left = set(victims)
    async with asyncio.timeout(60), aclosing(agent.records(name=f"{name}-node")) as records:
        async for record in records:
            if record["decision"] in {"Started", "Failed"}:
                left.discard(record["subject"]["container"])
                if not left:
                    return


async def test_neither_init_nor_other_containers_get_the_host(node, manifest, tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside")
    (outside / "flag").write_text("flag of the host")
    regular = tuple(f"victim{number}" for number in range(VICTIMS))
    late = manifest("late", **dict.fromkeys(regular, LOOK))
    early = manifest("early", init={"victim": LOOK.replace("; sleep 1000", "")}, main="sleep 1000")
    node.write("late", with_swapper(late, outside, victims=regular))
    node.write("early", with_swapper(early, outside, victims=("victim",)))
    async with node.run() as agent:
        for name, victims in (("late", regular), ("early", ("victim",))):
            await until_tried(agent, name, victims)
        assert sorted(path.name for path in outside.iterdir()) == ["flag"]
        caught = [path.read_text() for path in node.root.glob("pods/*/volumes/kubernetes.io~empty-dir/data/caught")]
        assert "flag of the host" not in "".join(caught)
        for name in ("late", "early"):
            node.remove(name)
        await agent.until(lambda pods: not pods, what="the end of the pods")
    assert (outside / "flag").read_text() == "flag of the host"
