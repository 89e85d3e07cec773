import re
from pathlib import Path

import pytest

from klet.testing.control_plane.programs import (
    VERSION,
    ProgramMissing,
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


def test_the_programs_are_of_the_release_that_klet_reports():
    assert VERSION == KUBERNETES_VERSION


@pytest.mark.parametrize("document", ["README.md", "CONTRIBUTING.md", "docs/joining-a-cluster.md"])
def test_documents_name_no_other_patch_release(document):
    text = (ROOT / document).read_text()
    assert set(re.findall(r"\bv1\.\d+\.\d+\b", text)) <= {KUBERNETES_VERSION}
