"""Builds the volume plugins of this node, and the volume manager."""

import random
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from klet.aio.clock import Clock
from klet.aio.threads import Threads
from klet.api.node import Node
from klet.metrics import MetricRegistry
from klet.model.causes import CauseRecorder
from klet.model.roles import Allocations, NodeResources, ObjectReader
from klet.volumes.generated_files import GeneratedFiles
from klet.volumes.local_directories import Binder, LocalDirectories
from klet.volumes.manager import VolumeDisk, VolumeManager
from klet.volumes.media import ScratchRules
from klet.volumes.metrics import register_volume_counts, register_volumes
from klet.volumes.names import Layout
from klet.volumes.plugins.base import VolumePlugin
from klet.volumes.plugins.config_map import ConfigMapPlugin
from klet.volumes.plugins.downward_api import DownwardApiPlugin
from klet.volumes.plugins.empty_dir import EmptyDirPlugin
from klet.volumes.plugins.host_path import HostPathPlugin
from klet.volumes.plugins.image import ImagePlugin
from klet.volumes.plugins.local import LocalPlugin
from klet.volumes.plugins.projected import CertificateReader, ProjectedPlugin, TokenReader, TrustReader
from klet.volumes.plugins.secret import SecretPlugin
from klet.volumes.pod_claims import ClaimReader, PodClaims
from klet.volumes.reconciler import MountReconciler
from klet.volumes.scratch import Mounter, ScratchDirectories
from klet.volumes.state import build_boards


class VolumeMounter(Mounter, Binder, Protocol):
    """All mounts that volumes are made of."""


class VolumePorts(Struct, frozen=True, kw_only=True):
    """What the volume plugins need from outside."""

    root: Path
    objects: ObjectReader
    tokens: TokenReader
    trust: TrustReader
    certificates: CertificateReader
    node: NodeResources
    mounter: VolumeMounter
    recorder: CauseRecorder
    threads: Threads
    clock: Clock
    has_api: bool
    """Whether there is an API server at all."""
    noswap: bool
    """Whether the kernel can keep memory of volumes from being swapped out."""
    has_images: bool = True
    """Gate ImageVolume: without it this node does not know images as volumes."""


def build_plugins(ports: VolumePorts) -> tuple[VolumePlugin, ...]:
    layout = Layout(ports.root)
    scratches = ScratchDirectories(mounter=ports.mounter)
    rules = ScratchRules(node=ports.node, noswap=ports.noswap)
    files = GeneratedFiles(layout=layout, scratches=scratches, rules=rules, threads=ports.threads, clock=ports.clock)
    return (
        EmptyDirPlugin(layout=layout, scratches=scratches, rules=rules, threads=ports.threads),
        HostPathPlugin(threads=ports.threads),
        ConfigMapPlugin(files=files, objects=ports.objects),
        SecretPlugin(files=files, objects=ports.objects),
        DownwardApiPlugin(files=files, node=ports.node),
        ProjectedPlugin(
            files=files,
            objects=ports.objects,
            tokens=ports.tokens,
            trust=ports.trust,
            certificates=ports.certificates,
            node=ports.node,
            has_api=ports.has_api,
        ),
        LocalPlugin(
            layout=layout,
            directories=LocalDirectories(layout=layout, binder=ports.mounter),
            recorder=ports.recorder,
            threads=ports.threads,
        ),
        *((ImagePlugin(),) if ports.has_images else ()),
    )


class ManagerPorts(Struct, frozen=True, kw_only=True):
    """What the volume manager needs from outside."""

    plugins: Sequence[VolumePlugin]
    claims: ClaimReader
    disk: VolumeDisk
    allocations: Allocations
    find_node: Callable[[], Node | None]
    """This node as the API server has it. Its labels decide which PersistentVolumes it may mount."""
    recorder: CauseRecorder
    refresh: timedelta
    """How often volumes are brought up to date even if no change is known."""
    randomness: random.Random
    clock: Clock
    registry: MetricRegistry


def build_manager(ports: ManagerPorts) -> VolumeManager:
    boards = build_boards(ports.clock)
    register_volume_counts(ports.registry, boards)

    def find_labels() -> Mapping[str, str] | None:
        node = ports.find_node()
        return None if node is None else node.metadata.labels

    reconciler = MountReconciler(
        boards=boards,
        find_labels=find_labels,
        recorder=ports.recorder,
        metrics=register_volumes(ports.registry),
        refresh=ports.refresh,
        randomness=ports.randomness,
        clock=ports.clock,
    )
    return VolumeManager(
        plugins=ports.plugins,
        claims=PodClaims(reader=ports.claims, clock=ports.clock),
        boards=boards,
        reconciler=reconciler,
        allocations=ports.allocations,
        disk=ports.disk,
    )
