"""Which plugin a volume belongs to, what the volume is called, and what has to be done for it."""

from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from klet.api.pod import Pod
from klet.model.allocation import PodAllocation
from klet.model.pods import PodUID, uid_of
from klet.volumes.errors import LabelsDiffer, NoPlugin, VolumeSetupError
from klet.volumes.label_metrics import LabelMetrics
from klet.volumes.labels import LabelRules, choose_label, is_labelled, may_be_labelled
from klet.volumes.names import Layout, MountKey, VolumeName
from klet.volumes.plugins.base import StagedPlugin, VolumePlugin
from klet.volumes.spec import VolumeSpec
from klet.volumes.state import DesiredMount
from klet.volumes.steps import find_conflict


class VolumeKinds(Struct, frozen=True):
    """The kinds of volumes that this node knows."""

    plugins: Iterable[VolumePlugin]
    """Those of now, each time it is asked: drivers of flexVolume come and go."""
    layout: Layout
    translate: Callable[[VolumeSpec, str], VolumeSpec]
    """Returns what is mounted for a kind that a CSI driver has taken over, in a pod's namespace; all others as they
    are."""

    labels: LabelRules = LabelRules()
    label_metrics: LabelMetrics | None = None
    """None on a machine without SELinux."""

    def describe(self, pod: Pod, allocation: PodAllocation, spec: VolumeSpec, name: str) -> DesiredMount:
        """Return what a pod should have; raises KletError for a volume that no plugin knows, or that it cannot have."""
        spec = self.translate(spec, pod.metadata.namespace)
        plugin = next((plugin for plugin in self.plugins if plugin.supports(spec)), None)
        if plugin is None:
            raise NoPlugin(spec.name)
        uid = uid_of(pod)
        volume, is_staged = name_of(plugin, uid, spec)
        wanted = DesiredMount(
            key=MountKey(volume, uid),
            pod=pod,
            allocation=allocation,
            spec=spec,
            plugin=plugin,
            names=frozenset({name}),
            is_staged=is_staged,
            remounts=plugin.remounts(spec),
        )
        wanted = self._label(wanted, name)
        if not is_staged or not isinstance(plugin, StagedPlugin):
            return wanted
        return replace(
            wanted,
            has_device_stage=spec.is_block or plugin.is_device_mountable(spec),
            is_attachable=plugin.is_attachable(spec),
            is_expandable=spec.persistent is not None and plugin.is_expandable(spec),
        )

    def check_label(self, wanted: DesiredMount, others: Sequence[DesiredMount]) -> None:
        """Raise VolumeSetupError if another pod has the volume with another label."""
        other = find_conflict(wanted, others)
        if self.label_metrics is not None:
            if other is not None:
                self.label_metrics.pods_disagree(wanted.spec, wanted.plugin.name, is_error=wanted.is_labelled)
            elif not others and wanted.meant_label:
                self.label_metrics.admit(wanted.spec, wanted.plugin.name)
        if other is not None and wanted.is_labelled:
            labels = f'"{other.label}" and "{wanted.label}"'
            raise VolumeSetupError(f"conflicting SELinux labels of volume {wanted.spec.name}: {labels}")

    def _label(self, wanted: DesiredMount, name: str) -> DesiredMount:
        """Return it with the label of its pod, if that is on and its plugin can do it."""
        spec, supports = wanted.spec, wanted.plugin.supports_label(wanted.spec)
        if not may_be_labelled(spec, self.labels, supports=supports):
            return wanted
        has_label = is_labelled(spec, self.labels, supports=supports)
        try:
            label = choose_label(wanted.pod, {name}, self.labels)
        except LabelsDiffer:
            if self.label_metrics is not None:
                self.label_metrics.containers_disagree(spec, is_error=has_label)
            if has_label:
                raise
            label = ""
        return replace(wanted, is_labelled=has_label, label=label if has_label else "", meant_label=label)


def name_of(plugin: VolumePlugin, uid: PodUID, spec: VolumeSpec) -> tuple[VolumeName, bool]:
    """Return the name of a pod's volume that is unique on the node, and whether that is the name of a device.

    Raises KletError if the plugin cannot name it.
    """
    if isinstance(plugin, StagedPlugin) and is_staged(plugin, spec):
        return plugin.volume_name(spec), True
    return plugin.unique_name(uid, spec.name), False


def is_staged(plugin: StagedPlugin, spec: VolumeSpec) -> bool:
    """Return whether the node has a device of a volume. The stage is asked for first: that needs no API server."""
    return plugin.is_device_mountable(spec) or spec.is_block or plugin.is_attachable(spec) is not False
