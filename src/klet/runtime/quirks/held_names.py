"""Makes sandboxes and containers although the runtime holds their names for something half-made.

What a killed agent asked for last goes on in the runtime for a while: either it comes to its end, and what it made is
there, or the runtime takes it back and frees the name. Another name would not do: both might come to life.
"""

import logging
import re
from collections.abc import Iterator
from datetime import timedelta

from klet.aio.backoff import exponential_delays
from klet.aio.clock import Clock
from klet.cri.errors import CriError
from klet.cri.port import RuntimeService
from klet.model.runtime import ContainerId, SandboxId
from klet.wire import cri_v1_pb2 as cri

logger = logging.getLogger(__name__)

PATIENCE = timedelta(seconds=5)
FIRST_PAUSE = timedelta(milliseconds=20)
LONGEST_PAUSE = timedelta(milliseconds=200)
_HELD = re.compile(r'is reserved for "(\w+)"')


async def run_sandbox(runtime: RuntimeService, request: cri.RunPodSandboxRequest, *, clock: Clock) -> SandboxId:
    """Make a sandbox, or take over the one that was made under its name meanwhile; raises CriError."""
    pauses = _pauses(clock)
    while True:
        try:
            return SandboxId((await runtime.run_pod_sandbox(request)).pod_sandbox_id)
        except CriError as error:
            holder = find_holder(error)
            pause = next(pauses, None)
            if holder is None or pause is None:
                raise
            found = await _find_sandbox(runtime, holder)
            if found is None:
                await clock.sleep(pause)
            elif found.state == cri.SANDBOX_READY:
                logger.info("A sandbox of an earlier request exists and is used", extra={"sandbox": holder})
                return SandboxId(holder)
            elif await _has_containers(runtime, holder):
                raise  # the next read shows them, and the sandbox
            else:
                await runtime.stop_pod_sandbox(cri.StopPodSandboxRequest(pod_sandbox_id=holder))
                await runtime.remove_pod_sandbox(cri.RemovePodSandboxRequest(pod_sandbox_id=holder))


async def create_container(
    runtime: RuntimeService, request: cri.CreateContainerRequest, *, clock: Clock
) -> ContainerId:
    """Create a container; remove one that was created under its name meanwhile and will never be started."""
    pauses = _pauses(clock)
    while True:
        try:
            return ContainerId((await runtime.create_container(request)).container_id)
        except CriError as error:
            holder = find_holder(error)
            pause = next(pauses, None)
            if holder is None or pause is None:
                raise
            found = await _find_container(runtime, holder)
            if found is None:
                await clock.sleep(pause)
            elif found.state == cri.CONTAINER_CREATED:
                await runtime.remove_container(cri.RemoveContainerRequest(container_id=holder))
            else:
                raise  # it has run: the next read shows it


def find_holder(error: CriError) -> str | None:
    """Return the id that the runtime holds the requested name for."""
    found = _HELD.search(error.message)
    return found.group(1) if found is not None else None


def _pauses(clock: Clock) -> Iterator[timedelta]:
    """Yield the pauses between tries, as long as it is worth waiting."""
    give_up = clock.monotonic() + PATIENCE.total_seconds()
    for pause in exponential_delays(first=FIRST_PAUSE, longest=LONGEST_PAUSE):
        if clock.monotonic() >= give_up:
            return
        yield pause


async def _find_sandbox(runtime: RuntimeService, id_: str) -> cri.PodSandbox | None:
    answer = await runtime.list_pod_sandbox(cri.ListPodSandboxRequest(filter=cri.PodSandboxFilter(id=id_)))
    return next(iter(answer.items), None)


async def _find_container(runtime: RuntimeService, id_: str) -> cri.Container | None:
    answer = await runtime.list_containers(cri.ListContainersRequest(filter=cri.ContainerFilter(id=id_)))
    return next(iter(answer.containers), None)


async def _has_containers(runtime: RuntimeService, sandbox: str) -> bool:
    wanted = cri.ContainerFilter(pod_sandbox_id=sandbox)
    return bool((await runtime.list_containers(cri.ListContainersRequest(filter=wanted))).containers)
