"""`klet run`: upstream's flags in, the agent running until it is stopped."""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from datetime import timedelta
from functools import partial
from pathlib import Path

import uvloop

from klet.agent_log.start import start_logging
from klet.aio.clock import Clock, SystemClock
from klet.aio.stop_request import StopRequest
from klet.app.kubelet_api import ApiSockets, check_serving, open_kubelet_api, take_ports
from klet.app.metrics import open_metrics
from klet.app.node import NodeSpecification, build_node
from klet.app.opening import LeftState, open_base, open_left_state, open_ports, standalone_objects
from klet.app.pod_network import build_configured_cidrs
from klet.app.ports import BasePorts
from klet.app.settings import (
    PREVENT_API_REFERENCES,
    AgentSettings,
    check_settings,
    cut_log_settings,
    cut_settings,
    cut_validation_options,
)
from klet.app.tracing import open_tracer
from klet.app.wiring import Agent
from klet.config.command_line import Settings, ShowText
from klet.config.errors import ConfigError, one_line, suffixed, warned
from klet.config.flags import KubeletFlags
from klet.config.loader import load_command_line
from klet.errors import KletError
from klet.host import mounts
from klet.host.addresses import find_node_addresses
from klet.host.lock_file import wait_for_lock, watch_lock
from klet.host.machine.cache import MachineCache
from klet.host.machine.info import MachineInfo
from klet.host.machine.reader import MachineReader
from klet.host.own_process import allow_open_files, set_oom_score
from klet.host.root_directory import hold_root, label_plugin_directories, make_log_directories, make_root
from klet.host.sysctls import Sysctls
from klet.host.systemd_notify import READY, NotifyError, find_service_manager, read_watchdog
from klet.model.pods import API_SOURCE, FILE_SOURCE, HTTP_SOURCE
from klet.model.reasons import Reason
from klet.model.recording import DecisionRecorder
from klet.model.roles import Part, PodSink, Publisher
from klet.model.verbosity import TRACE
from klet.node.addresses import preferred_version
from klet.node.findings import find_start
from klet.node.kernel_tunables import (
    TunablePolicy,
    WriteFailure,
    apply_tunables,
    choose_tunable_policy,
    choose_write_failure,
)
from klet.node.machine_checks import check_paths
from klet.node.watchdog import Watchdog, check_allowed
from klet.plugins.boards import PluginHandler
from klet.server.configz import encode_configuration
from klet.sources.config import PodConfig
from klet.sources.file import FileSource
from klet.sources.gated_fields import GatedPods
from klet.sources.http import HttpSource, url_origin
from klet.sources.manifests import ManifestReader
from klet.sources.pod_overhead import PodsWithOverhead

logger = logging.getLogger(__name__)

INTERRUPTED = 130
FIRST_PATIENCE = timedelta(seconds=3)
"""How long the agent waits for the runtime's first answer before it starts without it."""
DRAIN_TIME = timedelta(seconds=5)
"""How long statuses and Events are sent when the agent stops: much less than a service manager allows."""


def main(argv: list[str]) -> int:
    """Run the agent; a bad setting ends it with exit code 1 and one line before anything is made or started.

    What else the configuration made klet warn of stands in lines before that one.
    """
    machine = MachineCache(reader=MachineReader())
    try:
        parsed = load_command_line(argv, cgroup_v1=machine.info().cgroup_version == 1)
        if isinstance(parsed, ShowText):
            sys.stdout.write(parsed.text)
            return 0
        settings = settle(parsed, machine.info())
    except KletError as error:
        # Before logging is set up: its settings may be what is wrong.
        for warning in error.warnings if isinstance(error, ConfigError) else ():
            sys.stderr.write(f"klet: warning: {one_line(warning)}\n")
        sys.stderr.write(f"klet: {one_line(str(error))}\n")
        return 1
    log = start_logging(cut_log_settings(parsed.config))
    for warning in (*parsed.warnings, *parsed.without_effect):
        logger.warning("About the configuration", extra={"warning": warning})
    if logger.isEnabledFor(TRACE):
        logger.log(TRACE, "KubeletConfiguration", extra={"configuration": encode_configuration(parsed.config).decode()})
    # Signals are not handled yet, and would lose what is kept back.
    log.flush()
    if parsed.config.max_open_files > 0:
        allow_open_files(parsed.config.max_open_files)
    set_oom_score(parsed.config.oom_score_adj)
    try:
        uvloop.run(run_agent(parsed, settings, machine, set_verbosity=log.set_verbosity))
    except KletError as error:
        logger.error("The agent cannot go on", extra={"error": str(error)})
        return 1
    except asyncio.CancelledError:
        logger.info("Stopping before the agent was up")
    except KeyboardInterrupt:
        # Before its parts run, as while a node waits for its first certificate, nothing has to be put in order.
        return INTERRUPTED
    return 0


def settle(given: Settings, machine: MachineInfo) -> AgentSettings:
    """Fit the settings to this machine; only looks at it."""
    with warned(given.warnings), suffixed(f", path: {given.sources}"):
        check_settings(given, machine)
        check_serving(given)
        settings = cut_settings(given, machine)
        check_paths(root=settings.root, socket=settings.socket)
    return settings


async def run_agent(
    given: Settings, settings: AgentSettings, machine: MachineCache, *, set_verbosity: Callable[[int], None]
) -> None:
    """Open the ports, wire the parts, run them. Cancelled if it is to end before they run."""
    clock, stop = SystemClock(), StopRequest()
    async with AsyncExitStack() as opened:
        with stop.during_opening():
            # The holder of the lock may have the ports too, until it ends.
            await _lock(given.flags, clock=clock, stop=stop, opened=opened)
            # First of all else: if a port is taken, another kubelet may run here, and its node must not be touched.
            sockets = opened.enter_context(take_ports(given.config))
            apply_tunables(Sysctls(), _tunable_policy(given), on_failure=_write_failure(given, machine.info()))
            make_root(settings.root, mounts)
            if machine.info().has_selinux:
                label_plugin_directories(settings.root)
            make_log_directories(settings.sandbox.logs, settings.legacy_logs)
            opened.enter_context(hold_root(settings.root))
            tracer = await opened.enter_async_context(open_tracer(given.config.tracing, host_name=settings.node_name))
            has_events = not given.flags.is_standalone
            metrics = open_metrics(architecture=machine.info().architecture, shows_hidden=settings.shows_hidden_metrics)
            base = await opened.enter_async_context(
                open_base(settings, machine=machine, clock=clock, metrics=metrics, has_events=has_events, tracer=tracer)
            )
            # Mostly it is there. One that is not is waited for while the node runs.
            await clock.wait(base.contact.ask(), at_most=FIRST_PATIENCE)
            last_record = base.journal.last_record_at
            _record_start(base, settings)
            left = await open_left_state(settings, base, last_record=last_record)
            spec = await _open_spec(
                given, settings, base, left=left, sockets=sockets, opened=opened, set_verbosity=set_verbosity
            )
            if base.contact.found is not None:
                await base.contact.meet(spec.ports.prepare_runtime)
            node = build_node(spec)
            for finding in find_start(base.machine.info(), noswap=spec.ports.volumes.noswap):
                base.recorder.record(finding)
            version = base.contact.found.version if base.contact.found is not None else ""
            logger.info("The agent has started", extra={"node": settings.node_name, "runtime": version})
        parts = (*node.parts, *_build_watchdog(base, node.agent))
        await left.boots.note_running()
        await run_parts(parts, stop=stop, when_started=_notify_ready)
        await left.boots.note_stopped()
        await publish_the_rest(node.publishers, clock=clock)


async def _lock(flags: KubeletFlags, *, clock: Clock, stop: StopRequest, opened: AsyncExitStack) -> None:
    """Wait for the file of `--lock-file`; with `--exit-on-lock-contention` end when another process wants it."""
    if not flags.lock_file:
        return
    logger.info("Acquiring file lock", extra={"path": flags.lock_file})
    held = await opened.enter_async_context(wait_for_lock(Path(flags.lock_file), clock=clock))
    if flags.exit_on_lock_contention:
        logger.info("Watching for inotify events", extra={"path": flags.lock_file})
        opened.enter_context(watch_lock(held, when_wanted=stop.ask))


async def _open_spec(
    given: Settings,
    settings: AgentSettings,
    base: BasePorts,
    *,
    left: LeftState,
    sockets: ApiSockets,
    opened: AsyncExitStack,
    set_verbosity: Callable[[int], None],
) -> NodeSpecification:
    """Open everything outside the agent that a node of this configuration needs."""
    config = PodConfig(sources=source_names(given), clock=base.clock, recorder=base.recorder)
    sink = GatedPods(is_enabled=given.gates.enabled, sink=config)
    others: tuple[Part, ...] = (base.journal, *build_sources(given, settings.node_name, base, sink=sink))
    objects, reviewer = standalone_objects(settings.runtime_handlers), None
    node_ips: Callable[[], tuple[str, ...]] = partial(
        find_node_addresses, given.flags.node_ip.split(","), prefer=preferred_version(settings.node)
    )
    host_ips: Callable[[], tuple[str, ...]] = tuple
    plugin_handlers: Mapping[str, PluginHandler] = {}
    cluster = None
    if base.events is not None:
        # Imported here: the API client takes memory that a node without an API server can save.
        from klet.app.cluster import join  # noqa: PLC0415 - see above

        cluster = await opened.enter_async_context(
            join.open_cluster(given, settings, base, events=base.events, sink=sink)
        )
        node_ips = host_ips = join.find_host_ips(cluster, expected=node_ips())
        objects, reviewer = cluster.objects, cluster.clients.reviews
        plugin_handlers = cluster.drivers.handlers
    else:
        others += build_configured_cidrs(given, base)
    ports = await opened.enter_async_context(
        open_ports(
            settings,
            base,
            left=left,
            objects=objects,
            changes=config,
            node_ips=node_ips,
            host_ips=host_ips,
            plugin_handlers=plugin_handlers,
        )
    )
    api = await open_kubelet_api(given, settings, base, sockets=sockets, reviewer=reviewer, set_verbosity=set_verbosity)
    if cluster is not None and api.requested is not None:
        others += await join.open_serving_rotation(given, settings, base, cluster=cluster, user=api.requested)
    return NodeSpecification(settings=settings, ports=ports, cluster=cluster, api=api, others=others)


def _tunable_policy(given: Settings) -> TunablePolicy:
    return choose_tunable_policy(protect=given.config.protect_kernel_defaults, leave=given.klet.leave_kernel_tunables)


def _write_failure(given: Settings, machine: MachineInfo) -> WriteFailure:
    return choose_write_failure(
        in_user_namespace=machine.in_user_namespace, is_ignored=given.gates.enabled("KubeletInUserNamespace")
    )


def _record_start(base: BasePorts, settings: AgentSettings) -> None:
    """Record that the agent starts, before what it finds then: a reboot, or state that is damaged."""
    runtime = base.contact.found
    what = (
        f" on {runtime.name} {runtime.version}" if runtime is not None else ", whose container runtime is not there yet"
    )
    DecisionRecorder(base.recorder, decider="app.run").for_node().record(
        Reason.AGENT_STARTED,
        f"node {settings.node_name}{what}",
        next_step="read the runtime and the pod sources" if runtime is not None else "wait for the runtime",
    )


def _notify_ready() -> None:
    """Notify the service manager that the agent is up; a failure must not stop the agent."""
    try:
        find_service_manager(os.environ).notify(READY)
    except NotifyError as error:
        logger.warning("The service manager was not notified that the agent is up", extra={"error": str(error)})


def _build_watchdog(base: BasePorts, agent: Agent) -> tuple[Part, ...]:
    """Return the watchdog, if the service manager has one; raises WatchdogError for a time that cannot be kept."""
    allowed = read_watchdog(os.environ, pid=os.getpid())
    if allowed is None:
        return ()

    async def check_loop() -> str | None:
        return agent.loop.health_error()

    watchdog = Watchdog(
        manager=find_service_manager(os.environ),
        allowed=check_allowed(allowed),
        checks={"syncloop": check_loop},
        clock=base.clock,
        randomness=base.randomness,
    )
    return (watchdog,)


async def run_parts(parts: Sequence[Part], *, stop: StopRequest, when_started: Callable[[], None]) -> None:
    """Run every part in one task group. SIGTERM and SIGINT shut it down cleanly; an escaping exception is a bug."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.ask)
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(part.run(), name=type(part).__name__) for part in parts]
            when_started()
            await stop.wait()
            logger.info("Stopping; pods keep running")
            for task in tasks:
                task.cancel()
    except BaseExceptionGroup as group_error:
        # One that klet raised on purpose, such as a socket that cannot be bound, is a message and no bug.
        if len(group_error.exceptions) == 1 and isinstance(cause := group_error.exceptions[0], KletError):
            raise cause from None
        raise
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


async def publish_the_rest(publishers: Sequence[Publisher], *, clock: Clock) -> None:
    """Send what still waits for the API server. All parts have ended, so that nothing new comes."""
    waiting = {each.name: each.waiting for each in publishers if each.waiting}
    if not waiting:
        return
    logger.info("Publishing what waits", extra=waiting)
    await clock.wait(_drain(publishers), at_most=DRAIN_TIME)
    if left := {each.name: each.waiting for each in publishers if each.waiting}:
        logger.warning(
            "Not everything was published before the end; statuses are sent after the next start", extra=left
        )


async def _drain(publishers: Sequence[Publisher]) -> None:
    async with asyncio.TaskGroup() as group:
        for each in publishers:
            group.create_task(each.drain(), name=f"drain-{each.name}")


def source_names(given: Settings) -> tuple[str, ...]:
    """Return the sources that must be seen before anything is removed."""
    wanted = {
        FILE_SOURCE: given.config.static_pod_path,
        HTTP_SOURCE: given.config.static_pod_url,
        API_SOURCE: given.flags.kubeconfig,
    }
    return tuple(name for name, place in wanted.items() if place)


def build_sources(given: Settings, node_name: str, base: BasePorts, *, sink: PodSink) -> tuple[Part, ...]:
    config, recorder, threads, clock = given.config, base.recorder, base.threads, base.clock
    sink = PodsWithOverhead(classes={each.metadata.name: each for each in given.klet.runtime_classes}, sink=sink)
    prevent = given.gates.enabled(PREVENT_API_REFERENCES)
    options = cut_validation_options(given)
    sources: list[Part] = []
    if config.static_pod_path:
        sources.append(
            FileSource(
                path=Path(config.static_pod_path),
                every=config.file_check_frequency,
                reader=ManifestReader(node_name=node_name, prevent_api_references=prevent, options=options),
                sink=sink,
                recorder=recorder,
                threads=threads,
                clock=clock,
            )
        )
    if config.static_pod_url:
        sources.append(
            HttpSource(
                origin=url_origin(
                    config.static_pod_url, node_name=node_name, prevent_api_references=prevent, options=options
                ),
                headers=config.static_pod_url_header,
                every=config.http_check_frequency,
                sink=sink,
                recorder=recorder,
                threads=threads,
                clock=clock,
            )
        )
    return tuple(sources)
