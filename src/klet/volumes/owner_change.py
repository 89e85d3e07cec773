"""Gives the files of a volume to the pod's group, and reports that if it takes long (upstream: VolumeOwnership)."""

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Final

from klet.aio.clock import Clock
from klet.aio.threads import Threads
from klet.api.pod import Pod
from klet.errors import KletError
from klet.model.causes import CauseRecorder
from klet.model.reasons import Reason
from klet.model.recording import DecisionRecorder
from klet.volumes.ownership import Ownership, WalkProgress, change_ownership
from klet.volumes.volume_directories import DEPTH

DECIDER: Final = "volumes.owner_change"
FIRST: Final = timedelta(seconds=30)
NEXT: Final = timedelta(seconds=60)
_ADVICE: Final = (
    "https://kubernetes.io/docs/tasks/configure-pod-container/security-context/"
    "#configure-volume-permission-and-ownership-change-policy-for-pods"
)


class OwnerChanger:
    """Changes owners on a thread, and records Events of the pod if that takes long."""

    def __init__(self, *, recorder: CauseRecorder, threads: Threads, clock: Clock) -> None:
        self._decisions = DecisionRecorder(recorder, decider=DECIDER)
        self._threads = threads
        self._clock = clock

    async def change(self, pod: Pod, root: Path, wanted: Ownership, *, depth: int = DEPTH) -> None:
        """Change the owner of everything below a root; `depth` names of its end are reached without links."""
        progress, failed = WalkProgress(), list[KletError]()
        async with asyncio.TaskGroup() as group:
            reports = group.create_task(self._report(pod, root, progress), name=f"owner of {root.name}")
            try:
                await self._threads.run(change_ownership, root, wanted, depth, progress)
            except KletError as error:
                failed.append(error)
            finally:
                reports.cancel()
        if failed:
            raise failed[0]

    async def _report(self, pod: Pod, root: Path, progress: WalkProgress) -> None:
        """Record an Event after a while, and again and again."""
        uid = pod.metadata.uid
        shown = f"{uid}{str(root).rpartition(uid)[2]}" if uid else str(root)
        decisions = self._decisions.for_pod(pod)
        await self._clock.sleep(FIRST)
        decisions.record(
            Reason.VOLUME_PERMISSION_CHANGE_IN_PROGRESS,
            f"Setting volume ownership for {shown} is taking longer than expected, consider using OnRootMismatch - "
            f"{_ADVICE}",
        )
        while True:
            await self._clock.sleep(NEXT)
            decisions.record(
                Reason.VOLUME_PERMISSION_CHANGE_IN_PROGRESS,
                f"Setting volume ownership for {shown}, processed {progress.files} files.",
            )
