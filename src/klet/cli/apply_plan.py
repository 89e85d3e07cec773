"""Plans what applying the user's files does to the static pod directory.

A pod belongs to the file it came from. Applying a file again replaces its pods and takes away those it no longer holds;
pods of other files stay. A file with errors takes nothing away: what it meant to keep is not known.
"""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath

import msgspec
from msgspec import Struct

NAME_LIMIT = 255


class PodKey(Struct, frozen=True, order=True):
    """A pod as the manifests name it."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def label(self) -> str:
        """The shortest name that every command takes, unless pods of several namespaces share it."""
        return self.name if self.namespace == "default" else str(self)


class PodManifest(Struct, frozen=True):
    """One pod of one document, ready to be written."""

    key: PodKey
    document: int
    content: bytes


class ManifestFile(Struct, frozen=True):
    """One of the user's files: the pods it holds, and whether all of it could be read."""

    path: str
    pods: tuple[PodManifest, ...]
    is_complete: bool = True


class Applied(msgspec.Struct, frozen=True, kw_only=True):
    """What is remembered between commands: pods (namespace/name) by the file they came from."""

    origins: Mapping[str, tuple[str, ...]] = {}


class ApplyPlan(Struct, frozen=True):
    """What to write to and remove from the static pod directory."""

    write: Mapping[str, bytes]
    remove: tuple[str, ...]
    applied: Applied
    added: tuple[PodKey, ...]
    changed: tuple[PodKey, ...]
    unchanged: tuple[PodKey, ...]
    removed: tuple[PodKey, ...]
    taken: Mapping[PodKey, str]
    """Pods that came from another file until now, which still is the user's and was not given this time."""


def plan_apply(
    origins: Sequence[ManifestFile], *, applied: Applied, present: Mapping[str, bytes], directories: Sequence[str] = ()
) -> ApplyPlan:
    """Compare the user's files with the directory, whose files `present` holds by name.

    A file that came from one of the `directories` and is gone from it counts as empty.
    """
    wanted = {pod.key: pod for origin in origins for pod in origin.pods}
    owners = _owners(applied)
    kept = _kept(owners, origins, directories)
    gone = sorted(key for key in owners if key not in kept and key not in wanted)
    write = dict[str, bytes]()
    added, changed, unchanged = list[PodKey](), list[PodKey](), list[PodKey]()
    for key, pod in wanted.items():
        name = file_name(key)
        if name not in present:
            added.append(key)
        elif present[name] != pod.content:
            changed.append(key)
        else:
            unchanged.append(key)
            continue
        write[name] = pod.content
    owners_after = {key: owner for key, owner in kept.items() if key not in wanted}
    owners_after |= {pod.key: origin.path for origin in origins for pod in origin.pods}
    return ApplyPlan(
        write=write,
        remove=tuple(name for key in gone if (name := file_name(key)) in present),
        applied=_remember(owners_after),
        added=tuple(added),
        changed=tuple(changed),
        unchanged=tuple(unchanged),
        removed=tuple(gone),
        taken={key: owner for key, owner in kept.items() if key in wanted and owner != owners_after[key]},
    )


def find_duplicates(origins: Sequence[ManifestFile]) -> list[str]:
    """Return pods that are named twice in what the user gave; it is unclear which one is meant."""
    first: dict[PodKey, str] = {}
    problems = []
    for origin in origins:
        for pod in origin.pods:
            place = f"{origin.path}: document {pod.document}"
            if pod.key in first:
                problems.append(f"{place}: metadata.name: pod {pod.key} is already in {first[pod.key]}")
            else:
                first[pod.key] = place
    return problems


def file_name(key: PodKey) -> str:
    """Return a stable name for a pod's manifest; `_` is in no Kubernetes name, so two pods never share one."""
    name = f"{key.namespace}_{key.name}.json"
    if len(name) <= NAME_LIMIT:
        return name
    return f"{key.namespace}_{key.name[:100]}_{hashlib.sha256(key.name.encode()).hexdigest()[:16]}.json"


def parse_key(text: str) -> PodKey:
    namespace, _, name = text.partition("/")
    return PodKey(namespace, name)


def read_applied(path: Path) -> Applied:
    """Read the applied pods. A missing or damaged file means that none are known; what runs stays until `klet down`."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Applied)
    except (FileNotFoundError, msgspec.DecodeError, UnicodeDecodeError):
        return Applied()


def _owners(applied: Applied) -> dict[PodKey, str]:
    return {parse_key(text): origin for origin, pods in applied.origins.items() for text in pods}


def _kept(
    owners: Mapping[PodKey, str], origins: Sequence[ManifestFile], directories: Sequence[str]
) -> dict[PodKey, str]:
    replaced = {origin.path for origin in origins if origin.is_complete}
    given = {origin.path for origin in origins}
    return {
        key: owner
        for key, owner in owners.items()
        if owner not in replaced and not (owner not in given and str(PurePath(owner).parent) in directories)
    }


def _remember(owners: Mapping[PodKey, str]) -> Applied:
    origins: dict[str, list[str]] = {}
    for key, owner in sorted(owners.items()):
        origins.setdefault(owner, []).append(str(key))
    return Applied(origins={path: tuple(pods) for path, pods in sorted(origins.items())})
