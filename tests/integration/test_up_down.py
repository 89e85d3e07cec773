"""`./klet up` and `klet down` as a user runs them: pods on a private containerd, and nothing left afterwards."""

import contextlib
import gzip
import json
import os
import random
import shutil
import signal
import ssl
import subprocess
import threading
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path

import pytest

from klet.cli.node.node import find_node, locked
from klet.cli.node.paths import node_names
from klet.host.containerd_probe import has_capability
from klet.host.cpulist import parse_cpu_list
from klet.host.images import ImageConfig, build_image, file
from klet.host.mounts import list_mounts
from klet.host.procfs import CAP_SYS_RESOURCE
from klet.testing.containerd import has_mixed_controllers, why_impossible
from klet.testing.held_registry import HeldRegistry, make_image

ROOT = Path(__file__).parents[2]
KLET = ROOT / "klet"
HELLO = (ROOT / "examples/hello.yaml").read_text()
pytestmark = [
    pytest.mark.root,
    pytest.mark.containerd,
    pytest.mark.skipif(bool(why_impossible()), reason=why_impossible()),
]


OTHER_TESTS = ("klet-test", "/klet-bench-", "/klet-conformance/", "/klet-race-", "/klet-containerd/", "klt")
"""Marks of what other tests of this machine make for themselves."""


@dataclass(frozen=True)
class Snapshot:
    """What a node could leave on a machine."""

    mounts: frozenset[str]
    """Network namespaces are among them: without a process, only a mount keeps one."""
    cgroups: frozenset[str]
    interfaces: frozenset[str]
    rules: frozenset[str]
    files: frozenset[str]
    switches: frozenset[str]

    def __sub__(self, other):
        differences = {name: had - getattr(other, name) for name, had in vars(self).items()}
        return {name: left for name, left in differences.items() if left}


def snapshot(state):
    network = node_names(state).network
    switches = [Path("/proc/sys/net", name) for name in ("ipv4/ip_forward", "ipv6/conf/all/forwarding")]
    return Snapshot(
        mounts=_ours(mount.mount_point for mount in list_mounts()),
        cgroups=_ours(root for root, _, _ in os.walk("/sys/fs/cgroup")),
        interfaces=_ours(_interfaces()),
        rules=_ours([*_rules("iptables-save"), *_rules("ip6tables-save")]),
        files=frozenset(path for path in _files("/run", "/var/lib/cni") if network in path)
        | frozenset(str(path) for path in Path("/run").glob("klet*")),
        switches=_ours(f"{switch}={switch.read_text()}" for switch in switches),
    )


def _ours(names):
    return frozenset(name for name in names if not any(mark in name for mark in OTHER_TESTS))


def _interfaces():
    for entry in Path("/sys/class/net").iterdir():
        with contextlib.suppress(OSError):
            master = entry / "master"
            yield f"{entry.name} of {master.resolve().name}" if master.exists() else entry.name


def _rules(program):
    text = subprocess.run([program], capture_output=True, text=True, check=True).stdout
    # Built-in chains and packet counters come and go with the tables that looking at them makes.
    return [f"{program} {line}" for line in text.splitlines() if line.startswith(("-A", ":CNI"))]


def _files(*places):
    for place in places:
        for root, directories, files in os.walk(place):
            yield from (f"{root}/{name}" for name in (*directories, *files))


def processes_of(state):
    """Processes that name the node's directory, or are in its cgroup."""
    marks = (str(state), node_names(state).cgroup)
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                reported = (entry / "cmdline").read_text() + (entry / "cgroup").read_text()
                if any(mark in reported for mark in marks):
                    yield int(entry.name), reported


class UserNode:
    """A node in a directory of its own, driven through the launcher."""

    def __init__(self, directory):
        self.state = directory / "state"
        self.file = directory / "pods.yaml"

    def start(self, *arguments, **more):
        return subprocess.Popen(
            [str(KLET), *arguments, "--state-dir", str(self.state)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd="/",
            **more,
        )

    def run(self, *arguments, text="", expect=0, capture_errors=False):
        with self.start(*arguments) as process:
            output, errors = process.communicate(text, timeout=120)
        assert process.returncode == expect, f"{arguments} ended with {process.returncode}:\n{errors}\n{output}"
        return errors if expect or capture_errors else output

    def up(self, *arguments, **more):
        return self.run("up", "--detach", "--no-install", *arguments, **more)

    def down(self, *arguments):
        return self.run("down", *arguments)

    def apply(self, text, *arguments, **more):
        self.file.write_text(text)
        return self.up(str(self.file), *arguments, **more)

    def pods(self):
        return {pod["metadata"]["name"]: pod for pod in json.loads(self.run("ps", "-o", "json"))["items"]}

    def pid(self, name):
        return int((self.state / "run/pids" / name).read_text().split()[0])


@pytest.fixture
def node(request):
    """A node that is taken down whatever the test did; afterwards the machine is as before."""
    # Not pytest's directory: the paths of sockets are limited.
    directory = Path(f"/tmp/klet-it-{os.getpid()}-{abs(hash(request.node.name)) % 10000}")
    directory.mkdir()
    node = UserNode(directory)
    before = snapshot(node.state)
    try:
        yield node
    finally:
        node.down("--purge")
        left_files = [str(path) for path in directory.rglob("*") if path != node.file]
        shutil.rmtree(directory)
    assert left_files == []
    assert dict(processes_of(node.state)) == {}
    assert _left_for_good(node.state, before) == {}


def _left_for_good(state, before):
    """What is new and stays; other tests on the machine also make and remove things meanwhile."""
    deadline = time.monotonic() + 20
    left = snapshot(state) - before
    while left and time.monotonic() < deadline:
        time.sleep(0.5)
        now = snapshot(state) - before
        left = {name: stays for name, was in left.items() if (stays := was & now.get(name, frozenset()))}
    return left


def name_of(pod):
    return f"{pod}-{os.uname().nodename.lower()}"


def test_a_pod_runs_is_shown_is_replaced_and_leaves_nothing(node):
    node.apply(HELLO)
    (pod,) = node.pods().values()
    assert pod["metadata"]["name"] == name_of("hello")
    assert pod["status"]["phase"] == "Running"
    assert pod["status"]["podIP"]
    assert {"type": "Ready", "status": "True"}.items() <= _condition(pod, "Ready").items()
    assert "1/1" in node.run("ps")
    assert "hello from" in node.run("logs", "hello")
    assert "hello from" in node.run("logs", name_of("hello"), "--tail", "1", "--timestamps")
    story = node.run("explain", "pod/hello")
    assert "Started" in story
    assert "nothing is wrong: every container is ready" in story
    # The same again changes nothing; an edit replaces the pod.
    node.up(str(node.file))
    assert [pod["metadata"]["uid"]] == [same["metadata"]["uid"] for same in node.pods().values()]
    node.apply(HELLO.replace("hello from", "good day from"))
    (other,) = node.pods().values()
    assert other["metadata"]["uid"] != pod["metadata"]["uid"]
    assert "good day from" in node.run("logs", "hello")


def _condition(pod, kind):
    return next(condition for condition in pod["status"]["conditions"] if condition["type"] == kind)


def test_all_examples_at_once(node):
    report = json.loads(node.up(str(ROOT / "examples"), "-o", "json", "--timeout", "90s"))
    assert {pod["name"]: pod["result"] for pod in report["pods"]}.keys() == {"hello", "init", "job", "two", "web"}
    assert {pod["result"] for pod in report["pods"]} <= {"Ready", "Succeeded"}
    assert urllib.request.urlopen("http://127.0.0.1:8080/", timeout=5).read() == b"served by klet\n"
    assert node.run("logs", "job", "--since", "1h").endswith("done\n")
    assert "started after" in node.run("logs", "init")
    assert "looking around" in node.run("logs", "init", "-c", "first")


def test_only_the_owner_may_use_the_kubelet_api(node):
    node.apply(HELLO)
    pki, record = node.state / "pki", json.loads((node.state / "node.json").read_text())
    stranger = ssl.create_default_context(cafile=pki / "kubelet.crt")
    stranger.check_hostname = False  # the certificate is for the name of the node
    path = f"https://127.0.0.1:{record['port']}/pods"
    with pytest.raises(urllib.error.HTTPError, match="401") as refused:
        urllib.request.urlopen(path, timeout=5, context=stranger)
    refused.value.close()
    owner = ssl.create_default_context(cafile=pki / "kubelet.crt")
    owner.check_hostname = False
    owner.load_cert_chain(pki / "owner.crt", pki / "owner.key")
    with urllib.request.urlopen(path, timeout=5, context=owner) as answer:
        assert [pod["metadata"]["name"] for pod in json.load(answer)["items"]] == [name_of("hello")]
    health = f"http://127.0.0.1:{record['healthz_port']}/healthz"
    assert urllib.request.urlopen(health, timeout=5).read() == b"ok"
    assert pki.stat().st_mode & 0o077 == 0


def test_the_example_of_another_runtime(node):
    if not shutil.which("crun"):
        pytest.skip("no crun: apt-get install crun")
    refused = has_mixed_controllers()
    story = node.up(str(ROOT / "examples/runtimes"), "--timeout", "5s" if refused else "60s", expect=int(refused))
    if refused:
        # crun was asked, and does not want this machine: it has controllers in both versions of cgroups.
        assert "cgroups in hybrid mode not supported, drop all controllers from cgroupv2" in story
        return
    # crun notes the status of its containers in a file that runc does not have.
    (quick,) = node.pods()[name_of("quick")]["status"]["containerStatuses"]
    container = quick["containerID"].removeprefix("containerd://")
    assert (node.state / "run/runc/k8s.io" / container / "status").exists()


def test_bad_documents_are_named_and_do_not_stop_good_ones(node):
    bad = "---\na: b: c\n---\napiVersion: v1\nkind: Pod\nmetadata: {name: bad}\n"
    bad += "spec: {containers: [{name: a}, {name: a}]}\n"
    errors = node.apply(HELLO.replace("spec:", "spec:\n  hostnam: x", 1) + bad, expect=1)
    assert f"error: {node.file}: document 2: " in errors
    assert f'error: {node.file}: document 3: spec.containers[1].name: Duplicate value: "a"' in errors
    assert f"warning: {node.file}: document 1: spec.hostnam: unknown field, did you mean 'hostname'?" in errors
    assert list(node.pods()) == [name_of("hello")]
    # A file that cannot be read as a whole takes nothing away.
    node.apply("nonsense", expect=1)
    assert list(node.pods()) == [name_of("hello")]
    # Strictly, the unknown field is an error too.
    assert "spec.hostnam: unknown field" in node.apply(
        HELLO.replace("spec:", "spec:\n  hostnam: x", 1), "--strict", expect=1
    )


def test_a_pod_that_never_gets_ready_gives_the_reason(node):
    crash = "apiVersion: v1\nkind: Pod\nmetadata: {name: crash}\nspec:\n  restartPolicy: Never\n  containers:\n"
    crash += "  - {name: main, image: 'klet.local/busybox:1', command: [sh, -c, 'echo trouble; sleep 0.4; exit 3']}\n"
    errors = node.run("up", "--detach", "-", text=crash, expect=1)
    assert 'error: crash: failed: container "main" ended with exit code 3' in errors
    assert node.run("logs", "crash") == "trouble\n"
    missing = crash.replace("busybox:1", "no-such-image:1").replace("{name: crash}", "{name: missing}")
    errors = node.run("up", "--detach", "--timeout", "3s", "-", text=missing, expect=1)
    assert 'error: missing: not ready after 3s: container "main" waits: ' in errors
    # Standard input is one file too: what it no longer holds is gone.
    assert list(node.pods()) == [name_of("missing")]
    mount = "volumeMounts: [{name: data, mountPath: /data}], command"
    unmounted = crash.replace("{name: crash}", "{name: unmounted}").replace("command", mount)
    unmounted += "  volumes: [{name: data, hostPath: {path: /no/such/place, type: Directory}}]\n"
    errors = node.run("up", "--detach", "--timeout", "3s", "-", text=unmounted, expect=1)
    assert 'error: unmounted: not ready after 3s: FailedMount: volume "data" cannot be set up: ' in errors


@pytest.mark.parametrize(
    "killed",
    [
        pytest.param(("agent",), id="the agent"),
        pytest.param(("containerd",), id="containerd"),
        pytest.param(("supervisor", "containerd", "agent"), id="everything"),
    ],
)
def test_down_works_after_a_kill(node, killed):
    node.apply(HELLO)
    for name in killed:
        os.kill(node.pid(name), signal.SIGKILL)
    node.down()
    assert dict(processes_of(node.state)) == {}


def test_daemons_that_were_killed_come_back_and_the_pod_never_notices(node):
    node.apply(HELLO)
    (before,) = node.pods().values()
    for name in ("agent", "containerd"):
        os.kill(node.pid(name), signal.SIGKILL)
    node.up(str(node.file))
    (after,) = node.pods().values()
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["status"]["containerStatuses"][0]["restartCount"] == 0
    assert (
        after["status"]["containerStatuses"][0]["containerID"]
        == before["status"]["containerStatuses"][0]["containerID"]
    )


def test_ctrl_c_is_down(node):
    node.file.write_text(HELLO)
    # The user's terminal sends it to the whole foreground group; the daemons are not in it.
    with node.start("up", "--no-install", "--watch", str(node.file), start_new_session=True) as process:
        _read_until(process, "Ctrl-C takes it down")
        node.file.write_text(HELLO.replace("name: hello\nspec", "name: second\nspec"))
        _read_until(process, "second: Ready")
        os.killpg(process.pid, signal.SIGINT)
        process.communicate(timeout=60)
    assert process.returncode == 0
    assert dict(processes_of(node.state)) == {}


def test_a_follower_notices_that_the_node_is_taken_down_elsewhere(node):
    node.file.write_text(HELLO)
    with node.start("up", "--no-install", str(node.file)) as process:
        _read_until(process, "Ctrl-C takes it down")
        node.down()
        _, errors = process.communicate(timeout=60)
    assert errors.splitlines()[-1] == "The node was taken down by another command."
    assert process.returncode == 0


def test_ctrl_c_while_the_node_starts_takes_it_down_and_is_no_success(node):
    with node.start("up", "--no-install", start_new_session=True) as process:
        _read_until(process, "Packages")
        os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert ": interrupted (" in errors
    assert "failed" not in errors
    assert dict(processes_of(node.state)) == {}


def _read_until(process, text):
    """Read the progress up to a line; a command that never says it is ended after a while."""
    watchdog = threading.Timer(60, process.kill)
    watchdog.start()
    try:
        for line in process.stderr:
            if text in line:
                return
    finally:
        watchdog.cancel()
    pytest.fail(f"the output ended without {text!r}")


def test_two_commands_at_once_and_commands_without_a_node_are_refused_clearly(node):
    assert "no agent answers" in node.run("ps", expect=1)
    assert (
        "There is no node"
        in subprocess.run(
            [str(KLET), "down", "--state-dir", str(node.state)], capture_output=True, text=True, check=True
        ).stderr
    )
    node.state.mkdir()
    with locked(find_node(node.state)):
        assert "another klet command is at work" in node.up(expect=1)
    node.apply(HELLO)
    assert "there is no pod 'x'" in node.run("logs", "x", expect=1)
    assert "has no container 'x'; it has: hello" in node.run("logs", "hello", "-c", "x", expect=1)


def test_two_nodes_share_a_machine(node):
    node.apply(HELLO)
    other = UserNode(node.state.parent / "other")
    other.state.parent.mkdir()
    try:
        other.apply(HELLO.replace("hello from", "greetings from"))
        assert _addresses(node).isdisjoint(_addresses(other))
        other.down("--purge")
    finally:
        other.down("--purge")
        shutil.rmtree(other.state.parent)
    assert len(node.pods()) == 1
    assert "hello from" in node.run("logs", "hello")


def _addresses(node):
    return {pod["status"]["podIP"] for pod in node.pods().values()}


MIB = 1 << 20


def busybox_layer():
    return [file("bin/busybox", Path(shutil.which("busybox")).read_bytes(), 0o755)]


def pod_of(image, name):
    container = f"{{name: main, image: '{image}', command: [/bin/busybox, sleep, '1000000']}}"
    head = f"apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\n"
    return f"{head}spec:\n  terminationGracePeriodSeconds: 1\n  containers:\n  - {container}\n"


def test_a_pull_is_shown_while_it_lasts(node):
    noise = [file("noise", random.Random("a pull that is shown").randbytes(8 * MIB))]
    image = make_image("team/app", layers=[busybox_layer(), noise])
    total = sum(len(blob) for blob in image.blobs.values())
    at_hold = total - image.layers[1][1] + 4 * MIB
    registry = HeldRegistry([image])
    registry.hold(image.layers[1][0], after=4 * MIB)
    node.up()
    with registry.serve_in_thread() as release:
        node.file.write_text(pod_of(f"{registry.address}/team/app:1", "app"))
        with node.start("up", "--detach", "--no-install", str(node.file)) as process:
            shown = _until(lambda: node.run("ps"), lambda text: f"(pulling {100 * at_hold // total}%" in text)
            assert f"ContainerCreating (pulling {100 * at_hold // total}%" in shown
            [why] = json.loads(node.run("explain", "pod/app", "-o", "json"))["why"]
            assert (why["reason"], why["kind"]) == ("Pulling", "progress")
            assert why["measurements"]["fetchedBytes"] == at_hold
            assert why["measurements"]["totalBytes"] == total
            assert " MiB of " in why["message"]
            release()
            _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
    assert "pulling" not in node.run("ps")


def test_a_mirror_serves_a_registry_that_cannot_be_reached(node):
    image = make_image("team/app", layers=[busybox_layer()])
    registry = HeldRegistry([image])
    node.up()
    hosts = node.state / "etc/certs.d/registry.test/hosts.toml"
    with registry.serve_in_thread():
        hosts.parent.mkdir()
        hosts.write_text(f'server = "https://registry.test"\n[host."http://{registry.address}"]\n')
        # The mirror itself, on the loopback, needs no file.
        second = pod_of(f"{registry.address}/team/app:1", "second")
        node.apply(pod_of("registry.test/team/app:1", "first") + "---\n" + second)
    assert {pod["status"]["phase"] for pod in node.pods().values()} == {"Running"}


def test_images_are_loaded_shown_and_removed(node, tmp_path):
    archive, spare = tmp_path / "app.tar", tmp_path / "spare.tar.gz"
    archive.write_bytes(build_image(name="klet.test/app:1", layers=[busybox_layer()], config=ImageConfig()))
    spare.write_bytes(gzip.compress(build_image(name="klet.test/spare:1", layers=[[]], config=ImageConfig())))
    node.up()
    assert "klet.test/app:1 (" in node.run("image", "load", str(archive), capture_errors=True)
    with open(spare, "rb") as stdin:
        command = [str(KLET), "image", "import", "-", "--state-dir", str(node.state)]
        done = subprocess.run(command, stdin=stdin, check=False, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    # As skopeo names images: the CRI would not find it under the name in the archive.
    bare = tmp_path / "bare.tar"
    bare.write_bytes(build_image(name="bare:1", layers=[[file("bare", b"1")]], config=ImageConfig()))
    assert "docker.io/library/bare:1 (" in node.run("image", "load", str(bare), capture_errors=True)
    assert "Removed docker.io/library/bare:1" in node.run("image", "rm", "bare:1", capture_errors=True)
    damaged = bytearray(archive.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    archive.write_bytes(damaged)
    assert "is damaged: its content has another digest" in node.run("image", "load", str(archive), expect=1)
    assert "No such file or directory" in node.run("image", "load", str(archive) + "x", expect=1)
    node.apply(pod_of("klet.test/app:1", "app").replace("command:", "imagePullPolicy: Never, command:"))
    images = _images(node)
    assert [user["pod"] for user in images["klet.test/app:1"]["users"]] == [name_of("app")]
    assert images["klet.test/app:1"]["unusedSince"] is None
    assert images["klet.test/spare:1"]["users"] == []
    assert images["klet.test/spare:1"]["unusedSince"] is not None
    assert f"default/{name_of('app')}" in node.run("images")
    preview = json.loads(node.run("disk", "--gc-preview", "-o", "json"))
    fates = {fate["image"]["tags"][0]: fate for fate in preview["fates"]}
    assert (fates["klet.test/app:1"]["removed"], fates["klet.test/app:1"]["reason"]) == (False, "inUse")
    assert "klet.test/spare:1" in node.run("disk", "--gc-preview")
    refusal = f"klet.test/app:1 is used by default/{name_of('app')}/main"
    assert refusal in node.run("image", "rm", "klet.test/app:1", "klet.test/spare:1", expect=1)
    assert "klet.test/app:1" in _images(node)
    assert "klet.test/spare:1" not in _images(node)


def test_the_machine_is_shown(node):
    node.up()
    shown = json.loads(node.run("topology", "-o", "json"))
    cpus = [
        cpu["id"]
        for socket in shown["sockets"]
        for group in socket["groups"]
        for core in group["cores"]
        for cpu in core["cpus"]
    ]
    assert sorted(cpus) == sorted(parse_cpu_list(Path("/sys/devices/system/cpu/online").read_text()))
    assert shown["policies"] == {"cpu": "none", "memory": "None", "topology": "none", "topologyScope": "container"}
    assert all(memory["total"] >= memory["free"] >= 0 for each in shown["numaNodes"] for memory in each["memory"])
    picture = node.run("topology")
    assert picture.startswith(f"{shown['node']}: ")
    assert ".  shared: CPU" in picture
    state = json.loads((node.state / "kubelet/memory_manager_state").read_text())
    assert state == {"policyName": "None", "machineState": {}, "checksum": 4236770233}


def _images(node):
    return {tag: image for image in json.loads(node.run("images", "-o", "json"))["images"] for tag in image["tags"]}


def test_a_node_without_any_network_runs_images_that_were_loaded(node, tmp_path):
    """In a network namespace that has a loopback and nothing else: no route, no name server, no registry."""
    archive = tmp_path / "app.tar"
    archive.write_bytes(build_image(name="registry.test/team/app:1", layers=[busybox_layer()], config=ImageConfig()))
    node.file.write_text(pod_of("registry.test/team/app:1", "app"))
    state = f"--state-dir {node.state}"
    script = f"""
        set -e
        ip link set lo up
        {KLET} up --detach --no-install {state}
        {KLET} image load {archive} {state}
        {KLET} up --detach --no-install {node.file} {state}
        ip route
    """
    command = ["unshare", "--net", "sh", "-c", script]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=240, cwd="/")
    assert done.returncode == 0, done.stderr
    # The only route is that of the pods' own bridge.
    assert [line for line in done.stdout.splitlines() if node_names(node.state).bridge not in line] == []
    assert "app: Ready" in done.stderr
    [pod] = node.pods().values()
    assert pod["status"]["phase"] == "Running"


def _until(look, holds):
    deadline = time.monotonic() + 100
    while not holds(seen := look()):
        assert time.monotonic() < deadline, seen
        time.sleep(0.1)
    return seen


@pytest.mark.skipif(
    has_capability(CAP_SYS_RESOURCE), reason="only where OOM scores may not be lowered: this machine may"
)
def test_containerd_is_configured_for_scores_that_cannot_be_lowered(node):
    node.up()
    assert "restrict_oom_score_adj = true" in (node.state / "etc/containerd.toml").read_text()
