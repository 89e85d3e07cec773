"""Labels, annotations and log paths, as upstream writes them."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from klet.api.container import Container, ContainerPort
from klet.api.handlers import ExecAction, Lifecycle, LifecycleHandler
from klet.model.pods import PodUID
from klet.model.runtime import ContainerOrigin
from klet.runtime import labels
from klet.testing.builders import make_container, make_pod, make_record, make_status

POD = make_pod(name="web", uid="u-1")
NAMED = {
    "io.kubernetes.pod.name": "web",
    "io.kubernetes.pod.namespace": "default",
    "io.kubernetes.pod.uid": "u-1",
}


def test_a_sandbox_has_the_labels_of_its_pod_and_klets_win():
    pod = replace(POD, metadata=replace(POD.metadata, labels={"app": "x", "io.kubernetes.pod.name": "false"}))
    assert labels.sandbox_labels(pod) == {"app": "x", **NAMED}


def test_a_container_has_no_labels_of_its_pod():
    pod = replace(POD, metadata=replace(POD.metadata, labels={"app": "x"}))
    assert labels.container_labels(pod, make_container("main")) == {**NAMED, "io.kubernetes.container.name": "main"}


def test_annotations_of_a_plain_container():
    container = replace(
        make_container("test_container", image="foo/image:v1"),
        termination_message_path="/dev/termination-log",
        termination_message_policy="File",
    )
    pod = replace(POD, spec=replace(POD.spec, termination_grace_period_seconds=None))
    assert labels.container_annotations(pod, container, restart_count=3) == {
        "io.kubernetes.container.hash": "8e45cbd0",
        "io.kubernetes.container.restartCount": "3",
        "io.kubernetes.container.terminationMessagePath": "/dev/termination-log",
        "io.kubernetes.container.terminationMessagePolicy": "File",
    }


def test_annotations_that_only_some_containers_have():
    handler = LifecycleHandler(exec=ExecAction(command=("sync",)))
    container = replace(
        make_container("c"),
        lifecycle=Lifecycle(pre_stop=handler),
        ports=(ContainerPort(container_port=80, protocol="TCP"),),
    )
    pod = replace(POD, metadata=replace(POD.metadata, deletion_grace_period_seconds=10))
    found = labels.container_annotations(pod, container, restart_count=0)
    assert found["io.kubernetes.pod.deletionGracePeriod"] == "10"
    assert found["io.kubernetes.pod.terminationGracePeriod"] == "30"
    assert found["io.kubernetes.container.preStopHandler"] == '{"exec":{"command":["sync"]}}'
    assert found["io.kubernetes.container.ports"] == '[{"containerPort":80,"protocol":"TCP"}]'


def test_a_grace_period_of_zero_is_written():
    pod = replace(POD, metadata=replace(POD.metadata, deletion_grace_period_seconds=0))
    found = labels.container_annotations(pod, make_container("c"), restart_count=0)
    assert found["io.kubernetes.pod.deletionGracePeriod"] == "0"


def test_log_paths():
    assert labels.pod_log_directory(Path("/var/log/pods"), POD) == Path("/var/log/pods/default_web_u-1")
    assert labels.container_log_path("main", 4) == "main/4.log"


@pytest.mark.parametrize(
    ("name", "length"),
    [
        pytest.param("main", len("web_default_main-abc.log"), id="a short name stays whole"),
        pytest.param("m" * 300, 255, id="the base is cut to 251 bytes"),
    ],
)
def test_name_of_the_legacy_link(name, length):
    link = labels.legacy_log_name(POD, name, "abc")
    assert link.startswith("web_default_m")
    assert link.endswith(".log")
    assert len(link) == length


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        pytest.param([], 0, id="no logs"),
        pytest.param(["0.log"], 1, id="one log"),
        pytest.param(["2.log", "10.log", "9.log"], 11, id="numbers, not texts, are compared"),
        pytest.param(["3.log.20300101-000000", "2.log.gz"], 4, id="rotated logs count"),
        pytest.param(["log", "x5.log", "5.txt", "5.log2", "-1.log"], 0, id="other names do not count"),
    ],
)
def test_restart_count_from_logs(names, expected):
    assert labels.restart_count_from_logs(names) == expected


def test_a_container_remembers_what_is_needed_to_stop_it():
    hook = LifecycleHandler(exec=ExecAction(command=("sh", "-c", "bye")))
    port = ContainerPort(name="web", container_port=80)
    container = replace(make_container("main"), lifecycle=Lifecycle(pre_stop=hook), ports=(port,))
    pod = make_pod(container, name="web", uid="u-1")
    pod = replace(pod, metadata=replace(pod.metadata, deletion_grace_period_seconds=7))
    origin = labels.read_origin(labels.container_annotations(pod, container, restart_count=0))
    assert origin == ContainerOrigin(termination_grace=30, deletion_grace=7, pre_stop=hook, ports=(port,))
    record = replace(make_record(pod, "main"), origin=origin)
    restored = labels.restore_pod(record, uid=PodUID("u-1"), name="web", namespace="default")
    assert restored.metadata.deletion_grace_period_seconds == 7
    assert restored.spec.termination_grace_period_seconds == 30
    assert restored.spec.containers == (
        Container(name="main", image=container.image, ports=(port,), lifecycle=Lifecycle(pre_stop=hook)),
    )


def test_what_a_container_does_not_remember_is_not_set():
    broken = {
        "io.kubernetes.pod.deletionGracePeriod": "soon",
        "io.kubernetes.pod.terminationGracePeriod": "",
        "io.kubernetes.container.preStopHandler": "{",
        "io.kubernetes.container.ports": '"many"',
    }
    assert labels.read_origin(broken) == labels.read_origin({}) == ContainerOrigin()


def test_the_links_to_all_logs_of_a_pod():
    pod = make_pod("a", name="web", uid="u-1")
    status = make_status(pod, make_record(pod, "a"), make_record(pod, "a", restarts=1))
    assert labels.legacy_log_names(status) == ("web_default_a-a-1.log", "web_default_a-a-0.log")
