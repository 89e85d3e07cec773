"""Sandboxes and containers asked for by hand, for tests of the runtime itself."""

from collections.abc import Sequence
from pathlib import Path

from klet.host.images import BUSYBOX_IMAGE
from klet.wire import cri_v1_pb2 as pb


def build_sandbox_config(
    *,
    name: str,
    log_directory: Path,
    cgroup_parent: str,
    shared_processes: bool = False,
    host_network: bool = False,
) -> pb.PodSandboxConfig:
    """Return a sandbox of the pod `default/<name>` with the uid `<name>-uid`."""
    namespaces = pb.NamespaceOption(
        network=pb.NODE if host_network else pb.POD, pid=pb.POD if shared_processes else pb.CONTAINER
    )
    return pb.PodSandboxConfig(
        metadata=pb.PodSandboxMetadata(name=name, namespace="default", uid=f"{name}-uid"),
        hostname="" if host_network else name,
        log_directory=str(log_directory),
        labels={"io.kubernetes.pod.name": name, "io.kubernetes.pod.uid": f"{name}-uid"},
        linux=pb.LinuxPodSandboxConfig(
            cgroup_parent=cgroup_parent,
            security_context=pb.LinuxSandboxSecurityContext(namespace_options=namespaces),
        ),
    )


def build_container_config(
    *, name: str, command: Sequence[str], image: str = BUSYBOX_IMAGE, shared_processes: bool = False
) -> pb.ContainerConfig:
    """Return a first attempt whose log is `<name>.log` in the sandbox's log directory."""
    namespaces = pb.NamespaceOption(pid=pb.POD if shared_processes else pb.CONTAINER)
    return pb.ContainerConfig(
        metadata=pb.ContainerMetadata(name=name),
        image=pb.ImageSpec(image=image),
        command=command,
        log_path=f"{name}.log",
        linux=pb.LinuxContainerConfig(security_context=pb.LinuxContainerSecurityContext(namespace_options=namespaces)),
    )
