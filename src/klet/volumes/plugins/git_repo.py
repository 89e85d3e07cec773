"""gitRepo: no longer set up (upstream: gate GitRepoVolumeDriver, off). What an older agent has set up is taken down."""

from datetime import datetime
from typing import Final

from klet.aio.threads import Threads
from klet.model.pods import PodUID
from klet.model.volumes import UsageSource
from klet.volumes.errors import VolumeSetupError
from klet.volumes.names import Layout
from klet.volumes.plugins.base import MountRequest, VolumeAttributes, VolumePlugin
from klet.volumes.spec import VolumeSpec
from klet.volumes.volume_directories import remove_volume

DISABLED: Final = (
    "git-repo volume plugin has been disabled; if necessary, it may be re-enabled by enabling the feature-gate "
    "`GitRepoVolumeDriver`"
)


class GitRepoPlugin(VolumePlugin):
    """Refuses to set up: it ran git as root on what a pod's author named."""

    name = "kubernetes.io/git-repo"
    usage_source = UsageSource.DU

    def __init__(self, *, layout: Layout, threads: Threads) -> None:
        self._layout = layout
        self._threads = threads

    def supports(self, spec: VolumeSpec) -> bool:
        return spec.persistent is None and spec.volume.git_repo is not None

    def attributes(self, spec: VolumeSpec) -> VolumeAttributes:  # noqa: ARG002 - the same for all
        return VolumeAttributes(managed=True, relabels=True)

    def path(self, uid: PodUID, spec: VolumeSpec) -> str:
        return str(self._layout.volume(uid, self.name, spec.name))

    async def set_up(self, request: MountRequest) -> datetime | None:  # noqa: ARG002 - the same for all
        raise VolumeSetupError(DISABLED)

    async def tear_down(self, uid: PodUID, name: str) -> None:
        await self._threads.run(remove_volume, self._layout.volume(uid, self.name, name))
