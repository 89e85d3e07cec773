"""What forbids mounting a volume before its plugin is asked. Pure."""

from collections.abc import Mapping

from klet.api.affinity import matches_node_selector
from klet.volumes.errors import MountStep, StepFailed
from klet.volumes.plugins.base import VolumePlugin
from klet.volumes.spec import VolumeSpec


def check_mount(
    spec: VolumeSpec, plugin: VolumePlugin, *, labels: Mapping[str, str] | None, is_elsewhere: bool
) -> None:
    """Raise StepFailed if this node, the plugin or another pod forbids it.

    `labels` are those of the node, None while they are not known; `is_elsewhere` is whether another pod has it.
    """
    affinity = spec.persistent.spec.node_affinity if spec.persistent is not None else None
    if affinity is not None and affinity.required is not None:
        if labels is None:
            raise StepFailed(MountStep.NODE_AFFINITY, "the labels of this node are not known yet")
        # By labels alone: upstream matches a nameless node here, too.
        if not matches_node_selector(affinity.required, node_name="", labels=labels):
            raise StepFailed(MountStep.NODE_AFFINITY, "no matching NodeSelectorTerms")
    if spec.mount_options and not plugin.supports_mount_options:
        raise StepFailed(MountStep.MOUNT_OPTIONS, "mount options are not supported for this volume type")
    if spec.is_for_one_pod and is_elsewhere:
        raise StepFailed(
            MountStep.SET_UP, "volume uses the ReadWriteOncePod access mode and is already in use by another pod"
        )
