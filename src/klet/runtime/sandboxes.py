"""Makes a pod's sandbox, or finds the one to start in; a failed try makes the next one wait.

The wait is needed because a sandbox that failed leaves traces in the runtime, and every trace wakes the pod's worker.
"""

from datetime import datetime, timedelta
from typing import Protocol

from msgspec import Struct

from klet.aio.backoff import Backoff
from klet.aio.clock import Clock
from klet.api.pod import Pod
from klet.cri.errors import CriError
from klet.cri.port import RuntimeService
from klet.errors import KletError
from klet.model.allocation import PodAllocation
from klet.model.causes import CauseId, CauseRecorder, Measurement
from klet.model.network import DnsConfig
from klet.model.pods import format_pod, uid_of
from klet.model.reasons import Reason
from klet.model.recording import DecisionRecorder
from klet.model.roles import Allocations, CpuQuotas
from klet.model.runtime import PodRuntimeStatus, SandboxId
from klet.model.volumes import extra_groups
from klet.runtime.actions import PodActions
from klet.runtime.claims import ClaimPreparer, ClaimsNotPrepared
from klet.runtime.config.bandwidth import check_bandwidth
from klet.runtime.config.container_planner import MountableVolumes, ReadySandbox
from klet.runtime.config.sandbox_config import SandboxSettings, build_sandbox_config
from klet.runtime.config.user_namespaces import UserNamespaceManager
from klet.runtime.errors import SandboxFailed
from klet.runtime.host_ports import PortHolders, find_held_port, mapped_ports
from klet.runtime.metrics import SandboxMetrics
from klet.runtime.quirks.held_names import run_sandbox
from klet.runtime.quirks.network_setup import is_network_failure
from klet.runtime.reader import build_sandbox_record
from klet.runtime.runtime_class import RuntimeClasses, find_handler
from klet.wire import cri_v1_pb2 as cri

DECIDER = "runtime.sandboxes"
FIRST_BACKOFF = timedelta(seconds=1)
LONGEST_BACKOFF = timedelta(seconds=10)
"""As long as upstream waits after any failed sync."""
CLAIMS_PAUSE = timedelta(minutes=1)
"""As upstream, which does not count claims that are not prepared as a failed sync."""


class PodDns(Protocol):
    """Says how a pod resolves names."""

    async def config_for(self, pod: Pod) -> DnsConfig: ...


class CgroupParents(Protocol):
    """Says which cgroup a pod's sandbox and containers live in."""

    def parent_of(self, pod: Pod) -> str: ...


class SandboxSources(Struct, frozen=True, kw_only=True):
    """Who knows what a sandbox is made of."""

    dns: PodDns
    cgroups: CgroupParents
    quotas: CpuQuotas
    runtime_classes: RuntimeClasses
    user_namespaces: UserNamespaceManager
    host_ports: PortHolders
    volumes: MountableVolumes
    claims: ClaimPreparer


class SandboxMaker:
    """Provides the sandbox that containers start in."""

    def __init__(
        self,
        *,
        runtime: RuntimeService,
        sources: SandboxSources,
        allocations: Allocations,
        metrics: SandboxMetrics,
        recorder: CauseRecorder,
        clock: Clock,
        settings: SandboxSettings,
    ) -> None:
        self._runtime = runtime
        self._metrics = metrics
        self._sources = sources
        self._allocations = allocations
        self._recorder = recorder
        self._decisions = DecisionRecorder(recorder, decider=DECIDER)
        self._clock = clock
        self._settings = settings
        self._backoff = Backoff[str](first=FIRST_BACKOFF, longest=LONGEST_BACKOFF)
        self._unprepared = Backoff[str](first=CLAIMS_PAUSE, longest=CLAIMS_PAUSE)
        """Pods that wait for their claims."""

    def waits_until(self, pod: Pod) -> datetime | None:
        """Return when the next try may be made; None if it may be made now."""
        uid, now = pod.metadata.uid, self._clock.now()
        return self._unprepared.waiting_until(uid, now=now) or self._backoff.waiting_until(uid, now=now)

    def forget(self, uid: str) -> None:
        self._backoff.reset(uid)
        self._unprepared.reset(uid)

    async def find_or_create(
        self, pod: Pod, status: PodRuntimeStatus, actions: PodActions, *, parent: CauseId | None
    ) -> ReadySandbox:
        """Return the sandbox that is there, or a new one; raises SandboxFailed."""
        existing = None if actions.create_sandbox else actions.sandbox_id
        if existing is None:
            await self._prepare_claims(pod, parent)
        allocation = self._allocations.of(pod)
        wanted = await self._describe(pod, allocation, actions.attempt, existing, parent)
        if existing is not None:
            return ReadySandbox(
                sandbox_id=existing,
                sandbox_config=wanted.config,
                allocation=allocation,
                pod_ips=status.ips,
                handler=wanted.runtime_handler,
                image_handler=self._image_handler(wanted),
            )
        await self._look_at_ports(pod, wanted.config, parent)
        self._metrics.started.add()
        is_user_namespaced = pod.spec.host_users is False
        if is_user_namespaced:
            self._metrics.user_namespaced.add()
        began = self._clock.monotonic()
        try:
            sandbox_id = await run_sandbox(self._runtime, wanted, clock=self._clock)
        except CriError as error:
            self._metrics.failed.add()
            self._metrics.run_failed.add(wanted.runtime_handler)
            if is_user_namespaced:
                self._metrics.user_namespaced_failed.add()
            text = f'Failed to create sandbox for pod "{format_pod(pod)}": {error}'
            raise self._not_created(pod, text, error, parent) from error
        finally:
            self._metrics.run_duration.observe(self._clock.monotonic() - began, wanted.runtime_handler)
        ready = await self._read_new(pod, allocation, sandbox_id, wanted, parent)
        self._backoff.reset(pod.metadata.uid)
        return ready

    async def _prepare_claims(self, pod: Pod, parent: CauseId | None) -> None:
        try:
            await self._sources.claims.prepare(pod)
        except ClaimsNotPrepared as error:
            now = self._clock.now()
            until = now + self._unprepared.next(pod.metadata.uid, now=now)
            text = f"Failed to prepare dynamic resources: prepare dynamic resources: {error}"
            self._decisions.for_pod(pod).record(
                Reason.FAILED_PREPARE_DYNAMIC_RESOURCES, text, next_step="try again", next_at=until, parent=parent
            )
            raise SandboxFailed("", "", text, until=until) from error
        self._unprepared.reset(pod.metadata.uid)

    async def _look_at_ports(self, pod: Pod, config: cri.PodSandboxConfig, parent: CauseId | None) -> None:
        if ports := mapped_ports(pod, config):
            for held in await self._sources.host_ports.holders(ports):
                self._recorder.record(find_held_port(pod, held), parent=parent)

    async def _describe(
        self,
        pod: Pod,
        allocation: PodAllocation,
        attempt: int,
        existing: SandboxId | None,
        parent: CauseId | None,
    ) -> cri.RunPodSandboxRequest:
        try:
            if existing is None:
                # Of one that is there the annotations count for nothing: they may have changed since.
                check_bandwidth(pod)
            dns = await self._sources.dns.config_for(pod)
            handler = await find_handler(pod, self._sources.runtime_classes)
            config = build_sandbox_config(
                pod,
                allocation,
                attempt=attempt,
                dns=dns,
                cgroup_parent=self._sources.cgroups.parent_of(pod),
                settings=self._settings,
                lifts_quota=self._sources.quotas.lifts_pod_quota(uid_of(pod)),
                user_namespace=await self._sources.user_namespaces.option_for(pod, handler),
                extra_groups=extra_groups(pod, self._sources.volumes.of_pod(uid_of(pod)).values()),
            )
            return cri.RunPodSandboxRequest(config=config, runtime_handler=handler)
        except KletError as error:
            name = format_pod(pod)
            if existing is None:
                text = f'Failed to generate sandbox config for pod "{name}": {error}'
                raise self._not_created(pod, text, error, parent) from error
            text = f'GeneratePodSandboxConfig for pod "{name}" failed: {error}'
            raise SandboxFailed("ConfigPodSandbox", existing, text) from error

    async def _read_new(
        self,
        pod: Pod,
        allocation: PodAllocation,
        sandbox_id: SandboxId,
        made: cri.RunPodSandboxRequest,
        parent: CauseId | None,
    ) -> ReadySandbox:
        """Return the addresses of a sandbox that was just made."""
        try:
            sandbox = await self._runtime.pod_sandbox_status(cri.PodSandboxStatusRequest(pod_sandbox_id=sandbox_id))
        except CriError as error:
            text = f"Unable to get pod sandbox status: {error}"
            self._decisions.for_pod(pod).record(
                Reason.FAILED_POD_SANDBOX_STATUS, text, next_step="try again after a back-off", parent=parent
            )
            raise SandboxFailed("", "", f"failed to SyncPod: {error}") from error
        made_record = build_sandbox_record(sandbox.status)
        text = f"sandbox attempt {made.config.metadata.attempt} is ready"
        self._decisions.for_pod(pod).record(Reason.SANDBOX_CREATED, text, parent=parent)
        return ReadySandbox(
            sandbox_id=sandbox_id,
            sandbox_config=made.config,
            allocation=allocation,
            pod_ips=() if pod.spec.host_network else made_record.ips,
            handler=made.runtime_handler,
            image_handler=self._image_handler(made),
            made=made_record,
        )

    def _image_handler(self, wanted: cri.RunPodSandboxRequest) -> str:
        return wanted.runtime_handler if self._settings.names_image_handlers else ""

    def _not_created(self, pod: Pod, text: str, error: KletError, parent: CauseId | None) -> SandboxFailed:
        now = self._clock.now()
        delay = self._backoff.next(pod.metadata.uid, now=now)
        until = now + delay
        measured: dict[str, Measurement] = {"step": "network"} if is_network_failure(error) else {}
        self._decisions.for_pod(pod).record(
            Reason.FAILED_CREATE_POD_SANDBOX,
            f"Failed to create pod sandbox: {error}",
            measurements=measured,
            next_step=f"try again in {delay.total_seconds():g} s",
            next_at=until,
            parent=parent,
        )
        return SandboxFailed("CreatePodSandbox", format_pod(pod), text, until=until)
