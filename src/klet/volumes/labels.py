"""The SELinux label that a volume is mounted with, instead of relabelling all of its files (context mounts). Pure."""

import re
from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from klet.api.pod import Pod
from klet.api.security import SELinuxOptions
from klet.host.mountinfo import MountEntry
from klet.volumes.errors import LabelsDiffer
from klet.volumes.spec import VolumeSpec
from klet.volumes.usage import containers_with

RECURSIVE: Final = "Recursive"
_USER: Final = "system_u"
_ROLE: Final = "object_r"
_TYPE: Final = "container_file_t"
_LEVEL: Final = "s0"
_CONTEXT: Final = re.compile(r'(?:^|,)context=(?:"([^"]*)"|([^,]*))')
"""Quoted if there is a comma in it, as in most levels."""


class LabelRules(Struct, frozen=True):
    """What this node does about labels; the gates are those of the same name."""

    is_on: bool = False
    """The machine has SELinux, and gate SELinuxMountReadWriteOncePod is on."""
    has_all_modes: bool = False
    """Gate SELinuxMount: not only volumes that are for one pod."""
    has_policy: bool = True
    """Gate SELinuxChangePolicy: a pod may ask for relabelling."""


def is_labelled(spec: VolumeSpec, rules: LabelRules, *, supports: bool) -> bool:
    """Return whether a volume is mounted with a label where its pods have one. `supports` is what its plugin says."""
    is_meant = spec.is_for_one_pod or (rules.has_all_modes and spec.persistent is not None)
    return may_be_labelled(spec, rules, supports=supports) and is_meant


def may_be_labelled(spec: VolumeSpec, rules: LabelRules, *, supports: bool) -> bool:
    """Return whether a volume could be mounted with a label, if the gates were on for its access modes, too."""
    return rules.is_on and supports and not spec.is_block


def choose_label(pod: Pod, names: Iterable[str], rules: LabelRules) -> str:
    """Return the label for a volume that is mounted with one, by its names in the pod; empty if the pod has none.

    Raises LabelsDiffer if its containers do not agree.
    """
    found = {build_file_label(options) for options in _options(pod, frozenset(names))}
    if len(found) > 1:
        raise LabelsDiffer(found)
    context = pod.spec.security_context
    if rules.has_policy and context is not None and context.se_linux_change_policy == RECURSIVE:
        return ""
    return found.pop() if found else ""


def build_file_label(options: SELinuxOptions) -> str:
    """Return the label of files. A role and a type of a pod are those of its processes."""
    return f"{options.user or _USER}:{_ROLE}:{_TYPE}:{options.level or _LEVEL}"


def mounted_label(mount: MountEntry) -> str:
    """Return the label that a filesystem is mounted with, as the mount table shows it; empty without one."""
    found = _CONTEXT.search(",".join(mount.super_options))
    return (found[1] or found[2]) if found is not None else ""


def _options(pod: Pod, names: frozenset[str]) -> list[SELinuxOptions]:
    shared = pod.spec.security_context.se_linux_options if pod.spec.security_context is not None else None
    found = []
    for container in containers_with(pod, names):
        own = container.security_context.se_linux_options if container.security_context is not None else None
        options = own or shared
        if options is not None and options != SELinuxOptions():
            found.append(options)
    return found
