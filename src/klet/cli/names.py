"""Finds the pod that a user means: by its full name, or by the name in the manifest."""

from collections.abc import Sequence
from dataclasses import dataclass

from klet.api.pod import Pod
from klet.errors import KletError


class UnclearName(KletError):
    """No pod, or more than one, has the name that was given."""


@dataclass(frozen=True, slots=True)
class PodReference:
    """What the user typed; no namespace means any."""

    namespace: str | None
    name: str


def parse_reference(text: str, *, namespace: str | None) -> PodReference:
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
    return PodReference(namespace=namespace, name=parts[0])


def manifest_name(pod: Pod) -> str:
    """The name in the manifest: a static pod carries the node's name at the end of its own."""
    return pod.metadata.name.removesuffix(f"-{pod.spec.node_name}") if pod.spec.node_name else pod.metadata.name


def find_pod(pods: Sequence[Pod], reference: PodReference) -> Pod:
    """The one pod that is meant. A full name goes before a manifest's name."""
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


def choose_container(pod: Pod, container: str | None) -> str:
    """The container to read: the one that was named, or the only one, or the first as kubectl has it."""
    names = container_names(pod)
    if container is None:
        return pod.metadata.annotations.get("kubectl.kubernetes.io/default-container", "") or names[0]
    if container not in names:
        raise UnclearName(f"pod {pod.metadata.name!r} has no container {container!r}; it has: {', '.join(names)}")
    return container


def container_names(pod: Pod) -> list[str]:
    """All containers, the pod's own first."""
    return [
        *(spec.name for spec in pod.spec.containers),
        *(spec.name for spec in pod.spec.init_containers),
        *(spec.name for spec in pod.spec.ephemeral_containers),
    ]
