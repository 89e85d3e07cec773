"""klet decides as upstream does: random pods in random states, with upstream's own answers recorded."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from klet.allocation.book import actual_resources
from klet.api.codec import convert, to_builtins
from klet.api.pod import Pod, PodStatus
from klet.model.allocation import PodResources, desired_allocation
from klet.model.pods import PodUID, is_static
from klet.model.probes import ProbeKey, ProbeKind, ProbeResult, ProbeView
from klet.model.qos import compute_qos
from klet.model.runtime import (
    ContainerId,
    ContainerRecord,
    GivenResources,
    PodRuntimeStatus,
    RuntimeContainerState,
    SandboxId,
    SandboxRecord,
    StartFailure,
)
from klet.runtime.actions import PodActions, compute_pod_actions, plan_sandbox
from klet.runtime.hashing import container_hash
from klet.runtime.restart import restartable_names, restarts_after
from klet.status import conditions
from klet.status.ending import end_status
from klet.status.generate import PodStatusInputs, generate_status
from klet.status.phase import RestartRule, compute_phase

RECORDED = Path(__file__).parents[2] / "data" / "recorded_decisions"
EPOCH = datetime.fromtimestamp(4_000_000_000, UTC)
RESULTS = {"success": ProbeResult.SUCCESS, "failure": ProbeResult.FAILURE, "unknown": ProbeResult.UNKNOWN}


def load(name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((RECORDED / f"{name}.json").read_text())
    return found


def recorded(name: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", [pytest.param(case, id=f"{n}") for n, case in enumerate(load(name))])


def seen_of(case: dict[str, Any], pod: Pod) -> PodRuntimeStatus:
    every = [*pod.spec.containers, *pod.spec.init_containers]
    hashes = {c.name: container_hash(c) for c in every}
    hashes |= {c.name: container_hash(c) for c in pod.spec.ephemeral_containers}
    sandboxes = tuple(
        SandboxRecord(
            id=SandboxId(each["id"]),
            attempt=each["attempt"],
            ready=each["ready"],
            created_at=EPOCH,
            ips=(each["ip"],) if each["ip"] else (),
            host_network=each["hostNetwork"],
        )
        for each in case.get("sandboxes", ())
    )
    records = [record_of(each, hashes) for each in case.get("containers", ())]
    return PodRuntimeStatus(
        uid=PodUID(pod.metadata.uid),
        ips=tuple(case.get("ips", ())),
        sandboxes=sandboxes,
        containers=tuple(sorted(records, key=lambda record: record.created_at, reverse=True)),
    )


def record_of(each: dict[str, Any], hashes: dict[str, int]) -> ContainerRecord:
    at = EPOCH + timedelta(seconds=each["created"])
    given = GivenResources(
        cpu_request=each.get("cpuRequest") or None,
        cpu_limit=each.get("cpuLimit") or None,
        memory_limit=each.get("memoryLimit") or None,
    )
    name = each["name"]
    return ContainerRecord(
        id=ContainerId(each["id"]),
        sandbox_id=SandboxId(each["sandbox"]),
        name=name,
        state=RuntimeContainerState(each["state"]),
        image=f"docker.io/{name}",
        image_ref=f"sha256:{name}",
        created_at=at,
        started_at=None if each["state"] == "created" else at,
        finished_at=at + timedelta(seconds=1) if each["state"] == "exited" else None,
        exit_code=each.get("exit", 0),
        reason=each.get("reason", ""),
        message=each.get("message", ""),
        spec_hash=1 if each.get("changed") else hashes[name],
        restart_count=each["restarts"],
        resources=None if given == GivenResources() else given,
    )


def probes_of(case: dict[str, Any]) -> ProbeView:
    kinds = {"liveness": ProbeKind.LIVENESS, "startup": ProbeKind.STARTUP, "readiness": ProbeKind.READINESS}
    return {
        ProbeKey(ContainerId(container), kind): RESULTS[result]
        for name, kind in kinds.items()
        for container, result in case.get(name, {}).items()
    }


def restarts(pod: Pod) -> RestartRule:
    return lambda container, code: restarts_after(container, pod, code)


def shown(actions: PodActions) -> dict[str, Any]:
    kills = [{"id": k.id, "name": k.name, "message": k.message, "reason": str(k.reason)} for k in actions.kill]
    every = {
        "killPod": actions.kill_pod,
        "createSandbox": actions.create_sandbox,
        "sandboxID": actions.sandbox_id,
        "attempt": actions.attempt,
        "init": list(actions.start_init),
        "start": list(actions.start),
        "ephemeral": list(actions.start_ephemeral),
        "kill": sorted(kills, key=lambda kill: kill["id"]),
    }
    return {name: value for name, value in every.items() if value}


@recorded("actions")
def test_what_one_sync_does(case):
    pod = convert(Pod, case["pod"])
    assert shown(compute_pod_actions(pod, seen_of(case, pod), probes=probes_of(case))) == case["actions"]


@recorded("phases")
def test_the_phase_and_conditions_of_a_pod(case):
    pod = convert(Pod, case["pod"])
    regular, init = pod.status.container_statuses, pod.status.init_container_statuses
    phase = compute_phase(
        pod,
        regular,
        init,
        is_initialized=case["initialized"],
        ends_here=case["terminal"] and not is_static(pod),
        restarts=restarts(pod),
    )
    assert phase == case["phase"]
    containers = conditions.containers_ready(pod, (*init, *regular), phase)
    found = {
        "Ready": conditions.ready(pod, containers, pod.status.conditions),
        "ContainersReady": containers,
        "Initialized": conditions.initialized(pod, regular, init, phase),
    }
    assert {name: [c.status, c.reason, c.message] for name, c in found.items()} == case["conditions"]
    assert conditions.is_readiness_stale(pod) is case["isStale"]


def plain(value: Any) -> Any:
    """Without what is empty: both sides leave out different things."""
    if isinstance(value, dict):
        return {key: bare for key, each in value.items() if (bare := plain(each)) not in (None, {}, [])}
    return [plain(each) for each in value] if isinstance(value, list) else value


@recorded("statuses")
def test_the_status_of_a_pod(case):
    pod = convert(Pod, case["pod"])
    seen = seen_of(case, pod)
    inputs = PodStatusInputs(
        previous=pod.status,
        resources=PodResources(admitted=desired_allocation(pod), actual=actual_resources(seen)),
        runtime_name="containerd",
        qos_class=compute_qos(pod),
        restarts=restarts(pod),
        needs_sandbox=plan_sandbox(pod, seen).create,
        startable=restartable_names(pod, seen),
        failures={name: StartFailure(**failure) for name, failure in case.get("failures", {}).items()},
        probes=probes_of(case),
        probed=frozenset(),
        agent_started=EPOCH - timedelta(days=1),
        ends_here=case["terminal"],
    )
    status = to_builtins(generate_status(pod, seen, inputs))
    status.pop("observedGeneration", None)  # upstream's status manager adds it
    assert plain(status) == plain(case["status"])


@recorded("statuses")
def test_what_is_left_at_the_end(case):
    pod = convert(Pod, case["pod"])
    last = to_builtins(end_status(pod, convert(PodStatus, case["status"])))

    def states(part: str) -> dict[str, str]:
        return {each["name"]: next(iter(each["state"]), "") for each in last.get(part, ())}

    found = {"phase": last["phase"], "containers": states("containerStatuses")}
    assert {**found, "initContainers": states("initContainerStatuses")} == case["ended"]
