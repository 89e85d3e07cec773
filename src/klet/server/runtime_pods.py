"""What runs in the runtime right now, for requests that reach into containers."""

from klet.api.container import Container
from klet.api.meta import ObjectMeta
from klet.api.pod import Pod, PodSpec
from klet.cri.port import RuntimeService
from klet.model.cri_labels import CONTAINER_NAME, POD_UID
from klet.wire import cri_v1_pb2 as cri


class RuntimePods:
    """Asks the runtime each time: its answer is what counts. Every method raises CriError."""

    def __init__(self, *, runtime: RuntimeService) -> None:
        self._runtime = runtime

    async def running_container(self, pod_uid: str, name: str) -> str | None:
        """Return the id of a pod's container, if it runs."""
        labels = {POD_UID: pod_uid, CONTAINER_NAME: name}
        state = cri.ContainerStateValue(state=cri.CONTAINER_RUNNING)
        wanted = cri.ContainerFilter(state=state, label_selector=labels)
        found = (await self._runtime.list_containers(cri.ListContainersRequest(filter=wanted))).containers
        return max(found, key=lambda each: each.created_at).id if found else None

    async def ready_sandbox(self, pod_uid: str) -> str | None:
        """Return the id of a pod's sandbox, if it is ready."""
        found = await self._ready_sandboxes({POD_UID: pod_uid})
        return max(found, key=lambda each: each.created_at).id if found else None

    async def running_pods(self) -> tuple[Pod, ...]:
        """Return every pod that has something running, with no more than the runtime knows of it."""
        state = cri.ContainerStateValue(state=cri.CONTAINER_RUNNING)
        request = cri.ListContainersRequest(filter=cri.ContainerFilter(state=state))
        by_sandbox: dict[str, list[Container]] = {}
        for each in (await self._runtime.list_containers(request)).containers:
            container = Container(name=each.metadata.name, image=each.image.user_specified_image or each.image.image)
            by_sandbox.setdefault(each.pod_sandbox_id, []).append(container)
        return tuple(
            Pod(
                metadata=ObjectMeta(
                    name=sandbox.metadata.name, namespace=sandbox.metadata.namespace, uid=sandbox.metadata.uid
                ),
                spec=PodSpec(containers=tuple(by_sandbox.get(sandbox.id, ()))),
            )
            for sandbox in await self._ready_sandboxes({})
        )

    async def _ready_sandboxes(self, labels: dict[str, str]) -> list[cri.PodSandbox]:
        state = cri.PodSandboxStateValue(state=cri.SANDBOX_READY)
        request = cri.ListPodSandboxRequest(filter=cri.PodSandboxFilter(state=state, label_selector=labels))
        return list((await self._runtime.list_pod_sandbox(request)).items)
