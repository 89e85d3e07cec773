from datetime import UTC, datetime

import pytest

from klet.model.runtime import ContainerRecord, PodRuntimeStatus, RuntimeContainerState, SandboxRecord
from klet.model.stats import CgroupIdentity, CgroupLevel, SystemCgroups
from klet.stats.identity import find_owners, identify

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SANDBOX, CONTAINER = "5" * 64, "c" * 64
UID = "0b7f7e0c-1111-4222-8333-444455556666"
POD = PodRuntimeStatus(
    uid=UID,
    name="web",
    namespace="default",
    sandboxes=(SandboxRecord(id=SANDBOX, attempt=0, ready=True, created_at=NOW),),
    containers=(
        ContainerRecord(
            id=CONTAINER,
            sandbox_id=SANDBOX,
            name="main",
            image="nginx",
            state=RuntimeContainerState.RUNNING,
            created_at=NOW,
        ),
    ),
)
PODS = {UID: POD}
SLICE = f"kubepods-burstable-pod{UID.replace('-', '_')}.slice"
ON_SYSTEMD = f"/kubepods.slice/kubepods-burstable.slice/{SLICE}"


def pod(path):
    return CgroupIdentity(path=path, level=CgroupLevel.POD, namespace="default", pod="web", pod_uid=UID)


def sandbox(path):
    return CgroupIdentity(
        path=path,
        level=CgroupLevel.SANDBOX,
        container_id=SANDBOX,
        image="pause:1",
        namespace="default",
        pod="web",
        pod_uid=UID,
    )


def container(path):
    return CgroupIdentity(
        path=path,
        level=CgroupLevel.CONTAINER,
        container_id=CONTAINER,
        image="nginx",
        namespace="default",
        pod="web",
        pod_uid=UID,
        container="main",
    )


def of(level):
    return lambda path: CgroupIdentity(path=path, level=level)


@pytest.mark.parametrize(
    ("path", "root", "expected"),
    [
        pytest.param("/", "/kubepods", of(CgroupLevel.ROOT), id="the root"),
        pytest.param("/kubepods", "/kubepods", of(CgroupLevel.PODS), id="all pods"),
        pytest.param("/x/kubepods", "/x/kubepods", of(CgroupLevel.PODS), id="all pods below a configured root"),
        pytest.param("/kubepods/burstable", "/kubepods", of(CgroupLevel.QOS), id="a class"),
        pytest.param(f"/kubepods/pod{UID}", "/kubepods", pod, id="a guaranteed pod"),
        pytest.param(f"/kubepods/besteffort/pod{UID}", "/kubepods", pod, id="a pod of a class"),
        pytest.param(f"/kubepods/burstable/pod{UID}/{SANDBOX}", "/kubepods", sandbox, id="a sandbox"),
        pytest.param(f"/kubepods/burstable/pod{UID}/{CONTAINER}", "/kubepods", container, id="a container"),
        pytest.param(f"/kubepods/pod{UID}/{'d' * 64}", "/kubepods", of(CgroupLevel.OTHER), id="an unknown container"),
        pytest.param(f"/kubepods/pod{UID}/{CONTAINER}/init", "/kubepods", of(CgroupLevel.OTHER), id="one of its own"),
        pytest.param("/kubepods.slice", "/kubepods.slice", of(CgroupLevel.PODS), id="all pods with systemd"),
        pytest.param(ON_SYSTEMD.rpartition("/")[0], "/kubepods.slice", of(CgroupLevel.QOS), id="a class with systemd"),
        pytest.param(ON_SYSTEMD, "/kubepods.slice", pod, id="a pod with systemd"),
        pytest.param(
            f"{ON_SYSTEMD}/cri-containerd-{CONTAINER}.scope", "/kubepods.slice", container, id="a scope of containerd"
        ),
        pytest.param(
            f"{ON_SYSTEMD}/crio-conmon-{CONTAINER}.scope",
            "/kubepods.slice",
            of(CgroupLevel.OTHER),
            id="a monitor is not its container",
        ),
        pytest.param("/system.slice/klet.service", "/kubepods", of(CgroupLevel.SYSTEM), id="a service"),
        pytest.param(f"/k8s.io/{CONTAINER}", "", container, id="a container without cgroups of pods"),
    ],
)
def test_a_cgroup_is_known_by_its_path(path, root, expected):
    found = identify(
        path, system=SystemCgroups(pods=root), owners=find_owners(PODS, sandbox_images={SANDBOX: "pause:1"}), pods=PODS
    )
    assert found == expected(path)


def test_a_sandbox_whose_image_is_not_known_has_none():
    assert find_owners(PODS, sandbox_images={})[SANDBOX].image == ""
