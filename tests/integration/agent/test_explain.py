"""`klet explain` on real containerd: for each way in which a pod goes wrong, the first screen names the cause.

All pods live on one node at the same time; each is explained when it has gone wrong.
"""

import asyncio
import json
import os
import re
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

from klet.cri.client import connect
from klet.testing.containerd import REQUEST_TIMEOUT, run_containerd
from klet.testing.shims import shim_of, stopped

LINES, COLUMNS = 24, 80
FOREVER = "trap 'exit 0' TERM; while true; do sleep 1000 & wait $!; done"
SERVE = "httpd -f -p 8080 -h /tmp"
CLOCK = r"\d\d:\d\d:\d\d UTC"


@dataclass(frozen=True)
class Reported:
    """What one command printed."""

    code: int
    output: str
    errors: str

    @property
    def screen(self) -> str:
        """What a user sees first, on a small terminal."""
        lines = self.output.splitlines()[:LINES]
        assert max(map(len, lines)) <= COLUMNS, self.output
        return "\n".join(lines)

    @property
    def words(self) -> str:
        """The same without line breaks."""
        return " ".join(self.screen.split())


async def klet(*arguments: str) -> Reported:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "klet", *arguments),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={name: value for name, value in os.environ.items() if name != "COLUMNS"} | {"TZ": "UTC"},
    )
    output, errors = await process.communicate()
    return Reported(process.returncode or 0, output.decode(), errors.decode())


def probing(kind: str, path: str) -> dict:
    return {kind: {"httpGet": {"path": path, "port": 8080}, "periodSeconds": 1, "failureThreshold": 2}}


def pods(manifest) -> dict[str, dict]:
    """Every pod, and what is wrong with it."""
    found = {
        "image": manifest("image", main="never runs"),
        "command": manifest("command", main="never runs"),
        "crash": manifest("crash", main="echo boom; exit 3"),
        "liveness": manifest("liveness", main=SERVE),
        "readiness": manifest("readiness", main=SERVE),
        "init": manifest("init", init={"setup": "exit 7"}, main=FOREVER),
        "prestop": manifest("prestop", main=FOREVER, spec={"terminationGracePeriodSeconds": 300}),
        "hung": manifest("hung", main=FOREVER, spec={"terminationGracePeriodSeconds": 1}),
        "deadline": manifest("deadline", main=FOREVER, spec={"activeDeadlineSeconds": 4}),
        "well": manifest("well", main=FOREVER),
        "host": manifest("host", main=FOREVER, spec={"hostNetwork": True}),
        "gone": manifest("gone", main="exit 4", spec={"restartPolicy": "Never"}),
    }
    main = {name: pod["spec"]["containers"][0] for name, pod in found.items()}
    main["image"]["image"] = "localhost:1/nothing:1"
    main["command"]["command"] = ["/no/such/program"]
    main["liveness"] |= probing("livenessProbe", "/healthz")
    main["readiness"] |= probing("readinessProbe", "/ready")
    main["prestop"]["lifecycle"] = {"preStop": {"exec": {"command": ["sleep", "1000"]}}}
    return found


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def reported(tmp_path_factory, containerd, new_node, manifest):
    """What `klet explain` says of each pod, by the pod's name in its manifest."""
    async with (
        run_containerd(containerd.directory.with_name(f"{os.getpid()}-explain")) as own,
        connect(runtime_endpoint=own.endpoint, timeout=REQUEST_TIMEOUT) as cri,
    ):
        node = new_node(tmp_path_factory.mktemp("explain"), own)
        for name, pod in pods(manifest).items():
            node.write(name, pod)
        async with node.run() as agent:
            yield await explain_all(node, agent, cri, own, manifest)


async def explain_all(node, agent, cri, containerd, manifest) -> dict[str, Reported]:
    """Explain each pod as soon as it has gone wrong, so that it is seen in that state."""
    reported: dict[str, Reported] = {}

    async def explain(name: str, *options: str) -> Reported:
        return await klet("explain", f"pod/{name}", *options, "--state-dir", str(node.root))

    async def when(name: str, *decisions: str) -> None:
        await agent.recorded(name, *decisions)
        reported[name] = await explain(name)

    async def crash() -> None:
        await when("crash", "BackOff")
        reported["json"] = await explain("crash", "-o", "json")
        reported["all"] = await explain("crash", "--all")
        reported["never"] = await explain("crahs")
        reported["node"] = await klet("explain", "node", "-o", "json", "--state-dir", str(node.root))

    async def gone() -> None:
        await agent.recorded("gone", "Finished")
        node.remove("gone")
        await when("gone", "Removed")

    async def network() -> None:
        for name in pods(manifest):
            await agent.recorded(name, "SandboxCreated")
        await gone()  # what is removed needs the network's plugin too
        with broken_network(containerd):
            node.write("network", manifest("network", main=FOREVER))
            await when("network", "FailedCreatePodSandBox")

    async def shown() -> None:
        await agent.recorded("host", "Ready")
        reported["ps"] = await klet("ps", "--state-dir", str(node.root))

    async def hung() -> None:
        await agent.recorded("hung", "Ready")
        with stopped(await shim_of(cri, (await agent.pod("hung")).metadata.uid, containerd)):
            node.remove("hung")
            await when("hung", "RuntimeNotAnswering")

    async def prestop() -> None:
        await agent.recorded("prestop", "Ready")
        node.remove("prestop")
        await when("prestop", "PreStopHook")

    async with asyncio.TaskGroup() as group:
        for case in (crash(), network(), shown(), hung(), prestop()):
            group.create_task(case)
        for name in ("command", "init", "image", "liveness"):
            group.create_task(when(name, "BackOff"))
        group.create_task(when("readiness", "Unhealthy", "Unhealthy"))
        group.create_task(when("deadline", "DeadlineExceeded", "Finished"))
        group.create_task(when("well", "Ready"))
    return reported


@contextmanager
def broken_network(containerd):
    file: Path = containerd.settings.cni_conf_dir / "10-klet.conflist"
    well = file.read_text()
    network = json.loads(well)
    network["plugins"][0]["type"] = "no-such-plugin"
    file.write_text(json.dumps(network))
    try:
        yield
    finally:
        file.write_text(well)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        pytest.param(
            "image",
            r"default/image-node: Pending, not ready \(0 of 1\) "
            r'Why ImagePullBackOff: the image "localhost:1/nothing:1" of container main cannot be pulled: .*'
            rf"connection refused Since {CLOCK} \(\d+s ago\) Next pull it again at {CLOCK} \(in \d+s\)",
            id="an image that is not there",
        ),
        pytest.param(
            "command",
            r"Why RunContainerError: container main cannot be started: exec: \"/no/such/program\": "
            r"stat /no/such/program: no such file or directory, \d restarts? so far "
            rf"Since {CLOCK} \(\d+s ago\) Next start it again at {CLOCK} \(in \d+s\)",
            id="a command that is not there",
        ),
        pytest.param(
            "crash",
            r"default/crash-node: Running, not ready \(0 of 1\), \d restarts? "
            r"Why CrashLoopBackOff: container main ended with exit code 3, \d restarts? so far "
            rf"Since {CLOCK} \(\d+s ago\) Next start it again at {CLOCK} \(in \d+s\)",
            id="a crash loop, with its next try",
        ),
        pytest.param(
            "liveness",
            r"Why Unhealthy: container main was killed: Liveness probe failed: HTTP probe failed with statuscode: 404 "
            r"\(2 in a row, 2 are too many\), \d restarts so far "
            rf"Since {CLOCK} \(\d+s ago\) Next start it again at {CLOCK} \(in \d+s\)",
            id="a liveness kill, with the probe's last answer",
        ),
        pytest.param(
            "readiness",
            r"default/readiness-node: Running, not ready \(0 of 1\) "
            r"Why Unhealthy: container main is not ready: Readiness probe failed: HTTP probe failed with statuscode: "
            rf"404 \(.*\) Since {CLOCK} \(\d+s ago\) "
            rf"Next it is ready when the probe succeeds; asked every 1 s(, again at {CLOCK})?",
            id="a readiness probe that fails",
        ),
        pytest.param(
            "init",
            r"default/init-node: Pending, not ready \(0 of 1\), \d restarts? "
            r"Why CrashLoopBackOff: init container setup ended with exit code 7, \d restarts? so far "
            rf"Since {CLOCK} \(\d+s ago\) Next start it again at {CLOCK} \(in \d+s\)",
            id="an init container that fails",
        ),
        pytest.param(
            "prestop",
            r"default/prestop-node: Running, terminating, .* "
            r"Why PreStopHook: the pod is to stop \(source file no longer has the pod\), and the preStop hook \(exec\) "
            rf"of container main has not ended \(300 s of grace\) Since {CLOCK} \(\d+s ago\) "
            r"Next the container gets its stop signal when the hook ends, "
            rf"or when its grace is over at {CLOCK} \(in .*\)",
            id="a preStop hook that does not end",
        ),
        pytest.param(
            "hung",
            r"default/hung-node: Running, terminating, .* "
            r"Why RuntimeNotAnswering: the runtime does not answer StopContainer for this pod; its shim may hang "
            rf"Since {CLOCK} \(\d\ds ago\) Next wait for the answer; no other pod waits for this one; "
            rf"the call is given up at {CLOCK} \(in .*\)",
            id="a runtime that hangs",
        ),
        pytest.param(
            "network",
            r"default/network-node: Pending, not ready \(0 of 1\) "
            r"Why FailedCreatePodSandBox: the pod's network cannot be set up: plugin type=\"no-such-plugin\" failed "
            r"\(add\): failed to find plugin \"no-such-plugin\" in path .*"
            rf"Since {CLOCK} \(\d+s ago\) "
            rf"Next (try again|another try is under way since {CLOCK}|stop the sandbox of the last try, which fails)",
            id="a network that cannot be set up",
        ),
        pytest.param(
            "deadline",
            r"default/deadline-node: Failed "
            rf"Why DeadlineExceeded: the pod was active for longer than its activeDeadlineSeconds of 4 "
            rf"\(it started at {CLOCK}\), and was stopped Since {CLOCK} \(\d+s ago\) "
            r"Next nothing: a pod that has failed does not run again",
            id="a deadline that was exceeded",
        ),
        pytest.param(
            "well",
            r"default/well-node: Running, ready \(1 of 1\) "
            rf"Well nothing is wrong: every container is ready since {CLOCK}",
            id="a healthy pod",
        ),
        pytest.param(
            "gone",
            r"default/gone-node: not on this node any more, last seen Failed "
            rf"Before PodRemoved: source file no longer has the pod When {CLOCK} \(\d+s ago\) "
            rf"Before Exited: it ended with exit code 4 \(Error\) When {CLOCK}",
            id="a pod that is gone",
        ),
    ],
)
def test_the_first_screen_names_the_cause(reported, name, said):
    assert reported[name].code == 0, reported[name].errors
    assert re.search(said, reported[name].words), reported[name].output


def test_a_pod_that_never_was(reported):
    assert reported["never"].code == 1
    assert reported["never"].errors == (
        "klet: there is no pod 'crahs', and none is remembered; did you mean: default/crash?\n"
    )


def test_the_same_in_types(reported):
    document = json.loads(reported["json"].output)
    assert document["state"] | {"restarts": 1} == {
        "phase": "Running",
        "ready": False,
        "containersReady": 0,
        "containers": 1,
        "restarts": 1,
        "terminating": False,
        "known": True,
    }
    [why] = document["why"]
    assert (why["kind"], why["reason"], why["container"]) == ("trouble", "CrashLoopBackOff", "main")
    assert why["measurements"]["exitCode"] == 3
    assert why["since"] < document["now"] < why["nextAt"]


def test_the_story_is_folded_and_can_be_had_whole(reported):
    assert "MissingClusterDNS" not in reported["crash"].output
    assert "more records: klet explain --all" in reported["crash"].output
    assert "MissingClusterDNS" in reported["all"].output
    assert reported["all"].output.count("main: Created") >= 2


def test_the_node_itself(reported):
    document = json.loads(reported["node"].output)
    assert document["node"]["name"] == "node"
    assert [condition["type"] for condition in document["conditions"]] == ["Ready"]
    assert document["timeline"][0]["decision"] == "AgentStarted"


def test_a_pod_on_the_nodes_network_has_the_nodes_address(reported):
    [row] = [line.split() for line in reported["ps"].output.splitlines() if "host-node" in line]
    assert row[5] != "<none>"
