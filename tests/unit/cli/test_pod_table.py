import pytest

from klet.cli.pod_table import build_row, pod_status_word

RUNNING = {"running": {}}
CREATING = {"waiting": {"reason": "ContainerCreating"}}
INITIALIZING = {"waiting": {"reason": "PodInitializing"}}
DONE = {"terminated": {"exitCode": 0, "reason": "Completed"}}


def waiting(reason):
    return {"waiting": {"reason": reason}}


def ended(code, **more):
    return {"terminated": {"exitCode": code, **more}}


CASES = [
    pytest.param({"containers": [("a", RUNNING, True)]}, "1/1", "Running", id="one that runs"),
    pytest.param(
        {"containers": [("a", RUNNING, True), ("b", RUNNING, False)]}, "1/2", "Running", id="one of two is ready"
    ),
    pytest.param(
        {"containers": [("a", CREATING, False)], "phase": "Pending"}, "0/1", "ContainerCreating", id="being created"
    ),
    pytest.param(
        {"containers": [("a", waiting("ImagePullBackOff"), False), ("b", RUNNING, True)]},
        "1/2",
        "ImagePullBackOff",
        id="the container that waits gives its reason",
    ),
    pytest.param({"containers": [("a", DONE, False)], "phase": "Succeeded"}, "0/1", "Completed", id="one that is done"),
    pytest.param(
        {"containers": [("a", DONE, False), ("b", RUNNING, True)], "conditions": {"Ready": "True"}},
        "1/2",
        "Running",
        id="one is done and the other runs",
    ),
    pytest.param(
        {"containers": [("a", DONE, False), ("b", RUNNING, True)]},
        "1/2",
        "NotReady",
        id="one is done, the other runs, the pod is not ready",
    ),
    pytest.param(
        {"containers": [("a", ended(137, signal=9), False)]}, "0/1", "Signal:9", id="ended by a signal, no reason"
    ),
    pytest.param({"containers": [("a", ended(3), False)]}, "0/1", "ExitCode:3", id="ended with a code, no reason"),
    pytest.param(
        {"init": [("i", RUNNING, False)], "containers": [("a", INITIALIZING, False)], "phase": "Pending"},
        "0/1",
        "Init:0/1",
        id="the first init container runs",
    ),
    pytest.param(
        {
            "init": [("i", DONE, True), ("j", INITIALIZING, False)],
            "containers": [("a", INITIALIZING, False)],
            "phase": "Pending",
        },
        "0/1",
        "Init:1/2",
        id="the second init container has its turn",
    ),
    pytest.param(
        {"init": [("i", waiting("CrashLoopBackOff"), False)], "containers": [("a", INITIALIZING, False)]},
        "0/1",
        "Init:CrashLoopBackOff",
        id="an init container that crashes",
    ),
    pytest.param(
        {"init": [("i", ended(2), False)], "containers": [("a", INITIALIZING, False)]},
        "0/1",
        "Init:ExitCode:2",
        id="an init container that failed",
    ),
    pytest.param(
        {"init": [("s", RUNNING, True)], "sidecars": ["s"], "started": True, "containers": [("a", RUNNING, True)]},
        "2/2",
        "Running",
        id="a sidecar counts",
    ),
    pytest.param({"phase": "Failed", "reason": "Evicted"}, "0/0", "Evicted", id="the pod's own reason"),
    pytest.param(
        {"metadata": {"deletionTimestamp": "2030-01-01T00:00:00Z"}, "containers": [("a", RUNNING, True)]},
        "1/1",
        "Terminating",
        id="being deleted",
    ),
    pytest.param({"phase": ""}, "0/0", "Unknown", id="no status at all"),
]


@pytest.mark.parametrize(("parts", "ready", "word"), CASES)
def test_ready_and_status(build_pod, now, parts, ready, word):
    parts = dict(parts)
    started = parts.pop("started", False)
    for kind in ("containers", "init"):
        parts[kind] = [build_pod.status(n, s, ready=r, started=started) for n, s, r in parts.get(kind, ())]
    pod = build_pod(**parts)
    row = build_row(pod, now=now)
    assert (row.ready, row.status) == (ready, word)
    assert pod_status_word(pod) == word


def test_the_other_columns(build_pod, now):
    crashed = {"terminated": {"exitCode": 1, "finishedAt": build_pod.at(300)}}
    status = build_pod.status("a", RUNNING, ready=True, restartCount=4, lastState=crashed)
    row = build_row(build_pod(containers=[status], podIP="10.83.0.7"), now=now)
    assert (row.namespace, row.name, row.node) == ("default", "web-node", "node")
    assert (row.ip, row.age, row.restarts) == ("10.83.0.7", "90s", "4 (5m ago)")
    assert (row.containers, row.images) == ("a", "busybox")


def test_a_pod_that_has_not_begun(build_pod, now):
    row = build_row(build_pod(phase="Pending", startTime=None), now=now)
    assert (row.ip, row.age, row.restarts) == ("<none>", "<unknown>", "0")


def test_a_pod_that_has_not_begun_is_as_old_as_the_agents_notice_of_it(build_pod, now):
    seen = {"annotations": {"kubernetes.io/config.seen": build_pod.at(7).replace("Z", ".123456000Z")}}
    assert build_row(build_pod(phase="Pending", startTime=None, metadata=seen), now=now).age == "6s"


def test_restarts_of_init_containers_count_while_they_run(build_pod, now):
    init = build_pod.status("i", RUNNING, restartCount=2)
    main = build_pod.status("a", INITIALIZING, restartCount=0)
    assert build_row(build_pod(init=[init], containers=[main]), now=now).restarts == "2"
    done = build_pod.status("i", DONE, restartCount=2)
    assert build_row(build_pod(init=[done], containers=[main]), now=now).restarts == "0"
