"""Reports volumes that a CSI driver finds abnormal (gate CSIVolumeHealth; upstream: the volume stat calculator)."""

import logging
from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from klet.aio.clock import Clock
from klet.api.pod import Pod
from klet.errors import KletError
from klet.model.causes import CauseRecorder
from klet.model.foreign_text import shorten
from klet.model.reasons import Reason
from klet.model.recording import DecisionRecorder
from klet.model.roles import PodsByUid
from klet.model.stats import DiskStats

logger = logging.getLogger(__name__)

DECIDER: Final = "stats.volume_health"
LONGEST: Final = 512


class VolumeHealth:
    """Has volumes measured whether or not anybody asks, and records an Event of the pod for each abnormal one."""

    def __init__(
        self, *, disk: DiskStats, pods: PodsByUid, period: timedelta, recorder: CauseRecorder, clock: Clock
    ) -> None:
        self._disk = disk
        self._pods = pods
        self._period = period
        self._decisions = DecisionRecorder(recorder, decider=DECIDER)
        self._clock = clock

    async def run(self) -> None:
        while True:
            await self._clock.sleep(self._period)
            try:
                found = await self._disk.pods()
            except KletError as error:
                logger.warning("The health of volumes is not known", extra={"error": str(error)})
                continue
            for uid, disk in found.items():
                if (pod := self._pods.get(uid)) is not None:
                    self._report(pod, disk.abnormal_volumes)

    def _report(self, pod: Pod, abnormal: Mapping[str, str]) -> None:
        for name, condition in abnormal.items():
            message = f"Volume {name}: {shorten(condition, LONGEST)}"
            self._decisions.for_pod(pod).record(Reason.VOLUME_CONDITION_ABNORMAL, message)
