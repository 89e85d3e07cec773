"""A container that swaps a part of a shared volume for a link to the host's files."""

import pytest

pytestmark = [pytest.mark.root, pytest.mark.containerd]

SWAP = "rm -rf /all/part; ln -s / /all/part; touch /all/done; exec sleep 1000"
VICTIM = "until [ -e /all/done ]; do sleep 0.05; done; ls /part > /all/listed; exit 1"


def waiting(pods):
    statuses = {each.name: each for each in pods["shared"].status.container_statuses} if "shared" in pods else {}
    victim = statuses.get("victim")
    return victim.state.waiting if victim is not None else None


async def test_the_next_start_of_a_container_does_not_see_the_host(node, manifest):
    pod = manifest("shared", evil=SWAP, victim=VICTIM)
    evil, victim = pod["spec"]["containers"]
    whole = {"name": "data", "mountPath": "/all"}
    evil["volumeMounts"] = [whole]
    victim["volumeMounts"] = [whole, {"name": "data", "mountPath": "/part", "subPath": "part"}]
    pod["spec"]["volumes"] = [{"name": "data", "emptyDir": {}}]
    # The victim comes first, so that its part is there before it is swapped.
    pod["spec"]["containers"] = [victim, evil]
    node.write("shared", pod)
    async with node.run() as agent:

        def is_refused(pods):
            state = waiting(pods)
            return state is not None and state.reason == "CreateContainerConfigError"

        await agent.until(is_refused, what="a refusal")
        state = waiting(await agent.pods())
        assert state.message == 'failed to prepare subPath for volumeMount "data" of container "victim"'
        uid = (await agent.pod("shared")).metadata.uid
        volume = node.root / "pods" / uid / "volumes" / "kubernetes.io~empty-dir" / "data"
        # What it was bound to in its first life was its own, empty directory, and not the root of anybody.
        assert (volume / "listed").read_text() == ""
        # Without the link it goes on.
        (volume / "part").unlink()
        (volume / "done").unlink()
        await agent.until(lambda pods: waiting(pods) is None, what="another start")
