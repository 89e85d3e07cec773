from pathlib import Path

import pytest

from klet.cli.checking import check_manifest
from klet.cli.manifests import read_manifests

EXAMPLES = sorted((Path(__file__).parents[3] / "examples").rglob("*.yaml"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_examples_are_without_fault(path):
    found = read_manifests(str(path), path.read_bytes(), check=check_manifest, is_strict=True)
    assert (found.errors, found.warnings) == ((), ())
    assert found.origin.pods


def read(spec):
    text = f"apiVersion: v1\nkind: Pod\nmetadata: {{name: a}}\nspec: {spec}\n"
    return read_manifests("/f.yaml", text.encode(), check=check_manifest).errors


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param(
            "{containers: [{name: a, image: i}, {name: a, image: i}]}",
            '/f.yaml: document 1: spec.containers[1].name: Duplicate value: "a"',
            id="a name twice",
        ),
        pytest.param("{containers: []}", "/f.yaml: document 1: spec.containers: Required value", id="no containers"),
        pytest.param(
            "{containers: [{name: a, image: i}], serviceAccountName: x}",
            "/f.yaml: document 1: static pods may not reference serviceaccounts",
            id="a reference to an API object",
        ),
    ],
)
def test_rules_name_file_document_and_field(spec, expected):
    assert expected in read(spec)


def test_defaults_are_applied_before_the_rules():
    assert read("{containers: [{name: a, image: i}]}") == ()
