"""What containerd 1.6 lacks, on a later one."""

import json
import subprocess
from pathlib import Path

import pytest

from klet.host.images import BUSYBOX_IMAGE
from klet.wire import cri_v1_pb2 as pb

pytestmark = [pytest.mark.root, pytest.mark.containerd]


async def test_a_pod_runs_from_its_manifest_to_its_removal(newer_node, newer_cri, newer_containerd, manifest):
    """The node is configured for systemd: klet follows the runtime, which makes cgroups itself."""
    assert (await newer_cri.version(pb.VersionRequest())).runtime_version.startswith("2.")
    reported = await newer_cri.runtime_config(pb.RuntimeConfigRequest())
    assert reported.linux.cgroup_driver == pb.CGROUPFS
    newer_node.write("web", manifest("web", init={"first": "true"}, main="echo hello; sleep 1000"))
    newer_node.write("short", manifest("short", main="exit 3", spec={"restartPolicy": "Never"}))
    async with newer_node.run(cgroupDriver="systemd") as agent:
        await agent.recorded("web", "Ready")
        assert await agent.first_line("web", "main") == "hello\n"
        await agent.until(lambda pods: pods["short"].status.phase == "Failed", what="the failure")
        pod = await agent.pod("web")
        cgroup = f"{newer_containerd.cgroup_parent}/kubepods/besteffort/pod{pod.metadata.uid}"
        assert any(path.exists() for path in (Path(f"/sys/fs/cgroup/memory{cgroup}"), Path(f"/sys/fs/cgroup{cgroup}")))
        for name in ("web", "short"):
            newer_node.remove(name)
            await agent.recorded(name, "Stopped", "Finished", "Removed")
        assert not (await newer_cri.list_pod_sandbox(pb.ListPodSandboxRequest())).items
        # No deprecated setting in the configuration that klet wrote, and all handlers reported.
        status = await newer_cri.status(pb.StatusRequest())
        conditions = {condition.type: condition.status for condition in status.status.conditions}
        assert conditions["ContainerdHasNoDeprecationWarnings"]


async def test_a_pod_has_users_of_its_own(newer_node, manifest):
    pod = manifest(
        "users",
        main="echo $(cat /proc/self/uid_map) $(stat -c %u /data); echo x > /data/file; sleep 1000",
        spec={"hostUsers": False, "volumes": [{"name": "data", "emptyDir": {}}]},
    )
    pod["spec"]["containers"][0]["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
    newer_node.write("users", pod)
    newer_node.write("plain", manifest("plain", main="echo $(cat /proc/self/uid_map); sleep 1000"))
    async with newer_node.run() as agent:
        await agent.recorded("users", "Ready")
        await agent.recorded("plain", "Ready")
        directory = newer_node.root / "pods" / (await agent.pod("users")).metadata.uid
        (given,) = json.loads((directory / "userns").read_text())["uidMappings"]
        assert given["hostId"] >= 65536
        first, host, length, owner = (await agent.first_line("users", "main")).split()
        assert (int(first), int(host), int(length)) == (0, given["hostId"], 65536)
        # Inside root's, outside root's too: the volume is mounted with the ids of the pod.
        assert owner == "0"
        assert (directory / "volumes/kubernetes.io~empty-dir/data").stat().st_uid == 0
        assert (await agent.first_line("plain", "main")).split() == ["0", "0", "4294967295"]
        newer_node.remove("users")
        await agent.recorded("users", "Finished", "Removed")
        assert not directory.exists()


async def test_a_pod_sees_the_files_of_an_image_and_cannot_change_them(newer_node, newer_cri, manifest):
    """By a volume that the runtime mounts. The image is also one that no container mounts."""
    image = {"reference": BUSYBOX_IMAGE, "pullPolicy": "IfNotPresent"}
    volumes = [{"name": name, "image": image} for name in ("files", "unused")]
    script = "cmp /files/bin/busybox /bin/busybox && echo same; touch /files/x 2>&1; sleep 1000"
    pod = manifest("image", main=script, spec={"volumes": volumes})
    pod["spec"]["containers"][0]["volumeMounts"] = [{"name": "files", "mountPath": "/files"}]
    newer_node.write("image", pod)
    async with newer_node.run() as agent:
        await agent.recorded("image", "Ready")
        said = await agent.said("image", "main", until="Read-only")
        assert said.splitlines() == ["same", "touch: /files/x: Read-only file system"]
        found = await newer_cri.list_containers(pb.ListContainersRequest())
        status = await newer_cri.container_status(pb.ContainerStatusRequest(container_id=found.containers[0].id))
        mounted = {mount.container_path: mount.image.image for mount in status.status.mounts}
        assert mounted["/files"]
        newer_node.remove("image")
        await agent.recorded("image", "Finished", "Removed")


@pytest.fixture
def nested_mount(nested):
    inner = nested / "inner"
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(inner)], check=True)
    yield nested
    subprocess.run(["umount", "--lazy", str(inner)], check=True)


async def test_read_only_down_to_the_last_mount(newer_node, manifest, nested_mount):
    script = "touch /data/inner/$HOSTNAME 2>/dev/null && echo written || echo refused; sleep 1000"
    modes = {"must": "Enabled", "may": "IfPossible", "no": "Disabled"}
    for name, mode in modes.items():
        pod = manifest(name, main=script)
        pod["spec"]["volumes"] = [{"name": "data", "hostPath": {"path": str(nested_mount)}}]
        mount = {"name": "data", "mountPath": "/data", "readOnly": True, "recursiveReadOnly": mode}
        pod["spec"]["containers"][0]["volumeMounts"] = [mount]
        newer_node.write(name, pod)
    async with newer_node.run() as agent:
        said = {}
        for name in modes:
            await agent.recorded(name, "Ready")
            said[name] = (await agent.first_line(name, "main")).strip()
        assert said == {"must": "refused", "may": "refused", "no": "written"}


async def test_events_of_the_cri_are_followed_where_containerd_refuses_its_own(
    own_containerd, newer_programs, build_node, manifest
):
    async with own_containerd(
        "cri-events", programs=newer_programs, disabled_plugins=("io.containerd.grpc.v1.events",)
    ) as daemon:
        node = build_node(daemon)
        node.write("short", manifest("short", main="sleep 1", spec={"restartPolicy": "Never"}))
        async with node.run() as agent:
            await agent.recorded("short", "Ready")
            await agent.until(lambda pods: pods["short"].status.phase == "Succeeded", what="the end")
            # Not by relisting, which comes once in a minute while there is a stream.
            assert '"The runtime has no such event stream" stream="ContainerdEvents"' in agent.log
            assert "relisting instead" not in agent.log
            node.remove("short")
            await agent.recorded("short", "Finished", "Removed")


async def test_a_container_chooses_its_stop_signal_if_the_runtime_lets_it(newer_node, manifest):
    """A runtime that does not know the field stops by the image's signal, and reports none."""
    said = "trap 'echo by USR1 > /data/end; exit 0' USR1; trap 'echo by TERM > /data/end; exit 0' TERM"
    pod = manifest(
        "signal",
        main=f"{said}; echo up; while true; do sleep 1000 & wait $!; done",
        spec={
            "os": {"name": "linux"},
            "volumes": [{"name": "data", "hostPath": {"path": str(newer_node.root.parent)}}],
        },
    )
    pod["spec"]["containers"][0] |= {
        "lifecycle": {"stopSignal": "SIGUSR1"},
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    }
    newer_node.write("signal", pod)
    async with newer_node.run(featureGates={"ContainerStopSignals": True}) as agent:
        await agent.recorded("signal", "Ready")
        assert await agent.first_line("signal", "main") == "up\n"
        [status] = (await agent.pod("signal")).status.container_statuses
        assert status.stop_signal in {"SIGUSR1", None}
        newer_node.remove("signal")
        await agent.recorded("signal", "Stopped")
    assert (newer_node.root.parent / "end").read_text() == ("by USR1\n" if status.stop_signal else "by TERM\n")


async def test_a_container_without_the_groups_of_its_image(newer_node, newer_cri, manifest):
    assert (await newer_cri.status(pb.StatusRequest())).features.supplemental_groups_policy
    context = {"securityContext": {"supplementalGroupsPolicy": "Strict", "runAsUser": 1000, "runAsGroup": 1000}}
    newer_node.write("strict", manifest("strict", main="id -G; sleep 1000", spec=context))
    async with newer_node.run() as agent:
        await agent.recorded("strict", "Ready")
        assert await agent.first_line("strict", "main") == "1000\n"
