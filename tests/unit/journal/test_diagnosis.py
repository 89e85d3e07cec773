"""What the first screen says, for every way in which a pod goes wrong: one table for all rules together."""

import pytest

from klet.api.klet_v1 import PodState
from klet.journal.diagnosis import NodeTroubles, diagnose
from klet.journal.evidence import ReasonKind
from klet.journal.timeline import build_timeline

FINISHED = "2030-01-01T11:59:50Z"
ENDED = {"exitCode": 3, "reason": "Error", "finishedAt": FINISHED}
PROBE = {"probe": "liveness", "failuresInARow": 3, "failureThreshold": 3}
READINESS = {"probe": "readiness", "failuresInARow": 1, "failureThreshold": 3}
RUNNING = {"running": {"startedAt": "2030-01-01T11:59:00Z"}}
MAIN = {"container": "main"}
LEAVING = {"metadata": {"deletionTimestamp": "2030-01-01T11:59:00Z"}}


DEADLINE = (
    "the pod was active for longer than its activeDeadlineSeconds of 60 (it started at 11:58:20 UTC), and was stopped"
)


def waiting(reason: str, message: str = "") -> dict:
    return {"waiting": {"reason": reason, "message": message}}


CASES = [
    pytest.param(
        {"state": waiting("ImagePullBackOff", 'Back-off pulling image "remote:1": ErrImagePull: no such host')},
        [
            (20, "Failed", {**MAIN, "measurements": {"reason": "ErrImagePull"}}),
            (9, "BackOff", {**MAIN, "next": "pull again", "next_in": 10}),
        ],
        (
            "ImagePullBackOff",
            'the image "remote:1" of container main cannot be pulled: no such host',
            20,
            "pull it again",
            10,
        ),
        id="an image that cannot be pulled",
    ),
    pytest.param(
        {"state": waiting("ErrImagePull", "pull access denied")},
        [
            (20, "Failed", {**MAIN, "measurements": {"missing pull secrets": "gone, lost"}}),
            (19, "Failed", {**MAIN, "measurements": {"reason": "ErrImagePull"}}),
        ],
        (
            "ErrImagePull",
            (
                'the image "remote:1" of container main cannot be pulled: pull access denied; '
                "image pull secrets that it was tried without: gone, lost"
            ),
            20,
            "look again whether it is there",
            None,
        ),
        id="an image that cannot be pulled for want of secrets",
    ),
    pytest.param(
        {"state": waiting("ErrImagePull", "pull access denied")},
        [
            (20, "Failed", {**MAIN, "measurements": {"missing pull secrets": "gone"}}),
            (9, "Failed", {**MAIN, "measurements": {"missing pull secrets": ""}}),
        ],
        (
            "ErrImagePull",
            'the image "remote:1" of container main cannot be pulled: pull access denied',
            20,
            "look again whether it is there",
            None,
        ),
        id="an image that cannot be pulled though its secrets have come",
    ),
    pytest.param(
        {"state": waiting("ErrImageNeverPull", 'Container image "remote:1" is not present')},
        [(5, "ErrImageNeverPull", MAIN)],
        (
            "ErrImageNeverPull",
            'the image "remote:1" of container main is not on this node, and its imagePullPolicy is Never',
            5,
            "look again whether it is there",
            None,
        ),
        id="an image that may not be pulled",
    ),
    pytest.param(
        {"state": waiting("InvalidImageName", "bad name")},
        [(5, "InspectFailed", MAIN)],
        (
            "InvalidImageName",
            'the image "remote:1" of container main has a name that is not valid: bad name',
            5,
            "look again whether it is there",
            None,
        ),
        id="an image name that is none",
    ),
    pytest.param(
        {
            "state": waiting("CrashLoopBackOff", "back-off 10s"),
            "last": {"terminated": {**ENDED, "exitCode": 128, "reason": "StartError", "message": "exec: no such file"}},
            "restarts": 1,
        },
        [(9, "BackOff", {**MAIN, "next": "start", "next_in": 5})],
        (
            "RunContainerError",
            "container main cannot be started: exec: no such file, 1 restart so far",
            10,
            "start it again",
            5,
        ),
        id="a command that is not there",
    ),
    pytest.param(
        {"state": waiting("CreateContainerConfigError", 'secret "x" not found')},
        [(5, "Failed", {**MAIN, "next_in": 7})],
        (
            "CreateContainerConfigError",
            'container main cannot be started: secret "x" not found',
            5,
            "start it again",
            7,
        ),
        id="a configuration that does not work",
    ),
    pytest.param(
        {"state": waiting("CrashLoopBackOff"), "last": {"terminated": ENDED}, "restarts": 4},
        [(60, "Started", MAIN), (9, "BackOff", {**MAIN, "next_in": 30})],
        (
            "CrashLoopBackOff",
            "container main ended with exit code 3, 4 restarts so far",
            10,
            "start it again",
            30,
        ),
        id="a crash loop",
    ),
    pytest.param(
        {
            "state": waiting("CrashLoopBackOff"),
            "last": {"terminated": {**ENDED, "signal": 9, "message": "going\ndown\n"}},
            "restarts": 2,
        },
        [],
        (
            "CrashLoopBackOff",
            'container main ended by signal 9, 2 restarts so far; it said: "going down"',
            10,
            "",
            None,
        ),
        id="a crash with termination message, and no record of it",
    ),
    pytest.param(
        {
            "state": waiting("CrashLoopBackOff"),
            "last": {"terminated": {**ENDED, "exitCode": 137, "reason": "OOMKilled"}},
            "given": {"limits": {"memory": "64Mi"}},
        },
        [],
        (
            "OOMKilled",
            "container main was killed because it ran out of memory (its memory limit is 64Mi)",
            10,
            "",
            None,
        ),
        id="a container that ran out of memory",
    ),
    pytest.param(
        {"state": waiting("CrashLoopBackOff"), "last": {"terminated": {**ENDED, "exitCode": 137}}, "restarts": 2},
        [
            (30, "Started", MAIN),
            (20, "Unhealthy", {**MAIN, "message": "Liveness probe failed: 404", "measurements": PROBE}),
            (19, "Killing", {**MAIN, "measurements": {"probe": "liveness"}}),
            (9, "BackOff", {**MAIN, "next_in": 3}),
        ],
        (
            "Unhealthy",
            "container main was killed: Liveness probe failed: 404 (3 in a row, 3 are too many), 2 restarts so far",
            10,
            "start it again",
            3,
        ),
        id="a liveness kill that waits for its restart",
    ),
    pytest.param(
        {
            "state": RUNNING,
            "is_ready": True,
            "container": {"livenessProbe": {"periodSeconds": 10}},
        },
        [
            (30, "Started", MAIN),
            (
                4,
                "Unhealthy",
                {**MAIN, "message": "Liveness probe failed: 404", "measurements": PROBE, "next": "killed"},
            ),
        ],
        (
            "Unhealthy",
            "container main is about to be killed: Liveness probe failed: 404 (3 in a row, 3 are too many)",
            4,
            "killed",
            6,
        ),
        id="a liveness probe that fails, not too often yet",
    ),
    pytest.param(
        {"state": RUNNING, "is_ready": True},
        [
            (30, "Started", MAIN),
            (4, "Unhealthy", {**MAIN, "message": "Startup probe failed", "measurements": {"probe": "startup"}}),
            (3, "Killing", {**MAIN, "message": "failed startup probe", "measurements": {"graceSeconds": 30}}),
        ],
        (
            "Unhealthy",
            "container main is being killed: Startup probe failed",
            4,
            "it ends, or its grace is over, and its restart policy decides",
            27,
        ),
        id="a startup kill under way",
    ),
    pytest.param(
        {"state": RUNNING, "container": {"readinessProbe": {"periodSeconds": 5}}},
        [
            (60, "Started", MAIN),
            (40, "Unhealthy", {**MAIN, "message": "Readiness probe failed: refused", "measurements": READINESS}),
            (2, "Unhealthy", {**MAIN, "message": "Readiness probe failed: 503", "measurements": READINESS}),
        ],
        (
            "Unhealthy",
            "container main is not ready: Readiness probe failed: 503 (1 in a row, 3 are too many)",
            40,
            "it is ready when the probe succeeds; asked every 5 s, again",
            3,
        ),
        id="a readiness probe that fails",
    ),
    pytest.param(
        {"state": RUNNING, "container": {"readinessProbe": {"initialDelaySeconds": 90}}},
        [(60, "Started", MAIN)],
        ("NotReady", "container main runs, and its readiness probe has not succeeded yet", 60, "its first probe", 30),
        id="a readiness probe that has not run",
    ),
    pytest.param(
        {"state": waiting("PodInitializing"), "init": {"setup": {"terminated": {**ENDED, "exitCode": 7}}}},
        [(9, "BackOff", {"container": "setup", "next_in": 8})],
        ("Error", "init container setup ended with exit code 7", 10, "start it again", 8),
        id="an init container that fails",
    ),
    pytest.param(
        {"state": waiting("ContainerCreating")},
        [(5, "Pulling", MAIN)],
        ("Pulling", 'the image "remote:1" of container main is being pulled', 5, "start the container with it", None),
        id="an image that is being pulled",
    ),
    pytest.param(
        {"state": waiting("ContainerCreating")},
        [(9, "Pulling", MAIN), (9, "PullWaits", {**MAIN, "message": 'Pull of image "remote:1" waits: behind "big:1"'})],
        (
            "PullWaits",
            'container main waits for its image: Pull of image "remote:1" waits: behind "big:1"',
            9,
            "pull the image when its turn has come",
            None,
        ),
        id="a pull that waits for its turn",
    ),
    pytest.param(
        {"state": waiting("ContainerCreating")},
        [(9, "Pulling", MAIN), (9, "PullWaits", MAIN), (4, "PullBegins", MAIN)],
        (
            "PullBegins",
            'the image "remote:1" of container main is being pulled',
            4,
            "start the container with it",
            None,
        ),
        id="a pull whose turn has come",
    ),
    pytest.param(
        {"state": waiting("ContainerCreating")},
        [(5, "PostStartHook", MAIN)],
        (
            "PostStartHook",
            "the postStart hook of container main is running",
            5,
            "the container counts as started after it",
            None,
        ),
        id="a postStart hook that takes its time",
    ),
    pytest.param(
        {"state": waiting("ContainerCreating"), "phase": "Pending"},
        [
            (
                20,
                "FailedCreatePodSandBox",
                {"message": "Failed to create pod sandbox: rpc error: code = Unknown desc = a"},
            ),
            (
                4,
                "FailedCreatePodSandBox",
                {
                    "message": "Failed to create pod sandbox: rpc error: code = Unknown desc = failed to setup network "
                    'for sandbox "abc": no plugin',
                    "measurements": {"step": "network"},
                    "next_in": 4,
                },
            ),
        ],
        ("FailedCreatePodSandBox", "the pod's network cannot be set up: no plugin", 20, "try again", 4),
        id="a network that cannot be set up",
    ),
    pytest.param(
        {"state": waiting("ContainerCreating"), "phase": "Pending"},
        [
            (
                20,
                "FailedPrepareDynamicResources",
                {
                    "message": "Failed to prepare dynamic resources: prepare dynamic resources: ResourceClaim gpu: no",
                    "next_in": 40,
                },
            ),
        ],
        (
            "FailedPrepareDynamicResources",
            "Failed to prepare dynamic resources: prepare dynamic resources: ResourceClaim gpu: no",
            20,
            "try again",
            40,
        ),
        id="claims that are not prepared",
    ),
    pytest.param(
        {"state": waiting("ContainerCreating"), "phase": "Pending"},
        [
            (20, "FailedCreatePodSandBox", {"message": "Failed to create pod sandbox: no space"}),
            (3, "CreateSandbox", {}),
        ],
        (
            "FailedCreatePodSandBox",
            "the pod's sandbox cannot be created: no space",
            20,
            "another try is under way since 11:59:57 UTC",
            None,
        ),
        id="a sandbox that is tried again",
    ),
    pytest.param(
        {"state": waiting("ContainerCreating"), "phase": "Pending"},
        [
            (20, "FailedCreatePodSandBox", {"message": "Failed to create pod sandbox: no space"}),
            (3, "CreateSandbox", {}),
            (
                2,
                "FailedKillPod",
                {"message": 'error killing pod: failed to destroy network for sandbox "s": no plugin'},
            ),
        ],
        (
            "FailedCreatePodSandBox",
            "the pod's sandbox cannot be created: no space",
            20,
            "stop the sandbox of the last try, which fails too: no plugin",
            None,
        ),
        id="a sandbox whose predecessor does not go",
    ),
    pytest.param(
        {"state": waiting("ContainerCreating"), "phase": "Pending"},
        [(3, "CreateSandbox", {})],
        ("CreateSandbox", "the pod's sandbox, with its network, is being created", 3, "start its containers", None),
        id="a sandbox that takes its time",
    ),
    pytest.param(
        {"state": waiting("ContainerCreating"), "phase": "Pending"},
        [(20, "NetworkNotReady", {"message": "network is not ready"}), (1, "NetworkNotReady", {"message": "cni: no"})],
        ("NetworkNotReady", "cni: no", 20, "try again", None),
        id="a node without a network",
    ),
    pytest.param(
        {"state": waiting("ContainerCreating"), "phase": "Pending"},
        [
            (
                130,
                "FailedMount",
                {
                    "message": 'MountVolume.SetUp failed for volume "v" : configmap "cfg" not found',
                    "measurements": {"volume": "v"},
                },
            ),
            (3, "VolumesNotMounted", {"message": "Unable to attach or mount volumes: unmounted volumes=[v]"}),
        ],
        ("FailedMount", 'volume "v" cannot be set up: configmap "cfg" not found', 130, "try again", None),
        id="a volume that cannot be set up",
    ),
    pytest.param(
        {"state": waiting("ContainerCreating"), "phase": "Pending"},
        [(3, "VolumesNotMounted", {"message": "Unable to attach or mount volumes: unmounted volumes=[v]"})],
        ("VolumesNotMounted", "unmounted volumes=[v]", 3, "try again", None),
        id="a volume of which nothing is known",
    ),
    pytest.param(
        {"state": RUNNING, **LEAVING},
        [
            (41, "Terminate", {"message": "file gone"}),
            (40, "Killing", {**MAIN, "measurements": {"graceSeconds": 60}}),
            (39, "PreStopHook", {**MAIN, "measurements": {"graceSeconds": 60}}),
        ],
        (
            "PreStopHook",
            "the pod is to stop (file gone), and the preStop hook of container main has not ended (60 s of grace)",
            39,
            "the container gets its stop signal when the hook ends, or when its grace is over",
            21,
        ),
        id="a preStop hook that does not end",
    ),
    pytest.param(
        {
            "state": RUNNING,
            **LEAVING,
            "container": {"lifecycle": {"preStop": {"httpGet": {"port": 80}}}},
        },
        [
            (40, "Killing", {**MAIN, "measurements": {"graceSeconds": 30}}),
            (39, "PreStopHook", {**MAIN, "measurements": {"graceSeconds": 30}}),
            (1, "PreStopHookUnfinished", {**MAIN, "measurements": {"graceSeconds": 30}}),
        ],
        (
            "PreStopHookUnfinished",
            "the pod is to stop, and the preStop hook (httpGet) of container main did not end within its grace of 30 s",
            39,
            "the container gets its stop signal, and is killed",
            1,
        ),
        id="a preStop hook that took all the grace",
    ),
    pytest.param(
        {"state": RUNNING, **LEAVING},
        [(10, "Terminate", {}), (9, "Killing", {**MAIN, "measurements": {"graceSeconds": 30}})],
        (
            "Terminating",
            "the pod is to stop, and container main has not ended (30 s of grace)",
            9,
            "the container is killed if it has not ended",
            21,
        ),
        id="a container that takes its time to end",
    ),
    pytest.param(
        {"state": RUNNING, **LEAVING},
        [(10, "Terminate", {}), (9, "FailedKillPod", {"message": "error killing pod: no way"})],
        ("FailedKillPod", "no way", 9, "stop it again", None),
        id="a stop that fails",
    ),
    pytest.param(
        {"state": RUNNING, "is_ready": True, **LEAVING},
        [(10, "Terminate", {"message": "asked to", "next": "stop its containers"})],
        ("Terminate", "asked to", 10, "stop its containers", None),
        id="a stop that has just been asked for",
    ),
    pytest.param(
        {"state": RUNNING, "is_ready": True, **LEAVING},
        [(10, "Terminate", {}), (3, "FailedSync", {"message": "the runtime did not answer"})],
        ("FailedSync", "the runtime did not answer", 3, "try again after a back-off", None),
        id="a stop that cannot begin",
    ),
    pytest.param(
        {"state": RUNNING, **LEAVING},
        [
            (30, "Terminate", {}),
            (29, "Killing", {**MAIN, "measurements": {"graceSeconds": 2}}),
            (
                15,
                "RuntimeNotAnswering",
                {**MAIN, "message": "no answer to StopContainer", "since_ago": 29, "next_in": 90},
            ),
        ],
        ("RuntimeNotAnswering", "no answer to StopContainer", 29, "; the call is given up", 90),
        id="a runtime that hangs",
    ),
    pytest.param(
        {"phase": "Failed", "reason": "DeadlineExceeded", "message": "too long", "spec": {"activeDeadlineSeconds": 60}},
        [(40, "DeadlineExceeded", {})],
        (
            "DeadlineExceeded",
            DEADLINE,
            40,
            "nothing: a pod that has failed does not run again",
            None,
        ),
        id="a deadline that was exceeded",
    ),
    pytest.param(
        {"phase": "Failed", "reason": "Evicted", "message": "the node was low on memory"},
        [(40, "PhaseChanged", {})],
        ("Evicted", "the node was low on memory", 40, "nothing: a pod that has failed does not run again", None),
        id="an eviction",
    ),
    pytest.param(
        {"phase": "Failed", "state": {"terminated": ENDED}},
        [],
        (
            "Error",
            "container main ended with exit code 3",
            10,
            "nothing: a pod that is over does not run again",
            None,
        ),
        id="a container that failed for good",
    ),
    pytest.param(
        {"state": waiting("ContainerCreating"), "phase": "Pending"},
        [(3, "FailedSync", {"message": "error determining status: no answer"})],
        ("FailedSync", "error determining status: no answer", 3, "try again after a back-off", None),
        id="a sync that fails",
    ),
    pytest.param(
        {"state": RUNNING, "spec": {"readinessGates": [{"conditionType": "example.com/x"}]}},
        [(60, "Started", MAIN)],
        (
            "ReadinessGatesNotReady",
            'the readiness gate "example.com/x" of the pod is not True',
            None,
            "the controller that sets that condition",
            None,
        ),
        id="a readiness gate",
    ),
    pytest.param(
        {"state": RUNNING, "is_ready": True},
        [
            (70, "HostPortHeld", {"message": "an earlier one"}),
            (60, "CreateSandbox", {}),
            (59, "HostPortHeld", {"message": "host port 80/TCP is held by nginx (pid 7) of the host too"}),
            (58, "SandboxCreated", {}),
            (57, "Started", MAIN),
        ],
        (
            "HostPortHeld",
            "host port 80/TCP is held by nginx (pid 7) of the host too",
            59,
            "nothing by itself: end that process, or give one of them another port",
            None,
        ),
        id="a port of the host that a process holds too",
    ),
    pytest.param(
        {"phase": "Failed", "reason": "NodePorts", "message": "Pod was rejected: no free ports"},
        [
            (5, "NodePorts", {"measurements": {"why": "host port 80/TCP is held by pod default/web", "hostPort": 80}}),
            (4, "PhaseChanged", {}),
        ],
        (
            "NodePorts",
            "host port 80/TCP is held by pod default/web (Pod was rejected: no free ports)",
            5,
            "nothing: a pod that has failed does not run again",
            None,
        ),
        id="a port of the host that another pod holds",
    ),
    pytest.param(
        {"phase": "Pending"},
        [(1, "PodAdded", {"message": "source file has a new pod", "next": "admit and start it"})],
        ("PodAdded", "source file has a new pod", 1, "admit and start it", None),
        id="a pod that has just come",
    ),
]


@pytest.fixture
def story(recorded, ago):
    """Records as a story; `next_in` and `since_ago` are seconds from now."""

    def build(records):
        made = []
        for seconds, decision, given in records:
            fields = dict(given)
            if "next_in" in fields:
                fields["next_at"] = ago(-fields.pop("next_in"))
            if "since_ago" in fields:
                fields["since"] = ago(fields.pop("since_ago"))
            made.append(recorded(seconds, decision, **fields))
        return build_timeline(made)

    return build


@pytest.mark.parametrize(("pod", "records", "expected"), CASES)
def test_the_cause(build_pod, story, now, ago, pod, records, expected):
    found = diagnose(build_pod(**pod), story(records), now=now)
    first = found.reasons[0]
    word, message, since, following, next_in = expected
    assert (first.word, first.message, first.next) == (word, message, following)
    assert first.since == (None if since is None else ago(since))
    assert first.next_at == (None if next_in is None else ago(-next_in))
    assert found.summary == ""
    assert len(found.reasons) == 1


@pytest.mark.parametrize(
    ("pod", "records", "summary"),
    [
        pytest.param(
            {"state": RUNNING, "is_ready": True},
            [],
            "nothing is wrong: every container is ready since 11:00:00 UTC",
            id="a pod that runs",
        ),
        pytest.param(
            {"state": {"terminated": {"exitCode": 0}}, "phase": "Succeeded"},
            [],
            "nothing is wrong: every container has ended with success",
            id="a pod that has done its work",
        ),
        pytest.param(
            {"state": RUNNING, "is_ready": True, "container": {"livenessProbe": {"periodSeconds": 1}}},
            [(30, "Started", MAIN), (20, "Unhealthy", {**MAIN, "measurements": PROBE})],
            "nothing is wrong: every container is ready since 11:00:00 UTC",
            id="a probe that failed once, long ago",
        ),
        pytest.param(
            {"state": RUNNING, "is_ready": True},
            [(30, "NetworkNotReady", {"message": "no"}), (20, "FailedSync", {"message": "no"})],
            "nothing is wrong: every container is ready since 11:00:00 UTC",
            id="troubles that are over",
        ),
        pytest.param(
            {"state": RUNNING, "is_ready": True},
            [(30, "RuntimeNotAnswering", MAIN), (20, "RuntimeAnswered", MAIN)],
            "nothing is wrong: every container is ready since 11:00:00 UTC",
            id="an answer that was late",
        ),
        pytest.param(
            {"state": RUNNING, "is_ready": True},
            [(30, "RuntimeNotAnswering", MAIN), (20, "PodAdded", {})],
            "nothing is wrong: every container is ready since 11:00:00 UTC",
            id="a call of an previous run of the agent",
        ),
        pytest.param(
            {"state": RUNNING, "is_ready": True},
            [(30, "ManifestRejected", {"message": "no"}), (20, "ManifestSettled", {})],
            "nothing is wrong: every container is ready since 11:00:00 UTC",
            id="a manifest that was corrected",
        ),
    ],
)
def test_nothing_is_wrong(build_pod, story, now, pod, records, summary):
    found = diagnose(build_pod(**pod), story(records), now=now)
    assert (found.summary, found.reasons) == (summary, ())


def test_a_pod_that_is_well_again_says_what_was_wrong(build_pod, story, now):
    pod = build_pod(state=RUNNING, last={"terminated": ENDED}, restarts=2, is_ready=True)
    records = [
        (70, "Started", MAIN),
        (20, "Unhealthy", {**MAIN, "message": "Liveness probe failed: 404", "measurements": PROBE}),
        (19, "Killing", {**MAIN, "measurements": {"probe": "liveness"}}),
        (5, "Started", MAIN),
    ]
    found = diagnose(pod, story(records), now=now)
    assert found.summary.startswith("nothing is wrong")
    [reason] = found.reasons
    assert (reason.kind, reason.word, reason.next_at) == (ReasonKind.PAST, "Unhealthy", None)
    assert "Liveness probe failed: 404" in reason.message


def test_the_node_goes_first(build_pod, story, now, ago):
    found = diagnose(
        build_pod(state=waiting("ContainerCreating")),
        story([(3, "CreateSandbox", {})]),
        node=NodeTroubles(errors=("container runtime is down",), since=ago(40)),
        now=now,
    )
    assert [reason.word for reason in found.reasons] == ["RuntimeNotReady", "CreateSandbox"]
    assert found.reasons[0].message.endswith("is not well, and nothing new is begun: container runtime is down")
    assert found.reasons[0].since == ago(40)


def test_a_manifest_that_was_refused_is_reported_beside_the_pod_that_runs_on(build_pod, story, now):
    records = [(60, "Started", MAIN), (5, "ManifestRejected", {"message": "a.yaml: bad"})]
    found = diagnose(build_pod(state=RUNNING, is_ready=True), story(records), now=now)
    assert [(reason.word, reason.message) for reason in found.reasons] == [("ManifestRejected", "a.yaml: bad")]


@pytest.mark.parametrize(
    ("records", "said"),
    [
        pytest.param(
            [(9, "PreStopHook", {**MAIN, "measurements": {"graceSeconds": 60}})],
            ": the pod is to stop (changed), and the preStop hook of container main has not ended (60 s of grace)",
            id="one that has a hook",
        ),
        pytest.param([], "", id="one that nothing is recorded of"),
    ],
)
def test_a_pod_that_waits_for_an_earlier_one_of_its_name(build_pod, story, now, records, said):
    kills = [(10, "Terminate", {"message": "changed"}), (9.5, "Killing", MAIN)] if records else []
    past = story([(50, "PodAdded", {}), *kills, *records, (1, "PodAdded", {"uid": "u2"})])
    pod = build_pod(phase="Pending", metadata={"uid": "u2"})
    found = diagnose(pod, past, earlier=build_pod(**LEAVING), now=now)
    prefix = "an earlier pod of this name has not stopped yet, and this one waits for it"
    assert found.reasons[0].message == prefix + said
    assert found.reasons[0].kind is ReasonKind.TROUBLE


@pytest.mark.parametrize(
    ("records", "phase", "said"),
    [
        pytest.param(
            [
                (60, "PhaseChanged", {"measurements": {"phase": "Running"}}),
                (50, "Exited", {**MAIN, "message": "it ended with exit code 4", "measurements": {"exitCode": 4}}),
                (49, "PhaseChanged", {"measurements": {"phase": "Failed"}}),
                (48, "Terminate", {"message": "it is over"}),
                (10, "PodRemoved", {"message": "source file no longer has the pod"}),
                (9, "Removed", {}),
            ],
            "Failed",
            [("PodRemoved", "source file no longer has the pod"), ("Exited", "it ended with exit code 4")],
            id="one that failed and was removed",
        ),
        pytest.param(
            [
                (60, "Exited", {**MAIN, "message": "it ended", "measurements": {"exitCode": 0}}),
                (10, "Terminate", {"message": "no source has the pod any more"}),
            ],
            "",
            [("Terminate", "no source has the pod any more")],
            id="one whose container ended well",
        ),
        pytest.param(
            [(60, "BackOff", MAIN), (50, "Ready", {}), (10, "PodRemoved", {"message": "gone"})],
            "",
            [("PodRemoved", "gone")],
            id="one that was well again before",
        ),
        pytest.param(
            [(10, "ManifestRejected", {"uid": "", "message": "a.yaml: bad"})],
            "",
            [("ManifestRejected", "a.yaml: bad")],
            id="one that never was, for its manifest is wrong",
        ),
        pytest.param(
            [(10, "Ready", {})],
            "",
            [("Gone", "no source has the pod, and the agent does not run it")],
            id="one that went while no agent ran",
        ),
    ],
)
def test_a_pod_that_only_the_journal_remembers(story, now, records, phase, said):
    found = diagnose(None, story(records), now=now)
    assert found.state == PodState(phase=phase, known=False)
    assert [(reason.word, reason.message) for reason in found.reasons] == said


def test_the_state_in_numbers(build_pod, story, now):
    pod = build_pod(
        state=RUNNING,
        is_ready=True,
        restarts=2,
        init={"setup": {"terminated": {"exitCode": 0}}, "proxy": RUNNING},
        spec={"initContainers": [{"name": "setup"}, {"name": "proxy", "restartPolicy": "Always"}]},
        **LEAVING,
    )
    assert diagnose(pod, story([]), now=now).state == PodState(
        phase="Running", ready=True, containers_ready=1, containers=2, restarts=2, terminating=True
    )
