import re
from pathlib import Path

import pytest

from klet.testing.control_plane.programs import (
    VERSION,
    ProgramMissing,
    describe_program,
    find_program,
    missing_programs,
    program_directory,
)
from klet.version import KUBERNETES_VERSION

ROOT = Path(__file__).parents[4]


def install(directory, *names):
    directory.mkdir(parents=True, exist_ok=True)
    for name in names:
        (directory / name).touch(mode=0o755)


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        pytest.param({"XDG_CACHE_HOME": "/c"}, f"/c/klet/upstream/{VERSION}/bin", id="the cache of the user"),
        pytest.param({"KLET_CACHE": "/k"}, f"/k/upstream/{VERSION}/bin", id="the cache of klet"),
        pytest.param(
            {"KLET_CACHE": "/k", "KLET_KUBERNETES_VERSION": "v1.34.4"}, "/k/upstream/v1.34.4/bin", id="another release"
        ),
        pytest.param({"KLET_CACHE": "/k", "KLET_UPSTREAM_BIN": "/ready"}, "/ready", id="ready programs win"),
    ],
)
def test_program_directory(environment, expected):
    assert str(program_directory(environment)) == expected


def test_what_is_missing_is_named(tmp_path):
    install(tmp_path, "kubectl")
    (tmp_path / "kubelet").touch(mode=0o644)
    environment = {"KLET_UPSTREAM_BIN": str(tmp_path)}
    assert missing_programs(("kubectl", "kubelet", "kube-apiserver"), environment) == ("kubelet", "kube-apiserver")
    assert find_program("kubectl", environment) == tmp_path / "kubectl"
    with pytest.raises(ProgramMissing, match=f"no kubelet in {tmp_path}: build it with scripts/upstream"):
        find_program("kubelet", environment)


@pytest.mark.parametrize("release", ["1.34.4", "v1.34", "v1.34.4/../..", "v2.0.0", "latest"])
def test_what_is_no_release_becomes_no_directory(release):
    with pytest.raises(ProgramMissing, match="KLET_KUBERNETES_VERSION must be a release such as v1"):
        program_directory({"KLET_CACHE": "/k", "KLET_KUBERNETES_VERSION": release})


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        pytest.param({}, "no kubectl: run scripts/upstream", id="the release that klet follows"),
        pytest.param(
            {"KLET_KUBERNETES_VERSION": "v1.34.4"},
            "no kubectl: run scripts/upstream --kubernetes-version v1.34.4 kubectl",
            id="another release",
        ),
    ],
)
def test_the_command_that_builds_a_missing_program_is_named(environment, expected):
    assert describe_program("kubectl", environment) == expected


def test_the_programs_are_of_the_release_that_klet_reports():
    assert VERSION == KUBERNETES_VERSION


@pytest.mark.parametrize("document", ["README.md", "CONTRIBUTING.md", "docs/joining-a-cluster.md"])
def test_documents_name_no_other_patch_release(document):
    text = (ROOT / document).read_text()
    assert set(re.findall(r"\bv1\.\d+\.\d+\b", text)) <= {KUBERNETES_VERSION}
