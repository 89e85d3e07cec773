"""emptyDir: scratch space that lives as long as the pod."""

from datetime import datetime

from klet.aio.threads import Threads
from klet.model.pods import PodUID
from klet.model.volumes import UsageSource
from klet.volumes.media import ScratchRules
from klet.volumes.names import EMPTY_DIR, Layout
from klet.volumes.plugins.base import MountRequest, VolumeAttributes, VolumePlugin
from klet.volumes.quotas import ProjectQuotas, assign_quota, release_quota
from klet.volumes.scratch import Scratch, ScratchDirectories
from klet.volumes.spec import VolumeSpec
from klet.volumes.usage import fs_group


class EmptyDirPlugin(VolumePlugin):
    """Scratch space on disk, in memory or on huge pages."""

    name = EMPTY_DIR
    usage_source = UsageSource.DU

    def __init__(
        self,
        *,
        layout: Layout,
        scratches: ScratchDirectories,
        rules: ScratchRules,
        quotas: ProjectQuotas,
        threads: Threads,
    ) -> None:
        self._layout = layout
        self._scratches = scratches
        self._rules = rules
        self._quotas = quotas
        self._threads = threads

    def supports(self, spec: VolumeSpec) -> bool:
        return spec.volume.empty_dir is not None

    def attributes(self, spec: VolumeSpec) -> VolumeAttributes:  # noqa: ARG002 - the same for all of them
        return VolumeAttributes(managed=True, relabels=True)

    def path(self, uid: PodUID, spec: VolumeSpec) -> str:
        return str(self._layout.volume(uid, self.name, spec.name))

    async def set_up(self, request: MountRequest) -> datetime | None:
        source = request.volume.empty_dir
        assert source is not None  # by `supports`
        scratch = Scratch(
            path=self._layout.volume(request.uid, self.name, request.volume.name),
            marker=self._layout.marker(request.uid, request.volume.name),
            medium=source.medium,
            options=self._rules.options(request.pod, request.allocation, source.medium, size_limit=source.size_limit),
            group=fs_group(request.pod),
            pod_uid=request.uid,
        )
        await self._threads.run(self._scratches.set_up, scratch)
        await assign_quota(self._quotas, scratch.path, pod=request.pod, medium=source.medium)
        return None

    async def tear_down(self, uid: PodUID, name: str) -> None:
        path, marker = self._layout.volume(uid, self.name, name), self._layout.marker(uid, name)
        await release_quota(self._quotas, path)
        await self._threads.run(self._scratches.tear_down, path, marker)
