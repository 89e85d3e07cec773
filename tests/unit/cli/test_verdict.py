import pytest

from klet.cli.verdict import Broken, Done, Pending, judge_pod

RUNNING = {"running": {}}


@pytest.mark.parametrize(
    ("parts", "containers", "expected"),
    [
        pytest.param({"conditions": {"Ready": "True"}}, [("a", RUNNING, {})], Done("Ready"), id="ready"),
        pytest.param({"phase": "Succeeded"}, [], Done("Succeeded"), id="a job that is done"),
        pytest.param(
            {"phase": "Failed"},
            [("a", {"terminated": {"exitCode": 3, "reason": "Error"}}, {})],
            Broken('container "a" ended with exit code 3'),
            id="a job that failed names the container and its code",
        ),
        pytest.param(
            {"phase": "Failed", "reason": "Evicted", "message": "The node was low on memory"},
            [],
            Broken("Evicted: The node was low on memory", is_vague=True),
            id="an evicted pod gives the node's words",
        ),
        pytest.param(
            {"phase": "Failed"}, [], Broken("it failed, and the status does not say why"), id="failed without a message"
        ),
        pytest.param(
            {"phase": "Pending"},
            [("a", {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}, {})],
            Pending('container "a" waits: ErrImagePull: no such image', is_trouble=True),
            id="an image that is not there",
        ),
        pytest.param(
            {},
            [
                (
                    "a",
                    {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}},
                    {"lastState": {"terminated": {"exitCode": 137, "signal": 9, "reason": "OOMKilled"}}},
                )
            ],
            Pending(
                'container "a" waits: CrashLoopBackOff; last time it ended by signal 9 (OOMKilled)',
                is_trouble=True,
            ),
            id="a crash loop shows the last end",
        ),
        pytest.param(
            {"spec": {"restartPolicy": "Never"}},
            [("a", RUNNING, {}), ("b", {"terminated": {"exitCode": 1}}, {})],
            Broken('container "a" runs and is not ready yet; container "b" ended with exit code 1'),
            id="what failed and is never restarted will not get ready, whatever else runs",
        ),
        pytest.param(
            {},
            [("a", RUNNING, {"restartCount": 2})],
            Pending('container "a" runs and is not ready yet, after 2 restarts'),
            id="a probe that has not passed",
        ),
        pytest.param(
            {"phase": "Pending"},
            [("a", {"waiting": {"reason": "ContainerCreating"}}, {})],
            Pending("its containers are being prepared", is_vague=True),
            id="nothing has gone wrong yet",
        ),
    ],
)
def test_judge_pod(build_pod, parts, containers, expected):
    statuses = [build_pod.status(name, state, **more) for name, state, more in containers]
    assert judge_pod(build_pod(containers=statuses, **parts)) == expected


def test_a_pod_that_the_agent_does_not_know_yet():
    assert judge_pod(None) == Pending("the agent has not taken it up yet")


def test_a_condition_explains_when_no_container_does(build_pod):
    pod = build_pod(phase="Pending", conditions={"PodReadyToStartContainers": "False"})
    assert judge_pod(pod) == Pending("its containers are being prepared", is_vague=True)


def test_an_init_container_is_called_one(build_pod):
    init = build_pod.status("i", {"terminated": {"exitCode": 1, "message": "no database\n"}})
    verdict = judge_pod(build_pod(init=[init]))
    assert verdict == Pending('init container "i" ended with exit code 1 (no database)', is_trouble=True)
