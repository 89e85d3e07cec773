"""Which specs of the suite run: named sets, and focus and skip in the form of ginkgo, regular expressions on names."""

import re
from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

_DISTURBING: Final = (r"\[Serial\]", r"\[Disruptive\]", r"\[Slow\]", r"\[Flaky\]", r"\[Alpha\]")
_UNSTABLE: Final = (*_DISTURBING, r"\[Feature:.+\]")


class Selection(Struct, frozen=True):
    """What ginkgo is asked to run; a spec runs if any focus matches its full name and no skip does."""

    focus: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()

    def takes(self, name: str) -> bool:
        wanted = not self.focus or any(re.search(pattern, name) for pattern in self.focus)
        return wanted and not any(re.search(pattern, name) for pattern in self.skip)


class AwaitedFeature(Struct, frozen=True):
    """Specs of a feature that klet does not have yet. Each would fail after minutes of waiting, so klet skips them."""

    pattern: str
    issue: int
    """The issue that brings the feature."""
    feature: str

    def __str__(self) -> str:
        return f"issue {self.issue}, {self.feature}"


class SpecSet(Struct, frozen=True):
    """Specs under a name, with a record of each agent."""

    name: str
    title: str
    selection: Selection
    awaited: tuple[AwaitedFeature, ...] = ()
    drivers: str = ""
    """A pattern of the specs that deploy drivers of github.com/kubernetes-csi, whose programs klet can not build."""

    def find_awaited(self, name: str) -> AwaitedFeature | None:
        """Return the feature that a spec waits for."""
        return next((awaited for awaited in self.awaited if re.search(awaited.pattern, name)), None)


def exactly(names: Iterable[str]) -> Selection:
    """Select these specs and no others. Before a name ginkgo puts that of the suite."""
    return Selection(focus=tuple(f"(^| ){re.escape(name)}$" for name in sorted(names)))


NODE: Final = SpecSet(
    name="node",
    title=(
        "what every node has to do: `[NodeConformance]` without specs that are Serial, Disruptive, Slow, Flaky, Alpha "
        "or of an optional Feature"
    ),
    selection=Selection(focus=(r"\[NodeConformance\]",), skip=_UNSTABLE),
)
_CLAIMS: Final = AwaitedFeature(
    pattern=(
        r"PersistentVolumes-local|PersistentVolumes-expansion|\[Driver: (local|csi-hostpath)\]|CSI Mock"
        r"|(Pre-provisioned|Dynamic) PV|Generic Ephemeral-volume|PVC Protection|MutableCSINodeAllocatableCount"
    ),
    issue=19,
    feature="claims and CSI volumes",
)
_RESIZE: Final = AwaitedFeature(
    pattern=r"Resize Container (guaranteed|burstable|decrease|resize pod via|\(limit-ranger\)|\(resource-quota\))",
    issue=23,
    feature="in-place resize",
)
CONFORMANCE: Final = SpecSet(
    name="conformance",
    title=(
        "`[Conformance]` of nodes, storage, workloads (sig-apps) and networks, without what needs a service proxy or "
        "cluster DNS, and without Serial, Disruptive, Slow, Flaky, Alpha and optional Features"
    ),
    selection=Selection(
        focus=(
            r"\[sig-(node|storage|apps)\].*\[Conformance\]",
            r"\[sig-network\] (Networking Granular Checks: Pods|HostPort|Proxy version v1).*\[Conformance\]",
            r"\[sig-network\] (EndpointSlice|EndpointsController) should create Endpoints.*\[Conformance\]",
            r"\[sig-network\] DNS should support configurable pod DNS nameservers \[Conformance\]",
        ),
        skip=_UNSTABLE,
    ),
    awaited=(_RESIZE,),
)
STORAGE: Final = SpecSet(
    name="storage",
    title=(
        "`[sig-storage]` with emptyDir, configMap, secret, projected, downwardAPI, hostPath, local volumes and CSI "
        "(hostpath driver and mock driver), without Serial, Disruptive, Slow, Flaky, Alpha and optional Features"
    ),
    selection=Selection(
        focus=(r"\[sig-storage\]",),
        skip=(
            *_UNSTABLE,
            r"\[Driver: (azure|ceph|cinder|gce|iscsi|nfs|rbd|vsphere|windows)",
            # Their drivers take none: every such spec skips itself.
            r"\[Driver: (emptydir|hostPath|hostPathSymlink|local)\].*Dynamic PV",
            r"PersistentVolumes NFS",
            r"AWS KMS",
            r"Flexvolumes",
        ),
    ),
    awaited=(_CLAIMS,),
    drivers=r"CSI Mock|\[Driver: csi-hostpath\]|MutableCSINodeAllocatableCount",
)
RESIZE: Final = SpecSet(
    name="resize",
    title=(
        "containers whose resources change while they run, without the Serial specs; klet runs those about resizes "
        "that the API server refuses"
    ),
    selection=Selection(focus=(r"\[sig-node\] Pod InPlace Resize Container",), skip=_UNSTABLE),
    awaited=(_RESIZE,),
)
DRA: Final = SpecSet(
    name="dra",
    title=(
        "dynamic resource allocation, without the Serial, Slow and Alpha specs; klet runs those that need no claim on "
        "the node"
    ),
    selection=Selection(focus=(r"\[sig-node\] \[DRA\]",), skip=(*_DISTURBING, r"\[Feature:OffByDefault\]")),
    awaited=(AwaitedFeature(pattern=r"\[DRA\] kubelet", issue=22, feature="resource claims"),),
    drivers=r"\[DRA\] kubelet",
)
DOZEN: Final = SpecSet(
    name="dozen",
    title="two specs each of lifecycle, probes, volumes, security contexts, exec and logs, and resources",
    selection=Selection(
        focus=(
            r"\[sig-node\] Container Lifecycle Hook .* should execute poststart exec hook properly",
            r"InitContainer .* should invoke init containers on a RestartNever pod \[",
            r"Probing container should be restarted with a exec .* liveness probe \[",
            r"Probing container with readiness probe should not be ready before initial delay",
            r"Projected configMap updates should be reflected in volume",
            r"EmptyDir volumes should support \(non-root,0644,tmpfs\)",
            r"Security Context When creating a container with runAsUser should run the container with uid 65534",
            r"Security Context .* should not allow privilege escalation when false",
            r"Pods should support remote command execution over websockets",
            r"Pods should support retrieving logs from the container over websockets",
            r"sig-node\] Downward API should provide container's limits.cpu/memory and requests.cpu/memory as env vars",
            r"sig-node\] Downward API should provide default limits.cpu/memory from node allocatable",
        ),
    ),
)
RECORDED: Final = (NODE, CONFORMANCE, STORAGE, RESIZE, DRA)
"""The sets with a record of each agent, in the order of the document."""
SETS: Final[Mapping[str, SpecSet]] = {spec_set.name: spec_set for spec_set in (*RECORDED, DOZEN)}


def choose_specs(
    spec_set: SpecSet, *, focus: tuple[str, ...], skip: tuple[str, ...] | None, with_awaited: bool
) -> Selection:
    """Return what the user asked for; what he does not name is as in the set. An empty skip skips nothing."""
    chosen = spec_set.selection.skip if skip is None else tuple(filter(None, skip))
    awaited = () if with_awaited else tuple(awaited.pattern for awaited in spec_set.awaited)
    return Selection(focus=focus or spec_set.selection.focus, skip=(*chosen, *awaited))


def leave_out_drivers(selection: Selection, spec_set: SpecSet) -> Selection:
    """Return a selection without the specs that need drivers."""
    return replace(selection, skip=(*selection.skip, spec_set.drivers)) if spec_set.drivers else selection
