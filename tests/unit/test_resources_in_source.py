"""What a pod has been given stands on the allocation board: nobody who limits, starts or reports pods reads the spec.

A resize changes the spec first, and what the pod has only when the node decides so. A part that read the resources of
the spec would act too early. mypy cannot see that, so it is looked for here, in the syntax of every module.
"""

import ast
from itertools import chain
from pathlib import Path

import pytest

import klet

SOURCE = Path(klet.__file__).parent
MODULES = sorted(path for path in SOURCE.rglob("*.py") if not path.name.endswith("_pb2.py"))
SPEC_READERS = (
    "admission/declared_features.py",  # compares two specs of a pod, and gives it nothing
    "api/",  # defaulting and validation, and the QoS class, which no change of resources may alter
    "app/",  # composes: its settings and ports have attributes of that name
    "model/allocation.py",  # makes a value of what a spec asks for
    "testing/",  # makes pods, and is the runtime's side of the CRI
)
DECIDERS = ("model/allocation.py", "allocation/", "sync/admission.py")
"""Where it is decided what of a spec a pod is given."""
OTHER_RESOURCES = frozenset(
    {
        ("admission/resource_fit.py", "status"),  # of a container, as it was reported
        ("allocation/admitted.py", "status"),
        ("allocation/book.py", "record"),  # of a container, as the runtime shows it
        ("cli/fit.py", "answer"),  # what a pod requests and what there is, in words
        ("journal/container_reasons.py", "status"),
        ("objectcache/tokens.py", "found"),  # the kinds of an API group
        ("runtime/config/container_config.py", "settings"),  # the node's rules
        ("runtime/config/sandbox_config.py", "settings"),
        ("runtime/creation.py", "linux"),  # of a configuration that is made
        ("runtime/crash_backoff.py", "known"),  # of a delay that was restored
        ("runtime/reader.py", "container"),  # a message of the CRI
        ("simulation/node.py", "containers"),  # what the node has for pods
        ("status/generate.py", "inputs"),  # what the board knows
        ("status/containers.py", "previous"),
        ("volumes/expansion_plan.py", "storage"),  # of a claim
    }
)
"""What has an attribute of that name and is no spec, by module and by the name that it goes by there."""
SPEC_SUMS = frozenset({"aggregate_container_requests", "aggregate_container_limits", "compute_qos_class"})
FROM_SPEC = frozenset({"desired_allocation", "compute_admitted"})


def name_of(node: ast.AST) -> str:
    """The last name of an expression: `spec` of `pod.spec`."""
    match node:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
        case _:
            return ""


def find_reads(module: str, tree: ast.AST) -> list[str]:
    """The lines that take resources, or overhead, from what may be a spec."""
    return [
        f"{module}:{node.lineno}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and (
            (node.attr == "resources" and (module, name_of(node.value)) not in OTHER_RESOURCES)
            or (node.attr == "overhead" and name_of(node.value) == "spec")
        )
    ]


def find_names(module: str, tree: ast.AST, names: frozenset[str]) -> list[str]:
    return [f"{module}:{node.lineno}" for node in ast.walk(tree) if name_of(node) in names]


@pytest.fixture(scope="module")
def trees():
    return {path.relative_to(SOURCE).as_posix(): ast.parse(path.read_text()) for path in MODULES}


def test_nobody_reads_the_resources_of_a_spec(trees):
    found = [find_reads(module, tree) for module, tree in trees.items() if not module.startswith(SPEC_READERS)]
    assert list(chain.from_iterable(found)) == []


def test_nobody_sums_up_a_spec(trees):
    """Except for the QoS class of a pod that no API server has classified: its first spec decides that."""
    readers = (*SPEC_READERS, "model/qos.py")
    found = [find_names(module, tree, SPEC_SUMS) for module, tree in trees.items() if not module.startswith(readers)]
    assert list(chain.from_iterable(found)) == []


def test_only_admission_decides_what_a_pod_is_given(trees):
    found = [find_names(module, tree, FROM_SPEC) for module, tree in trees.items() if not module.startswith(DECIDERS)]
    assert list(chain.from_iterable(found)) == []


def test_what_is_allowed_is_needed(trees):
    """An entry that nothing needs would hide a mistake one day."""
    for module, name in OTHER_RESOURCES:
        nodes = [node for node in ast.walk(trees[module]) if isinstance(node, ast.Attribute)]
        assert any(node.attr == "resources" and name_of(node.value) == name for node in nodes), (module, name)


@pytest.mark.parametrize(
    ("line", "is_found"),
    [
        pytest.param("container.resources.requests", True, id="of a container"),
        pytest.param("pod.spec.resources", True, id="of the pod as a whole"),
        pytest.param("pod.spec.containers[0].resources.limits", True, id="of the first container"),
        pytest.param("[each.resources for each in pod.spec.init_containers]", True, id="of each container"),
        pytest.param("pod.spec.overhead.get('cpu')", True, id="overhead"),
        pytest.param("allocation.of(container.name).requests", False, id="what a container was given"),
        pytest.param("allocation.overhead", False, id="what the pod was given for its sandbox"),
        pytest.param("resources.limits", False, id="a value that was handed over"),
    ],
)
def test_the_search(line, is_found):
    assert bool(find_reads("runtime/module.py", ast.parse(line))) is is_found
