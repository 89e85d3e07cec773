"""Where translated volumes can be reached from: zones and regions under the names of the CSI driver. Pure."""

from collections.abc import Callable, Mapping
from typing import Final

from msgspec.structs import replace

from klet.api.placement import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from klet.api.storage import PersistentVolume, VolumeNodeAffinity

ZONE: Final = "topology.kubernetes.io/zone"
REGION: Final = "topology.kubernetes.io/region"
BETA_ZONE: Final = "failure-domain.beta.kubernetes.io/zone"
BETA_REGION: Final = "failure-domain.beta.kubernetes.io/region"
SEPARATOR: Final = "__"
"""Between the zones that one label names."""


def translate_zones(volume: PersistentVolume, key: str) -> PersistentVolume:
    """Return a volume that is required where the driver says `key`. Its affinity counts before its labels."""
    zone, region = _label_names(volume)
    volume = _translate(volume, zone, key, split=lambda label: label.split(SEPARATOR))
    if region == BETA_REGION:
        volume = _rename(volume, BETA_REGION, REGION)
    return volume


def translate_zone_and_region(volume: PersistentVolume, zone_key: str, region_key: str) -> PersistentVolume:
    """Return the same with the region, and labels that name one zone each."""
    zone, region = _label_names(volume)
    volume = _translate(volume, zone, zone_key, split=lambda label: [label])
    return _translate(volume, region, region_key, split=lambda label: [label])


def zones_of(labels: Mapping[str, str]) -> list[str]:
    """Return the zones that labels name; one empty zone if they name none."""
    return (labels.get(BETA_ZONE) or labels.get(ZONE) or "").split(SEPARATOR)


def _label_names(volume: PersistentVolume) -> tuple[str, str]:
    """Return under which names of zone and region the volume speaks of them: the newer ones, if of none."""
    keys = {requirement.key for term in _terms(volume) for requirement in term.match_expressions}
    for known in (keys, volume.metadata.labels):
        for names in ((ZONE, REGION), (BETA_ZONE, BETA_REGION)):
            if names[0] in known:
                return names
    return ZONE, REGION


def _translate(volume: PersistentVolume, old: str, new: str, *, split: Callable[[str], list[str]]) -> PersistentVolume:
    found = any(each.key == old and each.values for term in _terms(volume) for each in term.match_expressions)
    if found:
        return _rename(volume, old, new)
    zones = {zone.strip() for zone in split(volume.metadata.labels.get(old, ""))} - {""}
    return _add(volume, new, tuple(sorted(zones))) if zones else volume


def _rename(volume: PersistentVolume, old: str, new: str) -> PersistentVolume:
    def renamed(term: NodeSelectorTerm) -> NodeSelectorTerm:
        expressions = tuple(replace(each, key=new) if each.key == old else each for each in term.match_expressions)
        return replace(term, match_expressions=expressions)

    terms = tuple(renamed(term) for term in _terms(volume))
    return _with_terms(volume, terms) if terms else volume


def _add(volume: PersistentVolume, key: str, zones: tuple[str, ...]) -> PersistentVolume:
    wanted = NodeSelectorRequirement(key=key, operator="In", values=zones)
    terms = _terms(volume) or (NodeSelectorTerm(),)
    return _with_terms(
        volume, tuple(replace(term, match_expressions=(*term.match_expressions, wanted)) for term in terms)
    )


def _terms(volume: PersistentVolume) -> tuple[NodeSelectorTerm, ...]:
    affinity = volume.spec.node_affinity
    return affinity.required.node_selector_terms if affinity is not None and affinity.required is not None else ()


def _with_terms(volume: PersistentVolume, terms: tuple[NodeSelectorTerm, ...]) -> PersistentVolume:
    affinity = VolumeNodeAffinity(required=NodeSelector(node_selector_terms=terms))
    return replace(volume, spec=replace(volume.spec, node_affinity=affinity))
