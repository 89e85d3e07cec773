"""Every place of the code that removes, replaces or empties files is in the table of `klet.testing.removals`.

The table names the test that mounts a filesystem with marked files there, or says why none can be lost.
"""

import ast
from pathlib import Path

import pytest

import klet
from klet.testing.removals import REMOVALS

ROOT = Path(klet.__file__).parent
NOT_THE_AGENT = ("testing", "simulation", "wire")
"""Fakes and tools for tests."""
PRIMITIVES = frozenset({
    "unlink", "rmdir", "rmtree", "removedirs", "rename", "renames", "truncate", "ftruncate", "O_TRUNC",
    "TemporaryDirectory", "NamedTemporaryFile", "mkdtemp", "write_text", "write_bytes",
})  # fmt: skip
OF_OS = frozenset({"remove", "replace"})
"""Words that mean something else for lists and strings."""
OURS = frozenset({
    "remove_entry", "remove_tree", "remove_file", "remove_content", "remove_below", "unlink_below", "write_in_place",
    "scratch_directory", "cleanup_mount_point", "remove_volume", "remove_empty_volume", "remove_marker",
    "remove_orphan", "remove_empty_below",
})  # fmt: skip
PROGRAMS = frozenset({"rm", "rmdir", "shred", "find", "rsync"})


class Finder(ast.NodeVisitor):
    def __init__(self):
        self.names = []
        self.found = set()

    def visit_FunctionDef(self, node):
        self.names.append(node.name)
        self.generic_visit(node)
        self.names.pop()

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815 - the name that ast looks for
    visit_ClassDef = visit_FunctionDef  # noqa: N815 - the name that ast looks for

    def visit_Attribute(self, node):
        if node.attr in PRIMITIVES | OURS or (node.attr in OF_OS and is_os(node.value)):
            self.note()
        self.generic_visit(node)

    def visit_Name(self, node):
        if isinstance(node.ctx, ast.Load) and node.id in OURS | {"mkdtemp", "rmtree"}:
            self.note()

    def visit_Call(self, node):
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        # `path.replace(other)`: strings are given two words, and values keywords.
        if name == "replace" and isinstance(node.func, ast.Attribute) and len(node.args) == 1 and not node.keywords:
            self.note()
        if name in {"open", "fdopen"} and any("w" in mode for mode in modes(node)):
            self.note()
        self.generic_visit(node)

    def visit_List(self, node):
        first = node.elts[0] if node.elts else None
        if isinstance(first, ast.Constant) and first.value in PROGRAMS:
            self.note()
        self.generic_visit(node)

    def note(self):
        self.found.add(".".join(self.names))


def is_os(node):
    return isinstance(node, ast.Name) and node.id in {"os", "shutil"}


def modes(node):
    given = [*node.args[:2], *(keyword.value for keyword in node.keywords if keyword.arg == "mode")]
    return [word.value for word in given if isinstance(word, ast.Constant) and is_mode(word.value)]


def is_mode(value):
    return isinstance(value, str) and 0 < len(value) <= 3 and set(value) <= set("rwxabt+")


def removals_in(source):
    finder = Finder()
    finder.visit(ast.parse(source))
    return finder.found


def removals():
    found = set()
    for path in sorted(ROOT.rglob("*.py")):
        module = path.relative_to(ROOT)
        if module.parts[0] not in NOT_THE_AGENT:
            found |= {f"{module}:{name}" for name in removals_in(path.read_text())}
    return found


def test_every_removal_is_in_the_table():
    missing = sorted(removals() - REMOVALS.keys())
    assert not missing, f"name the test of each, or say why nothing is lost, in klet/testing/removals.py: {missing}"


def test_the_table_has_no_others():
    assert not sorted(REMOVALS.keys() - removals())


@pytest.mark.parametrize(
    "source",
    [
        "def f(): os.unlink(x)",
        "def f(): path.unlink(missing_ok=True)",
        "def f(): os.remove(x)",
        "def f(): shutil.rmtree(x)",
        "def f(): path.replace(other)",
        "def f(): os.open(p, os.O_WRONLY | os.O_TRUNC)",
        "def f(): open(p, 'wb')",
        "def f(): threads.run(remove_below, root, name)",
        "def f(): run(['rm', '-rf', path])",
        "def f(): tempfile.TemporaryDirectory()",
    ],
)
def test_a_removal_is_found(source):
    assert removals_in(source) == {"f"}


@pytest.mark.parametrize(
    "source", ["def f(): names.remove(x)", "def f(): text.replace(a, b)", "def f(): replace(pod, spec=x)", "open(p)"]
)
def test_others_are_not_found(source):
    assert not removals_in(source)
