"""A story as text: what was planned, and what happened when, from the journal and the runtime's own record."""

from collections.abc import Iterable, Iterator

from google.protobuf.message import Message

from klet.api.container import Container
from klet.model.causes import Cause
from klet.simulation.commands import CommandResults
from klet.simulation.plan import StoryPlan
from klet.testing.fake_runtime.calls import AnswerRecord, CallRecord
from klet.testing.fake_runtime.events import FakeEvent
from klet.testing.fake_runtime.lives import ExecResult
from klet.testing.fake_runtime.timeline import nanoseconds
from klet.wire import cri_v1_pb2 as pb


def format_story(
    plan: StoryPlan, causes: Iterable[Cause], history: Iterable[CallRecord | AnswerRecord | FakeEvent]
) -> tuple[str, ...]:
    """Return the plan first, then the timeline."""
    lines: list[tuple[int, str]] = [(nanoseconds(cause.at), _cause(cause)) for cause in causes]
    for record in history:
        match record:
            case FakeEvent():
                lines.append((record.stamp, f"event  {record.topic} {record.container_id[:8]}"))
            case CallRecord():
                lines.append((nanoseconds(record.at), f"call   {record.rpc} {_request(record.request)}"))
            case AnswerRecord():
                lines.append((nanoseconds(record.at), f"answer {record.rpc} {record.code}"))
    lines.sort(key=lambda line: line[0])
    return (*_planned(plan), *(f"{_clock(stamp)} {text}" for stamp, text in lines))


def _planned(plan: StoryPlan) -> list[str]:
    first = (
        f"seed {plan.seed}: latency {plan.latency}, view lag {plan.view_lag}, pull time {plan.pull_time}, longest"
        f" back-off {plan.longest_backoff}, {plan.parallel_starts} starts at once, lingering {plan.lingering},"
        f" CRI events {plan.cri_events}, no events {plan.no_events}, lasts {plan.lasts}"
    )
    lines = [first]
    for planned in plan.pods:
        spec = planned.pod.spec
        lines.append(
            f"pod {planned.uid} {planned.pod.metadata.name} from {planned.source}, {spec.restart_policy},"
            f" grace {spec.termination_grace_period_seconds}"
        )
        for container in (*spec.init_containers, *spec.containers):
            lives = ", then ".join(
                f"{life.lasts or 'for ever'} exit {life.exit_code}, on TERM {life.on_term}"
                + (", does not start" if life.start_failure else "")
                for life in planned.lives[container.name]
            )
            rule = ", its rule restarts all" if container.restart_policy_rules else ""
            own = f" ({container.restart_policy}{rule})" if container.restart_policy else ""
            lines.append(f"  {container.name}{own} {container.image}: {lives}")
            lines += _watched(container, planned.command_results[container.name])
    return [*lines, *(f"step {timed.at} {timed.step}" for timed in plan.steps)]


def _watched(container: Container, command_results: CommandResults) -> Iterator[str]:
    """Yield the probes and hooks of a container."""
    for kind, probe in (
        ("startup", container.startup_probe),
        ("readiness", container.readiness_probe),
        ("liveness", container.liveness_probe),
    ):
        if probe is not None:
            often = f"every {probe.period_seconds} s"
            yield f"    {kind} {often}, good after {probe.success_threshold}, bad after {probe.failure_threshold}"
    if container.startup_probe is not None:
        yield f"    startup probes that fail at first: {command_results.startup_failures}"
    if container.lifecycle is not None and container.lifecycle.post_start is not None:
        yield f"    postStart: {', then '.join(_hook(each) for each in command_results.post_start)}"
    if container.lifecycle is not None and container.lifecycle.pre_stop is not None:
        yield f"    preStop: {', then '.join(_hook(each) for each in command_results.pre_stop)}"


def _hook(result: ExecResult) -> str:
    return f"{result.takes} exit {result.exit_code}"


def _cause(cause: Cause) -> str:
    finding = cause.finding
    subject = finding.subject
    who = f"{subject.uid}/{subject.container}" if subject.container else subject.uid
    return f"klet   {who} {finding.decision}: {finding.message}"


def _request(request: Message) -> str:
    match request:
        case pb.RunPodSandboxRequest():
            return f"{request.config.metadata.uid} attempt {request.config.metadata.attempt}"
        case pb.CreateContainerRequest():
            metadata = request.config.metadata
            return f"{request.sandbox_config.metadata.uid}/{metadata.name} attempt {metadata.attempt}"
        case pb.ExecSyncRequest():
            return f"{request.container_id[:8]} {' '.join(request.cmd)}"
        case pb.StartContainerRequest() | pb.RemoveContainerRequest() | pb.ContainerStatusRequest():
            return request.container_id[:8]
        case pb.StopContainerRequest():
            return f"{request.container_id[:8]} within {request.timeout} s"
        case pb.StopPodSandboxRequest() | pb.RemovePodSandboxRequest() | pb.PodSandboxStatusRequest():
            return request.pod_sandbox_id[:8]
        case pb.ListPodSandboxRequest() | pb.ListContainersRequest():
            return " ".join(request.filter.label_selector.values()) or request.filter.id[:8]
        case pb.PullImageRequest() | pb.ImageStatusRequest():
            return request.image.image
        case _:
            return ""


def _clock(stamp: int) -> str:
    seconds, rest = divmod(stamp, 1_000_000_000)
    minutes, second = divmod(seconds % 86_400, 60)
    return f"{minutes // 60:02}:{minutes % 60:02}:{second:02}.{rest // 1000:06}"
