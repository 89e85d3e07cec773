from pathlib import Path

import pytest

from klet.testing.control_plane.build import build_command, make_go_mod

RELEASE = "v1.34.4"
UPSTREAM = """module k8s.io/kubernetes

go 1.25.0

require (
	go.etcd.io/etcd/client/v3 v3.6.5
	k8s.io/api v0.0.0
	k8s.io/kubelet v0.0.0
	k8s.io/utils v0.0.0-20250604170112-4c0f3b243397
)
"""


def test_the_staging_modules_are_those_of_the_same_release():
    made = make_go_mod(UPSTREAM, RELEASE)
    assert "\tk8s.io/api => k8s.io/api v0.34.4\n\tk8s.io/kubelet => k8s.io/kubelet v0.34.4\n" in made
    assert "k8s.io/utils" not in made


def test_kubernetes_is_taken_with_the_etcd_that_it_goes_with():
    made = make_go_mod(UPSTREAM, RELEASE)
    assert "\ngo 1.25.0\n" in made
    assert f"\tk8s.io/kubernetes {RELEASE}\n\tgo.etcd.io/etcd/server/v3 v3.6.5\n" in made


@pytest.mark.parametrize(
    ("name", "kind", "package"),
    [
        pytest.param("kubelet", ("build",), "k8s.io/kubernetes/cmd/kubelet", id="a command of Kubernetes"),
        pytest.param("etcd", ("build",), "go.etcd.io/etcd/server/v3", id="a program of another module"),
        pytest.param("e2e.test", ("test", "-c"), "k8s.io/kubernetes/test/e2e", id="the suite is compiled tests"),
        pytest.param("agnhost", ("build",), "k8s.io/kubernetes/test/images/agnhost", id="a program of test images"),
    ],
)
def test_build_command(name, kind, package):
    made = build_command(name, Path("/t/x"), RELEASE)
    assert made[: len(kind)] == kind
    assert made[-3:] == ("-o", "/t/x", package)
    assert f"version.gitVersion={RELEASE}" in " ".join(made)
