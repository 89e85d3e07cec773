"""Reads the node's resolv.conf for each pod that needs it, and says what had to be left out."""

from pathlib import Path

from klet.aio.threads import Threads
from klet.api.pod import Pod
from klet.host.files import read_text
from klet.model.causes import CauseRecorder, Finding
from klet.model.network import DnsConfig
from klet.model.pods import subject_of
from klet.network.dns import DnsSettings, decide_dns, parse_resolv_conf

DECIDER = "network.dns"


class PodResolver:
    """Gives pods their name resolution."""

    def __init__(
        self, *, resolv_conf: Path | None, settings: DnsSettings, threads: Threads, recorder: CauseRecorder
    ) -> None:
        self._resolv_conf = resolv_conf
        self._settings = settings
        self._threads = threads
        self._recorder = recorder

    async def config_for(self, pod: Pod) -> DnsConfig:
        host = DnsConfig()
        if self._resolv_conf is not None:
            host = parse_resolv_conf(await self._threads.run(read_text, self._resolv_conf))
        decision = decide_dns(pod, host, self._settings)
        for warning in decision.warnings:
            finding = Finding(subject=subject_of(pod), decider=DECIDER, decision="DNSConfigForming", message=warning)
            self._recorder.record(finding)
        return decision.config
