"""Builds the volume plugins of this node."""

from pathlib import Path

from msgspec import Struct

from klet.aio.clock import Clock
from klet.aio.threads import Threads
from klet.model.roles import NodeResources, ObjectReader
from klet.volumes.generated_files import GeneratedFiles
from klet.volumes.media import ScratchRules
from klet.volumes.names import Layout
from klet.volumes.plugins.base import VolumePlugin
from klet.volumes.plugins.config_map import ConfigMapPlugin
from klet.volumes.plugins.downward_api import DownwardApiPlugin
from klet.volumes.plugins.empty_dir import EmptyDirPlugin
from klet.volumes.plugins.host_path import HostPathPlugin
from klet.volumes.plugins.image import ImagePlugin
from klet.volumes.plugins.projected import CertificateReader, ProjectedPlugin, TokenReader, TrustReader
from klet.volumes.plugins.secret import SecretPlugin
from klet.volumes.scratch import Mounter, ScratchDirectories


class VolumePorts(Struct, frozen=True, kw_only=True):
    """What the volume plugins need from outside."""

    root: Path
    objects: ObjectReader
    tokens: TokenReader
    trust: TrustReader
    certificates: CertificateReader
    node: NodeResources
    mounter: Mounter
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
        *((ImagePlugin(),) if ports.has_images else ()),
    )
