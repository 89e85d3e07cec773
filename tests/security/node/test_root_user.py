"""Root instead of the image's user (CVE-2019-11245), as the processes of a real runtime have it."""

import shutil
from pathlib import Path

import pytest

from klet.aio.clock import SystemClock
from klet.host.images import ImageConfig, build_image, directory, file
from klet.testing.containerd import add_image

pytestmark = [pytest.mark.root, pytest.mark.containerd]

IMAGE = "klet.local/as-user:1"
SAY = ["/bin/busybox", "sh", "-c", "/bin/busybox id -u; exit 1"]


def busybox_of_user(user):
    binary = Path(shutil.which("busybox")).read_bytes()
    layer = [directory("bin"), file("bin/busybox", binary, 0o755)]
    return build_image(name=IMAGE, layers=[layer], config=ImageConfig(user=user))


def manifest_of(manifest, name, **context):
    pod = manifest(name, main="")
    main = pod["spec"]["containers"][0]
    main |= {"image": IMAGE, "command": SAY, "imagePullPolicy": "Never", "securityContext": context}
    return pod


async def said(node, agent, name, *, starts):
    """What the process of each start said."""
    await agent.recorded(name, *["Started"] * starts)
    uid = (await agent.pod(name)).metadata.uid
    [logs] = node.logs.glob(f"*_{uid}")
    await agent.until_recorded(has_logs(logs / "main", starts), what=f"{name}: {starts} logs")
    return {line.rsplit(" ", 1)[-1] for log in (logs / "main").glob("*.log") for line in log.read_text().splitlines()}


def has_logs(path, count):
    async def holds():
        return sum(log.stat().st_size > 0 for log in path.glob("*.log")) >= count

    return holds


async def test_processes_are_the_user_of_the_image_after_restarts_and_under_the_next_agent(
    node, manifest, containerd, cri
):
    await add_image(containerd, cri, name=IMAGE, data=busybox_of_user("1000"), clock=SystemClock())
    async with node.run() as agent:
        node.write("web", manifest_of(manifest, "web"))
        assert await said(node, agent, "web", starts=2) == {"1000"}
        node.write("strict", manifest_of(manifest, "strict", runAsNonRoot=True))
        assert await said(node, agent, "strict", starts=2) == {"1000"}
    async with node.run() as agent:
        # Those before are in their back-offs; this one starts at once, and with them known.
        node.write("later", manifest_of(manifest, "later"))
        assert await said(node, agent, "later", starts=2) == {"1000"}
