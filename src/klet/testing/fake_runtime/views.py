"""What the CRI shows of sandboxes and containers, field by field as containerd 1.6 fills them."""

import json

from klet.host.containerd_config import PAUSE_IMAGE
from klet.testing.fake_runtime.images import ImageStore
from klet.testing.fake_runtime.world import FakeContainer, Sandbox
from klet.wire import cri_v1_pb2 as pb


def sandbox_item(sandbox: Sandbox) -> pb.PodSandbox:
    """Return an item to be copied into an answer: what never changes is put together once."""
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
    """Return a status to be copied into an answer; built again only if something about the sandbox has changed."""
    is_shown = sandbox.has_network and sandbox.has_namespace
    shows = (sandbox.state, is_shown)
    if sandbox.status is not None and sandbox.shows == shows:
        return sandbox.status
    status = pb.PodSandboxStatus(
        id=sandbox.id,
        metadata=sandbox.config.metadata,
        state=sandbox.state,
        created_at=sandbox.created_at,
        network=pb.PodSandboxNetworkStatus(),
        labels=sandbox.config.labels,
        annotations=sandbox.config.annotations,
        runtime_handler=sandbox.runtime_handler,
    )
    status.linux.namespaces.options.CopyFrom(sandbox.namespaces)
    if is_shown and sandbox.ips:
        status.network.ip = sandbox.ips[0]
        status.network.additional_ips.extend(pb.PodIP(ip=ip) for ip in sandbox.ips[1:])
    sandbox.status, sandbox.shows = status, shows
    return status


def sandbox_info(sandbox: Sandbox) -> str:
    """Return the part of containerd's verbose answer that is of use in tests."""
    path = f"/var/run/netns/cni-{sandbox.id[:32]}"
    namespaces = [{"type": "network", "path": path}] if sandbox.ips else []
    info = {
        "pid": sandbox.pid if sandbox.is_ready else 0,
        "processStatus": "running" if sandbox.is_ready else "deleted",
        "netNamespaceClosed": not (sandbox.has_network and sandbox.has_namespace),
        "runtimeHandler": sandbox.runtime_handler,
        "image": PAUSE_IMAGE,
        "runtimeSpec": {"linux": {"namespaces": namespaces}},
    }
    return json.dumps(info, separators=(",", ":"))


def container_item(container: FakeContainer) -> pb.Container:
    """Return an item to be copied into an answer."""
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


def container_status(container: FakeContainer, images: ImageStore) -> pb.ContainerStatus:
    """Return a status to be copied into an answer; built again only if something about the container has changed."""
    image, image_ref = _image_of(container, images)
    shows = (
        container.state,
        container.started_at,
        container.finished_at,
        container.exit_code,
        container.reason,
        container.message,
        image,
        image_ref,
    )
    if container.status is not None and container.shows == shows:
        return container.status
    status = pb.ContainerStatus(
        id=container.id,
        metadata=container.config.metadata,
        state=container.state,
        created_at=container.created_at,
        started_at=container.started_at,
        finished_at=container.finished_at,
        exit_code=container.exit_code,
        image=container.config.image,
        image_ref=image_ref,
        reason=_reason(container),
        message=container.message,
        labels=container.config.labels,
        annotations=container.config.annotations,
        mounts=container.config.mounts,
        log_path=container.log_path,
        resources=pb.ContainerResources(linux=container.resources),
        stop_signal=container.config.stop_signal,
    )
    status.image.image = image
    container.status, container.shows = status, shows
    return status


def container_info(container: FakeContainer) -> str:
    info = {"sandboxID": container.sandbox.id, "pid": container.pid, "removing": False}
    return json.dumps(info, separators=(",", ":"))


def _image_of(container: FakeContainer, images: ImageStore) -> tuple[str, str]:
    """Return what it runs, and by which digest; its image may have been removed, or have lost its names."""
    stored = images.find(container.image_id)
    if stored is None:
        return container.config.image.image, container.image_id
    name = stored.tags[0] if stored.tags else stored.digests[0] if stored.digests else container.image_id
    return name, stored.digests[0] if stored.digests else container.image_id


def _reason(container: FakeContainer) -> str:
    if container.reason or container.state != pb.CONTAINER_EXITED:
        return container.reason
    return "Error" if container.exit_code else "Completed"
