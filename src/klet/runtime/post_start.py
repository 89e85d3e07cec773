"""What follows the start of a container: its postStart hook, and its end if the hook fails."""

import logging

from klet.api.container import Container
from klet.api.pod import Pod
from klet.cri.errors import CriError
from klet.model.causes import CauseId, CauseRecorder
from klet.model.reasons import Reason
from klet.model.recording import DecisionRecorder
from klet.model.runtime import ContainerRecord
from klet.runtime.actions import KillReason
from klet.runtime.errors import PostStartFailed
from klet.runtime.hooks import HookError, HookRunner, HookTarget, describe_handler
from klet.runtime.kill.killer import PodKiller

logger = logging.getLogger(__name__)

DECIDER = "runtime.post_start"


class PostStart:
    """Runs postStart hooks."""

    def __init__(self, *, hooks: HookRunner, killer: PodKiller, recorder: CauseRecorder) -> None:
        self._hooks = hooks
        self._killer = killer
        self._decisions = DecisionRecorder(recorder, decider=DECIDER)

    async def run(self, pod: Pod, container: Container, record: ContainerRecord, *, parent: CauseId | None) -> None:
        """Run the hook, however long it takes; raises PostStartFailed after killing the container."""
        handler = container.lifecycle.post_start if container.lifecycle is not None else None
        if handler is None:
            return
        text = f"running the postStart hook ({describe_handler(handler)}) of container {container.name}"
        about = self._decisions.for_pod(pod, container.name)
        about.record(Reason.POST_START_HOOK, text, next_step="the next container is started after it", parent=parent)
        try:
            await self._hooks.run(handler, HookTarget(pod=pod, container=container, id=record.id), parent=parent)
        except HookError as error:
            cause = about.record(Reason.FAILED_POST_START_HOOK, "PostStartHook failed", parent=parent)
            await self._kill(pod, record, cause)
            raise PostStartFailed(str(error)) from error

    async def _kill(self, pod: Pod, record: ContainerRecord, cause: CauseId) -> None:
        reason = KillReason.FAILED_POST_START
        try:
            await self._killer.kill_container(pod, record, message=reason, reason=reason, parent=cause)
        except CriError as error:
            logger.error(
                "A container whose postStart hook failed runs on", extra={"container": record.name, "error": str(error)}
            )
