"""All containers restart as upstream has it: random pods in random states, with upstream's own answers recorded."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from klet.api.codec import convert
from klet.api.container_status import ContainerState, ContainerStatus
from klet.api.pod import Pod, PodStatus
from klet.model.allocation import PodResources, desired_allocation
from klet.model.features import PodFeatures
from klet.model.pods import PodUID
from klet.model.restart_rules import should_restart_all
from klet.model.runtime import (
    ContainerId,
    ContainerRecord,
    PodRuntimeStatus,
    RuntimeContainerState,
    SandboxId,
    SandboxRecord,
)
from klet.runtime.actions import compute_pod_actions, plan_sandbox
from klet.runtime.restart import restartable_names, restarts_after
from klet.status.generate import PodStatusInputs, generate_status

RECORDED = Path(__file__).parents[2] / "data" / "recorded_decisions" / "restart_all.json"
EPOCH = datetime.fromtimestamp(4_000_000_000, UTC)
IP = "10.0.0.1"


def read_record(given: dict[str, Any]) -> ContainerRecord:
    state = RuntimeContainerState(given["state"])
    return ContainerRecord(
        id=ContainerId(given["id"]),
        sandbox_id=SandboxId("sandbox"),
        name=given["name"],
        state=state,
        created_at=EPOCH + timedelta(seconds=given["created"]),
        started_at=None if state is RuntimeContainerState.CREATED else EPOCH,
        finished_at=EPOCH if state is RuntimeContainerState.EXITED else None,
        exit_code=given["exitCode"],
        reason=given["reason"],
        restart_count=given["restarts"],
    )


def read_seen(case: dict[str, Any]) -> PodRuntimeStatus:
    sandbox = SandboxRecord(id=SandboxId("sandbox"), attempt=0, ready=case["sandboxReady"], created_at=EPOCH, ips=(IP,))
    records = tuple(map(read_record, case["containers"]))
    return PodRuntimeStatus(uid=PodUID("u"), ips=(IP,), sandboxes=(sandbox,), containers=records)


def shown_state(state: ContainerState) -> object:
    if state.running is not None:
        return "running"
    if (end := state.terminated) is not None:
        return ["terminated", end.exit_code, end.reason, end.message, end.container_id]
    return ["waiting", state.waiting.reason, state.waiting.message] if state.waiting is not None else None


def shown(status: ContainerStatus) -> dict[str, object]:
    return {
        "name": status.name,
        "state": shown_state(status.state),
        "last": shown_state(status.last_state),
        "restarts": status.restart_count,
        "id": status.container_id,
    }


@pytest.mark.parametrize("case", [pytest.param(c, id=f"{n}") for n, c in enumerate(json.loads(RECORDED.read_text()))])
def test_as_upstream(case):
    pod, previous, seen = convert(Pod, case["pod"]), convert(PodStatus, case["previous"]), read_seen(case)
    status = generate_status(
        pod,
        seen,
        PodStatusInputs(
            previous=previous,
            resources=PodResources(admitted=desired_allocation(pod)),
            runtime_name="containerd",
            qos_class="BestEffort",
            restarts=lambda container, code: restarts_after(container, pod, code, restart_all=True),
            needs_sandbox=plan_sandbox(pod, seen).create,
            startable=restartable_names(pod, seen, restart_all=True),
            features=PodFeatures(restart_all=True),
        ),
    )
    actions = compute_pod_actions(pod, seen, probes={}, restart_all=True, is_restarting_all=True)
    conditions = {each.type: each for each in status.conditions}
    told = conditions.get("AllContainersRestarting")
    wanted = case["answer"]
    assert {
        "restarting": should_restart_all(pod, seen, previous),
        "regular": [shown(each) for each in status.container_statuses],
        "init": [shown(each) for each in status.init_container_statuses],
        # Not recorded where a sidecar runs: whether it has started is not known to upstream's function.
        "phase": status.phase if wanted["phase"] else "",
        "condition": [told.status, told.reason, told.message] if told is not None else [],
        "initialized": conditions["Initialized"].status,
        "killPod": actions.kill_pod,
        "create": actions.create_sandbox,
        "reset": [{"id": each.id, "kill": each.kill} for each in actions.reset],
    } == wanted
