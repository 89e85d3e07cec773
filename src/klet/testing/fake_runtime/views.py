"""What the CRI shows of sandboxes and containers, field by field as containerd 1.6 fills them."""

import json

from klet.testing.fake_runtime.images import ImageStore
from klet.testing.fake_runtime.world import Container, Sandbox
from klet.wire import cri_v1_pb2 as pb


def sandbox_item(sandbox: Sandbox) -> pb.PodSandbox:
    """To be copied into an answer: what never changes is put together once."""
    if sandbox.item is None:
        sandbox.item = pb.PodSandbox(
            id=sandbox.id,
            metadata=sandbox.config.metadata,
            created_at=sandbox.created_at,
            labels=sandbox.config.labels,
            annotations=sandbox.config.annotations,
            runtime_handler=sandbox.runtime_handler,
        )
    sandbox.item.state = sandbox.state
    return sandbox.item


def sandbox_status(sandbox: Sandbox) -> pb.PodSandboxStatus:
    """To be copied into an answer."""
    if sandbox.status is None:
        sandbox.status = pb.PodSandboxStatus(
            id=sandbox.id,
            metadata=sandbox.config.metadata,
            created_at=sandbox.created_at,
            labels=sandbox.config.labels,
            annotations=sandbox.config.annotations,
            runtime_handler=sandbox.runtime_handler,
        )
        sandbox.status.linux.namespaces.options.CopyFrom(sandbox.namespaces)
    status = sandbox.status
    status.state = sandbox.state
    status.network.CopyFrom(pb.PodSandboxNetworkStatus())
    if sandbox.has_network and sandbox.ips:
        status.network.ip = sandbox.ips[0]
        status.network.additional_ips.extend(pb.PodIP(ip=ip) for ip in sandbox.ips[1:])
    return status


def sandbox_info(sandbox: Sandbox) -> str:
    """The part of containerd's verbose answer that is of use in tests."""
    path = f"/var/run/netns/cni-{sandbox.id[:32]}"
    namespaces = [{"type": "network", "path": path}] if sandbox.ips else []
    info = {
        "pid": sandbox.pid if sandbox.is_ready else 0,
        "processStatus": "running" if sandbox.is_ready else "deleted",
        "netNamespaceClosed": not sandbox.has_network,
        "runtimeHandler": sandbox.runtime_handler,
        "runtimeSpec": {"linux": {"namespaces": namespaces}},
    }
    return json.dumps(info, separators=(",", ":"))


def container_item(container: Container) -> pb.Container:
    """To be copied into an answer."""
    if container.item is None:
        container.item = pb.Container(
            id=container.id,
            pod_sandbox_id=container.sandbox.id,
            metadata=container.config.metadata,
            image=container.config.image,
            image_ref=container.image_id,
            created_at=container.created_at,
            labels=container.config.labels,
            annotations=container.config.annotations,
        )
    container.item.state = container.state
    return container.item


def container_status(container: Container, images: ImageStore) -> pb.ContainerStatus:
    """To be copied into an answer."""
    if container.status is None:
        container.status = pb.ContainerStatus(
            id=container.id,
            metadata=container.config.metadata,
            created_at=container.created_at,
            image=container.config.image,
            labels=container.config.labels,
            annotations=container.config.annotations,
            mounts=container.config.mounts,
            log_path=container.log_path,
        )
    status = container.status
    status.state = container.state
    status.started_at = container.started_at
    status.finished_at = container.finished_at
    status.exit_code = container.exit_code
    status.reason = _reason(container)
    status.message = container.message
    status.resources.linux.CopyFrom(container.resources)
    stored = images.find(container.image_id)
    names = [*stored.tags, *stored.digests] if stored is not None else []
    status.image.image = names[0] if names else container.image_id if stored else container.config.image.image
    status.image_ref = stored.digests[0] if stored is not None and stored.digests else container.image_id
    return status


def container_info(container: Container) -> str:
    info = {"sandboxID": container.sandbox.id, "pid": container.pid, "removing": False}
    return json.dumps(info, separators=(",", ":"))


def _reason(container: Container) -> str:
    if container.reason or container.state != pb.CONTAINER_EXITED:
        return container.reason
    return "Error" if container.exit_code else "Completed"
