"""A volume as others see it: containers mount it (HostVolume), and what it takes is measured (MeasurableVolume)."""

import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final, Protocol

from msgspec import Struct

from klet.api.pod import Pod
from klet.api.stats import PVCReference
from klet.api.volume import Volume
from klet.model.pods import PodUID

SUB_PATHS = "volume-subpaths"
"""The directory in that of a pod where parts of its volumes (`subPath`) are mounted."""
GID_ANNOTATION: Final = "pv.beta.kubernetes.io/gid"
_WHOLE_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,32}")
_INT64: Final = range(-(1 << 63), 1 << 63)


class HostVolume(Struct, frozen=True):
    """A volume of the pod, ready to be mounted."""

    path: str
    """On the host; empty for one that only the runtime sees."""
    read_only: bool = False
    """Containers may only read it, whatever they ask for: a link in it must not become a way to write elsewhere."""
    relabels: bool = False
    """Its SELinux label may be changed, because it is there for the pod alone."""
    gid: str = ""
    """The group that can use it, as its PersistentVolume says; empty if it says nothing."""
    inner_name: str = ""
    """What its directories are called; empty if that is what the pod calls it."""
    device: str = ""
    """The link to its device, if containers have it as one; then it has no path."""


class UsageSource(StrEnum):
    """How it is found what a volume takes (upstream's metrics providers, label `metric_source`)."""

    DU = "du"
    """Its files are looked at."""
    FSQUOTA = "fsquota"
    """The kernel counts them, by a project quota."""
    STATFS = "statfs"
    """It is a filesystem of its own."""


class MeasurableVolume(Struct, frozen=True, kw_only=True):
    """A mounted volume of a pod whose use can be measured."""

    name: str
    """In the pod."""
    path: str
    source: UsageSource
    is_ephemeral: bool
    """It counts for the pod's ephemeral storage."""
    claim: PVCReference | None = None


class MeasurableVolumes(Protocol):
    """Knows the volumes whose use can be measured."""

    def measurable(self, uid: PodUID) -> tuple[MeasurableVolume, ...]: ...


def is_local_ephemeral(volume: Volume) -> bool:
    """Return whether a volume counts for its pod's ephemeral storage (upstream: IsLocalEphemeralVolume)."""
    on_disk = volume.empty_dir is not None and not volume.empty_dir.medium
    return on_disk or volume.config_map is not None or volume.git_repo is not None


def volume_gid(annotations: Mapping[str, str]) -> str:
    """Return what the annotations of a PersistentVolume say of its group, as it is written there."""
    return annotations.get(GID_ANNOTATION, "")


def extra_groups(pod: Pod, volumes: Iterable[HostVolume]) -> tuple[int, ...]:
    """Return the groups that a pod gets for its volumes (upstream: GetExtraSupplementalGroupsForPod).

    A group that is no whole number is skipped, and so is one that the pod lists itself.
    """
    context = pod.spec.security_context
    listed = context.supplemental_groups if context is not None else ()
    values = dict.fromkeys(volume.gid for volume in volumes)
    groups = (int(value) for value in values if _WHOLE_NUMBER.fullmatch(value))
    return tuple(group for group in groups if group in _INT64 and group not in listed)
