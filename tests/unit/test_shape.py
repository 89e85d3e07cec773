"""What ARCHITECTURE.md says of the tree and no import contract can hold.

`app/` only composes: its classes hold parts and do nothing. A role is declared once, wherever it is needed.
"""

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

import klet

SOURCE = Path(klet.__file__).parent
MODULES = sorted(path for path in SOURCE.rglob("*.py") if not path.name.endswith("_pb2.py"))
COMPOSING = sorted((SOURCE / "app").rglob("*.py"))
HOLDS_PARTS = frozenset({"dataclass", "Struct", "NamedTuple", "StrEnum", "Enum", "KletError"})


def place(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


def classes_of(tree: ast.AST) -> Iterator[ast.ClassDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef))


def names_in(node: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)} | {
        each.attr for each in ast.walk(node) if isinstance(each, ast.Attribute)
    }


def is_protocol(node: ast.ClassDef) -> bool:
    return any(ast.unparse(base).partition("[")[0] in {"Protocol", "typing.Protocol"} for base in node.bases)


def methods_of(node: ast.ClassDef) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    return [each for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]


def behaviour_of(node: ast.ClassDef) -> Iterator[str]:
    """What a class of `app/` has that a holder of parts has not."""
    if is_protocol(node):
        if methods_of(node):
            yield f"{node.name} declares a role: it belongs to who asks for it, or to model/roles.py"
        return
    named = set().union(*map(names_in, (*node.bases, *node.decorator_list)))
    if not named & HOLDS_PARTS:
        yield f"{node.name} is neither a dataclass nor a Struct"
    for method in methods_of(node):
        if "property" not in set().union(*map(names_in, method.decorator_list)):
            yield f"{node.name}.{method.name} is behaviour"


@pytest.mark.parametrize("path", COMPOSING, ids=place)
def test_app_only_composes(path):
    tree = ast.parse(path.read_text())
    assert [found for node in classes_of(tree) for found in behaviour_of(node)] == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("@dataclass(frozen=True)\nclass A:\n    part: int", [], id="a dataclass"),
        pytest.param("class A(Struct, frozen=True):\n    part: int", [], id="a struct"),
        pytest.param("@dataclass\nclass A:\n    @property\n    def b(self): ...", [], id="a property"),
        pytest.param("class A(B, C, Protocol):\n    'Both.'", [], id="two roles of one part"),
        pytest.param("class A:\n    pass", ["A is neither a dataclass nor a Struct"], id="a plain class"),
        pytest.param("@dataclass\nclass A:\n    async def run(self): ...", ["A.run is behaviour"], id="a method"),
        pytest.param(
            "class A(Protocol):\n    def get(self): ...",
            ["A declares a role: it belongs to who asks for it, or to model/roles.py"],
            id="a role",
        ),
    ],
)
def test_what_counts_as_behaviour(text, expected):
    assert [found for node in classes_of(ast.parse(text)) for found in behaviour_of(node)] == expected


def signature(method: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """A method without its body: name, arguments, result, and whether it is awaited or read like an attribute."""
    kind = "property " if method.decorator_list else "async " if isinstance(method, ast.AsyncFunctionDef) else ""
    returns = ast.unparse(method.returns) if method.returns is not None else ""
    return f"{kind}{method.name}({ast.unparse(method.args)}) -> {returns}"


def roles_in(tree: ast.AST) -> Iterator[tuple[str, frozenset[str]]]:
    """The roles that a module declares, with their methods. One that only joins others declares nothing new."""
    for node in classes_of(tree):
        if is_protocol(node) and methods_of(node):
            yield node.name, frozenset(map(signature, methods_of(node)))


def test_a_role_is_declared_once():
    declared: dict[frozenset[str], list[str]] = defaultdict(list)
    for path in MODULES:
        for name, methods in roles_in(ast.parse(path.read_text())):
            declared[methods].append(f"{place(path)}: {name}")
    assert [places for places in declared.values() if len(places) > 1] == []


def test_roles_are_the_same_by_their_methods_whatever_they_are_called():
    one = "class A(Protocol):\n    'One.'\n    async def get(self, uid: str) -> int:\n        'Get it.'\n        ..."
    other = "class B(Protocol[T]):\n    async def get(self, uid: str) -> int: ..."
    different = "class B(Protocol):\n    def get(self, uid: str) -> int: ..."
    methods = [dict(roles_in(ast.parse(text))).popitem()[1] for text in (one, other, different)]
    assert methods[0] == methods[1] != methods[2]
