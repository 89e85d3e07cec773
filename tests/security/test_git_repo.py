"""gitRepo volumes (CVE-2024-10220): hooks of a cloned repository run as root on the node."""

import os

import pytest

from klet.testing.builders import IMAGE

VOLUME = {"name": "v", "gitRepo": {"repository": "https://127.0.0.1:1/evil.git", "directory": "x/../../.git"}}
MOUNT = {"volumeMounts": [{"name": "v", "mountPath": "/v"}]}


@pytest.fixture
def git(tmp_path, monkeypatch):
    """A `git` that notes that it was run, before every other one."""
    programs, ran = tmp_path / "programs", tmp_path / "git-ran"
    programs.mkdir()
    (programs / "git").write_text(f'#!/bin/sh\necho "$@" >>{ran}\n')
    (programs / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    return ran


async def test_git_is_never_run(attack, pod, git):
    async with attack(cluster=True) as target:
        spec = {"containers": [{"name": "main", "image": IMAGE, **MOUNT}], "volumes": [VOLUME]}
        made = await target.cluster.slip_in("api", spec)
        assert "git-repo volume plugin has been disabled" in await target.reported(
            "FailedMount", about="api", uid=made["metadata"]["uid"]
        )
        target.node.write("web", pod("web", main=MOUNT, spec={"volumes": [VOLUME]}))
        await target.start(pod("zz-last"))
        assert {each.metadata.name for each in target.created()} == {"main"}
        assert len(target.created()) == 1
    assert not git.exists()
