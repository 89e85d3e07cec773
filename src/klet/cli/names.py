"""Finds the pod that a user means: by its full name, or by the name in the manifest."""

from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches

from msgspec import Struct

from klet.api.klet_v1 import RecordedPod
from klet.api.pod import Pod
from klet.errors import KletError


class UnclearName(KletError):
    """No pod, or more than one, has the name that was given."""


class NamedPod(Struct, frozen=True):
    """What the user typed; no namespace means any."""

    namespace: str | None
    name: str


def is_node(text: str) -> bool:
    """Return whether the node is meant: `node`, or `node/name`. A pod of that name is `pod/node`."""
    kind, _, name = text.partition("/")
    return kind in {"node", "nodes", "no"} and "/" not in name and (bool(name) or text == "node")


def parse_reference(text: str, *, namespace: str | None) -> NamedPod:
    """Read `name`, `pod/name`, `namespace/name` or `pod/namespace/name`."""
    parts = text.split("/")
    if len(parts) > 1 and parts[0] in {"pod", "pods", "po"}:
        parts = parts[1:]
    if len(parts) == 2:
        if namespace not in {None, parts[0]}:
            raise UnclearName(f"{text!r} names namespace {parts[0]!r}, and --namespace says {namespace!r}")
        namespace, parts = parts[0], parts[1:]
    if len(parts) != 1 or not parts[0]:
        raise UnclearName(f"{text!r} is not the name of a pod: give name, pod/name or namespace/name")
    return NamedPod(namespace=namespace, name=parts[0])


def manifest_name(pod: Pod) -> str:
    """Return the name in the manifest: a static pod carries the node's name at the end of its own."""
    return pod.metadata.name.removesuffix(f"-{pod.spec.node_name}") if pod.spec.node_name else pod.metadata.name


def find_pod(pods: Sequence[Pod], reference: NamedPod) -> Pod:
    """Return the one pod that is meant. A full name goes before a manifest's name."""
    here = [pod for pod in pods if reference.namespace in {None, pod.metadata.namespace}]
    exact = [pod for pod in here if pod.metadata.name == reference.name]
    found = exact or [pod for pod in here if manifest_name(pod) == reference.name]
    if len(found) == 1:
        return found[0]
    if not found:
        known = ", ".join(sorted(f"{pod.metadata.namespace}/{manifest_name(pod)}" for pod in pods))
        where = f" in namespace {reference.namespace!r}" if reference.namespace is not None else ""
        raise UnclearName(
            f"there is no pod {reference.name!r}{where}; " + (f"there are: {known}" if known else "none runs")
        )
    choices = ", ".join(sorted(f"{pod.metadata.namespace}/{pod.metadata.name}" for pod in found))
    raise UnclearName(f"{reference.name!r} means {len(found)} pods: {choices}; give one of these names")


class PodName(Struct, frozen=True, order=True):
    """A name that one pod after the other may have had."""

    namespace: str
    name: str
    manifest_name: str

    @property
    def label(self) -> str:
        return f"{self.namespace}/{self.manifest_name}"


def pod_names(pods: Iterable[Pod]) -> frozenset[PodName]:
    return frozenset(PodName(pod.metadata.namespace, pod.metadata.name, manifest_name(pod)) for pod in pods)


def recorded_names(pods: Iterable[RecordedPod], *, node_name: str) -> frozenset[PodName]:
    """Return names of pods that only the journal may know: every one may have been a static pod of this node."""
    return frozenset(PodName(pod.namespace, pod.name, pod.name.removesuffix(f"-{node_name}")) for pod in pods)


def choose_name(reference: NamedPod, known: frozenset[PodName], recorded: Callable[[], frozenset[PodName]]) -> PodName:
    """Return the one name that is meant: of an existing pod, or else of one in the journal, which is only then read."""
    if (name := _match(reference, known)) is not None:
        return name
    remembered = recorded()
    if (name := _match(reference, remembered)) is not None:
        return name
    raise UnclearName(_never_seen(reference, known, remembered))


def _match(reference: NamedPod, names: frozenset[PodName]) -> PodName | None:
    here = [one for one in names if reference.namespace in {None, one.namespace}]
    exact = [one for one in here if one.name == reference.name]
    found = exact or [one for one in here if one.manifest_name == reference.name]
    if len(found) > 1:
        choices = ", ".join(f"{one.namespace}/{one.name}" for one in sorted(found))
        raise UnclearName(f"{reference.name!r} means {len(found)} pods: {choices}; give one of these names")
    return found[0] if found else None


def _never_seen(reference: NamedPod, known: frozenset[PodName], recorded: frozenset[PodName]) -> str:
    where = f" in namespace {reference.namespace!r}" if reference.namespace is not None else ""
    text = f"there is no pod {reference.name!r}{where}, and none is remembered"
    every = sorted(known | recorded)
    spellings = {name for one in every for name in (one.manifest_name, one.name)}
    if near := get_close_matches(reference.name, sorted(spellings), n=3):
        meant = [one.label for name in near for one in every if name in (one.manifest_name, one.name)]
        return f"{text}; did you mean: {', '.join(dict.fromkeys(meant))}?"
    there = ", ".join(sorted(one.label for one in known))
    return f"{text}; there are: {there}" if there else f"{text}; none runs"


def choose_container(pod: Pod, container: str | None) -> str:
    """Return the container to read: the one that was named, or the only one, or the first as kubectl has it."""
    names = container_names(pod)
    if container is None:
        return pod.metadata.annotations.get("kubectl.kubernetes.io/default-container", "") or names[0]
    if container not in names:
        raise UnclearName(f"pod {pod.metadata.name!r} has no container {container!r}; it has: {', '.join(names)}")
    return container


def container_names(pod: Pod) -> list[str]:
    """Return all containers, the pod's own first."""
    return [
        *(spec.name for spec in pod.spec.containers),
        *(spec.name for spec in pod.spec.init_containers),
        *(spec.name for spec in pod.spec.ephemeral_containers),
    ]
