"""Reads the node's resolv.conf for each pod that needs it, and records what had to be left out."""

from pathlib import Path
from typing import Final

from klet.aio.threads import Threads
from klet.api.pod import Pod
from klet.host.errors import HostError
from klet.host.files import read_text
from klet.model.causes import CauseRecorder
from klet.model.network import DnsConfig
from klet.model.pods import PodUID, uid_of
from klet.model.reasons import Reason
from klet.model.recording import DecisionRecorder
from klet.network.dns import (
    DnsSettings,
    DnsWarning,
    ResolvConfError,
    decide_dns,
    find_excess,
    parse_resolv_conf,
)

DECIDER = "network.dns"
MOST_RECORDED: Final = 2048
"""How many warnings are remembered as recorded: several times what the pods of a node can have."""


class PodResolver:
    """Gives pods their name resolution."""

    def __init__(
        self, *, resolv_conf: Path | None, settings: DnsSettings, threads: Threads, recorder: CauseRecorder
    ) -> None:
        self._resolv_conf = resolv_conf
        self._settings = settings
        self._threads = threads
        self._decisions = DecisionRecorder(recorder, decider=DECIDER)
        self._recorded: dict[tuple[PodUID, DnsWarning], None] = {}
        self._is_checked = False

    async def config_for(self, pod: Pod) -> DnsConfig:
        """Return the configuration of a pod. The file is read each time, as it may change under a running node."""
        decision = decide_dns(pod, await self._of_host(), self._settings)
        for warning in decision.warnings:
            if self._is_news(uid_of(pod), warning):
                self._decisions.for_pod(pod).record(warning.reason, warning.message)
        return decision.config

    def _is_news(self, uid: PodUID, warning: DnsWarning) -> bool:
        """Return whether a warning is new: every sync of a pod comes here."""
        if (uid, warning) in self._recorded:
            return False
        self._recorded[uid, warning] = None
        if len(self._recorded) > MOST_RECORDED:
            del self._recorded[next(iter(self._recorded))]
        return True

    async def _of_host(self) -> DnsConfig | None:
        if self._resolv_conf is None:
            return None
        try:
            host = parse_resolv_conf(await self._threads.run(read_text, self._resolv_conf))
        except (HostError, ResolvConfError) as error:
            self._record_once(str(error))
            message = f"Encountered error while parsing resolv conf file. Error: {error}"
            raise ResolvConfError(message) from error
        has_domain = bool(self._settings.cluster_domain)
        self._record_once(find_excess(host, file=str(self._resolv_conf), has_cluster_domain=has_domain))
        return host

    def _record_once(self, problem: str | None) -> None:
        """Check the node's file at the first read; what pods do not get of it is recorded per pod."""
        if problem is not None and not self._is_checked:
            self._decisions.for_node().record(Reason.CHECK_LIMITS_FOR_RESOLV_CONF, problem)
        self._is_checked = True
