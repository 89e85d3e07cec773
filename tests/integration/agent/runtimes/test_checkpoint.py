"""A checkpoint of a running container, made by a later containerd with CRIU."""

import json
import stat
import tarfile
from pathlib import Path

import pytest

from klet.testing.criu import find_criu
from klet.testing.debian_packages import PackagesMissing

pytestmark = [pytest.mark.root, pytest.mark.containerd]


@pytest.fixture
def programs(newer_programs, tmp_path):
    """Those of a later containerd, and CRIU."""
    try:
        criu = find_criu()
    except PackagesMissing as error:
        pytest.skip(f"no CRIU: its Debian package cannot be fetched; {error}")
    together = tmp_path / "programs"
    together.mkdir()
    for program in (*newer_programs.iterdir(), *criu.iterdir()):
        (together / program.name).symlink_to(program.resolve())
    return together


async def test_a_container_is_checkpointed_and_goes_on(own_containerd, build_node, manifest, programs):
    async with own_containerd("criu", programs=programs) as daemon:
        node = build_node(daemon)
        async with node.run() as agent:
            node.write("web", manifest("web", main="i=0; while true; do echo $i; i=$((i+1)); sleep 1; done"))
            await agent.recorded("web", "Ready")
            await agent.first_line("web", "main")
            async with agent.session.post("http://agent/checkpoint/default/web-node/main") as answer:
                status, body = answer.status, await answer.text()
            assert (status, body) == (200, body), agent.log
            [archive] = map(Path, json.loads(body)["items"])
            assert archive.parent == node.root / "checkpoints"
            assert archive.name.startswith("checkpoint-web-node_default-main-")
            assert stat.S_IMODE(archive.stat().st_mode) == 0o600
            with tarfile.open(archive) as opened:
                names = {Path(name).parts[0] for name in opened.getnames()}
            assert {"checkpoint", "config.dump", "spec.dump"} <= names
            # It counts on, from where it was.
            before = int((await agent.text("/containerLogs/default/web-node/main?tailLines=1")).strip())
            await agent.said("web", "main", until=f"{before + 2}\n")
            assert (await agent.pod("web")).status.container_statuses[0].restart_count == 0
            node.remove("web")
            await agent.recorded("web", "Removed")
