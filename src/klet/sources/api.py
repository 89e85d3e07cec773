"""Follows the pods that the API server has bound to this node (upstream's apiserver source).

Nothing is sent before the first complete list: a node that cannot reach its API server must not take its pods for gone.
A pod is accepted only if its UID and names are plain names, because they become paths; others are not affected.
"""

import logging
from collections.abc import Iterable
from typing import Protocol

from klet.aio.broadcast import Subscription
from klet.api.pod import Pod
from klet.host.files import is_plain_name
from klet.kube.informer import ObjectKey
from klet.model.causes import CauseRecorder
from klet.model.pods import API_SOURCE, UID_RULE, PodUID, subject_of
from klet.model.reasons import Reason
from klet.model.recording import DecisionRecorder
from klet.model.roles import PodSink

logger = logging.getLogger(__name__)

DECIDER = "sources.api"
_SHOWN = 64


class FollowedPods(Protocol):
    """The pods of this node, as the API server has them."""

    def all(self) -> tuple[Pod, ...]: ...

    async def until_synced(self) -> None: ...

    def changes(self) -> Subscription[ObjectKey]: ...


class AwaitedNode(Protocol):
    """The object of this node."""

    async def until_synced(self) -> None: ...


class ApiSource:
    """Sends all pods of the API server to the sink after each change."""

    def __init__(self, *, node: AwaitedNode, pods: FollowedPods, sink: PodSink, recorder: CauseRecorder) -> None:
        self._node = node
        self._pods = pods
        self._sink = sink
        self._decisions = DecisionRecorder(recorder, decider=DECIDER)
        self._judged: dict[tuple[str, str], tuple[Pod, str]] = {}
        """Each pod as it was last checked, and what is wrong with it."""

    async def run(self) -> None:
        # Admission checks the node's labels, so pods are only accepted when those are known.
        await self._node.until_synced()
        with self._pods.changes() as changes:
            await self._pods.until_synced()
            while True:
                changes.drain()
                self._sink.set_pods(API_SOURCE, self._accept(self._pods.all()))
                await changes.get()

    def _accept(self, pods: tuple[Pod, ...]) -> tuple[Pod, ...]:
        """Drop the pods whose names cannot become paths, and record that once for each."""
        before, self._judged = self._judged, {}
        accepted = []
        for pod in pods:
            key = (pod.metadata.namespace, pod.metadata.name)
            known, problem = before.get(key, (None, ""))
            if known is not pod:
                was, problem = problem, find_bad_name(pod)
                if problem and problem != was:
                    self._reject(pod, problem)
            self._judged[key] = (pod, problem)
            if not problem:
                accepted.append(pod)
        return tuple(accepted)

    def _reject(self, pod: Pod, problem: str) -> None:
        message = f"Error validating pod from {API_SOURCE}: {problem}, ignoring"
        logger.warning("Pod left out: it has a bad name", extra={"pod": subject_of(pod).name, "error": problem})
        self._decisions.for_pod(pod).record(Reason.FAILED_VALIDATION, message)


def find_bad_name(pod: Pod) -> str:
    """Return the first name of a pod that must not become part of a path, and why; empty if there is none. Pure."""
    if not isinstance(pod.metadata.uid, PodUID):
        return f"metadata.uid: Invalid value: {_shown(pod.metadata.uid)}: {UID_RULE}"
    for field, name in _names(pod):
        if not is_plain_name(name):
            return f"{field}: Invalid value: {_shown(name)}: must be the plain name of a file"
    return ""


def _names(pod: Pod) -> Iterable[tuple[str, str]]:
    yield "metadata.name", pod.metadata.name
    yield "metadata.namespace", pod.metadata.namespace
    spec = pod.spec
    yield from ((f"spec.volumes[{index}].name", each.name) for index, each in enumerate(spec.volumes))
    yield from ((f"spec.initContainers[{index}].name", each.name) for index, each in enumerate(spec.init_containers))
    yield from ((f"spec.containers[{index}].name", each.name) for index, each in enumerate(spec.containers))
    debugging = enumerate(spec.ephemeral_containers)
    yield from ((f"spec.ephemeralContainers[{index}].name", each.name) for index, each in debugging)


def _shown(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…")
