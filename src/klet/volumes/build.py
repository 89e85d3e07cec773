"""Builds the volume plugins of this node, and the volume manager."""

import random
from collections.abc import Callable, Iterable, Mapping
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
from klet.volumes.attaching import AttachView
from klet.volumes.attachments import Attachments
from klet.volumes.csi.build import CsiPorts, CsiSettings, build_csi
from klet.volumes.csi.plugin import CsiPlugin
from klet.volumes.device_host import DeviceHost
from klet.volumes.device_mounts import MountPoints
from klet.volumes.device_stage import DeviceStage, NodeReader
from klet.volumes.expansion import ClaimStatuses, VolumeExpander
from klet.volumes.flex.probing import FlexFinder
from klet.volumes.generated_files import GeneratedFiles
from klet.volumes.kinds import VolumeKinds
from klet.volumes.label_metrics import register_labels
from klet.volumes.labels import LabelRules
from klet.volumes.local_directories import Binder, LocalDirectories
from klet.volumes.manager import VolumeDisk, VolumeManager
from klet.volumes.media import ScratchRules
from klet.volumes.metrics import register_volume_counts, register_volumes
from klet.volumes.names import Layout
from klet.volumes.owner_change import OwnerChanger
from klet.volumes.plugin_board import PluginBoard
from klet.volumes.plugins.base import VolumePlugin
from klet.volumes.plugins.config_map import ConfigMapPlugin
from klet.volumes.plugins.downward_api import DownwardApiPlugin
from klet.volumes.plugins.empty_dir import EmptyDirPlugin
from klet.volumes.plugins.flex import FlexPorts
from klet.volumes.plugins.git_repo import GitRepoPlugin
from klet.volumes.plugins.host_path import HostPathPlugin
from klet.volumes.plugins.image import ImagePlugin
from klet.volumes.plugins.local import LocalPlugin
from klet.volumes.plugins.projected import CertificateReader, ProjectedPlugin, TokenReader, TrustReader
from klet.volumes.plugins.secret import SecretPlugin
from klet.volumes.pod_claims import ClaimReader, PodClaims
from klet.volumes.pod_stage import PodStage
from klet.volumes.quotas import ProjectQuotas
from klet.volumes.reconciler import MountReconciler, Stages
from klet.volumes.reconstruction import Reconstruction
from klet.volumes.scratch import Mounter, ScratchDirectories
from klet.volumes.spec import VolumeSpec
from klet.volumes.state import VolumeBoards, build_boards
from klet.volumes.storage_plugins import StorageParts, StoragePorts, build_device_mounts, build_storage_plugins


class VolumeMounter(Mounter, Binder, MountPoints, Protocol):
    """All mounts that volumes are made of."""

    def unmount(self, target: Path, *, force: bool = False) -> bool: ...


class VolumePorts(Struct, frozen=True, kw_only=True):
    """What the volume plugins need from outside."""

    root: Path
    objects: ObjectReader
    tokens: TokenReader
    trust: TrustReader
    certificates: CertificateReader
    node: NodeResources
    mounter: VolumeMounter
    storage: StoragePorts
    devices: DeviceHost
    quotas: ProjectQuotas
    recorder: CauseRecorder
    threads: Threads
    clock: Clock
    has_api: bool
    """Whether there is an API server at all."""
    noswap: bool
    """Whether the kernel can keep memory of volumes from being swapped out."""
    has_images: bool = True
    """Gate ImageVolume: without it this node does not know images as volumes."""
    csi: CsiPorts | None = None
    """None without an API server."""


def build_plugins(ports: VolumePorts) -> tuple[VolumePlugin, ...]:
    layout = Layout(ports.root)
    scratches = ScratchDirectories(mounter=ports.mounter)
    rules = ScratchRules(node=ports.node, noswap=ports.noswap)
    directories = LocalDirectories(layout=layout, binder=ports.mounter)
    storage = _storage_parts(ports, directories)
    device_mounts = build_device_mounts(storage)
    files = GeneratedFiles(
        layout=layout,
        scratches=scratches,
        rules=rules,
        quotas=ports.quotas,
        threads=ports.threads,
        clock=ports.clock,
    )
    return (
        EmptyDirPlugin(layout=layout, scratches=scratches, rules=rules, quotas=ports.quotas, threads=ports.threads),
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
            directories=directories,
            mounts=device_mounts,
            owners=_build_owners(ports),
            recorder=ports.recorder,
            threads=ports.threads,
        ),
        *build_storage_plugins(storage, device_mounts),
        GitRepoPlugin(layout=layout, threads=ports.threads),
        *((ImagePlugin(),) if ports.has_images else ()),
        *((_build_csi(ports, ports.csi),) if ports.csi is not None else ()),
    )


def _build_owners(ports: VolumePorts) -> OwnerChanger:
    return OwnerChanger(recorder=ports.recorder, threads=ports.threads, clock=ports.clock)


def _build_csi(ports: VolumePorts, csi: CsiPorts) -> CsiPlugin:
    settings = CsiSettings(root=ports.root, has_tokens_in_secrets=csi.has_tokens_in_secrets)
    return build_csi(
        access=csi.access,
        tokens=ports.tokens,
        limits=csi.limits,
        owners=_build_owners(ports),
        threads=ports.threads,
        settings=settings,
    )


def build_flex_finder(ports: VolumePorts, directory: Path, board: PluginBoard) -> FlexFinder:
    """Return what puts the plugins of flexVolume drivers on the board."""
    layout = Layout(ports.root)
    parts = _storage_parts(ports, LocalDirectories(layout=layout, binder=ports.mounter))
    return FlexFinder(
        directory=directory,
        board=board,
        ports=FlexPorts(layout=layout, mounts=build_device_mounts(parts), objects=ports.objects, threads=ports.threads),
        runner=ports.storage.tools,
        threads=ports.threads,
    )


def _storage_parts(ports: VolumePorts, directories: LocalDirectories) -> StorageParts:
    return StorageParts(
        layout=Layout(ports.root),
        storage=ports.storage,
        points=ports.mounter,
        directories=directories,
        objects=ports.objects,
        threads=ports.threads,
        clock=ports.clock,
    )


class VolumeClaims(ClaimReader, ClaimStatuses, Protocol):
    """Claims at the API server, and their volumes."""


def as_it_is(spec: VolumeSpec, _namespace: str) -> VolumeSpec:
    """Return a volume untranslated: no CSI driver has taken over its kind."""
    return spec


class ManagerPorts(Struct, frozen=True, kw_only=True):
    """What the volume manager needs from outside."""

    plugins: Iterable[VolumePlugin]
    translate: Callable[[VolumeSpec, str], VolumeSpec] = as_it_is
    """Returns what is mounted for a kind that a CSI driver has taken over, in a pod's namespace; all others as they
    are."""
    claims: VolumeClaims
    layout: Layout
    disk: VolumeDisk
    devices: DeviceHost
    find_node: Callable[[], Node | None]
    """This node as the API server has it. Its labels decide which PersistentVolumes it may mount."""
    node: NodeReader | None = None
    """The same, to be asked; None without an API server."""
    node_name: str = ""
    labels: LabelRules = LabelRules()
    attaches: bool = False
    """No controller attaches volumes to this node (enableControllerAttachDetach: false)."""
    allocations: Allocations
    recorder: CauseRecorder
    refresh: timedelta
    """How often volumes are brought up to date even if no change is known."""
    randomness: random.Random
    clock: Clock
    registry: MetricRegistry


def build_manager(ports: ManagerPorts) -> VolumeManager:
    boards = build_boards(ports.clock)
    register_volume_counts(ports.registry, boards)
    metrics = register_volumes(ports.registry)
    view = AttachView(desired=boards.desired, find_node=ports.find_node, by_agent=ports.attaches)
    reconciler = MountReconciler(
        boards=boards,
        stages=_build_stages(ports, boards),
        attach_view=view,
        recorder=ports.recorder,
        metrics=metrics,
        refresh=ports.refresh,
        randomness=ports.randomness,
        clock=ports.clock,
    )
    return VolumeManager(
        kinds=VolumeKinds(
            ports.plugins,
            ports.layout,
            ports.translate,
            ports.labels,
            label_metrics=register_labels(ports.registry) if ports.labels.is_on else None,
        ),
        claims=PodClaims(reader=ports.claims, clock=ports.clock),
        boards=boards,
        reconciler=reconciler,
        reconstruction=Reconstruction(
            plugins=ports.plugins, boards=boards, disk=ports.disk, host=ports.devices, counters=metrics.left
        ),
        attachments=Attachments(boards=boards, view=view, node=ports.node, reconciler=reconciler),
        allocations=ports.allocations,
        disk=ports.disk,
    )


def _build_stages(ports: ManagerPorts, boards: VolumeBoards) -> Stages:
    def find_labels() -> Mapping[str, str] | None:
        node = ports.find_node()
        return None if node is None else node.metadata.labels

    devices = DeviceStage(
        devices=boards.devices,
        host=ports.devices,
        node=ports.node,
        node_name=ports.node_name,
        recorder=ports.recorder,
        changed=boards.in_use_changes.send,
    )
    expander = VolumeExpander(
        claims=ports.claims,
        devices=boards.devices,
        node_name=ports.node_name,
        recorder=ports.recorder,
        clock=ports.clock,
    )
    pods = PodStage(
        boards=boards,
        devices=devices,
        expander=expander,
        host=ports.devices,
        layout=ports.layout,
        find_labels=find_labels,
        recorder=ports.recorder,
    )
    return Stages(pods, devices, expander)
