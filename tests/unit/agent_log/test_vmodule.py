"""Verbosity by module: klog's patterns, and upstream's file names for klet's modules."""

import ast
import logging
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

import klet
from klet.agent_log.vmodule import UPSTREAM_FILES, ModuleFilter, VModuleRule, compile_pattern
from klet.model.verbosity import REQUESTS, level_of


@pytest.mark.parametrize(
    ("pattern", "name", "matches"),
    [
        pytest.param("pleg", "pleg/pleg", True, id="the last part of a name"),
        pytest.param("pleg", "pleg/cache", False, id="not the package alone"),
        pytest.param("ple", "pleg/pleg", False, id="a name is compared as a whole"),
        pytest.param("leg", "pleg/pleg", False, id="and not from somewhere in it"),
        pytest.param("p*", "pleg/pleg", True, id="a star"),
        pytest.param("*", "pleg/pleg", True, id="a star alone"),
        pytest.param("***g", "pleg/pleg", True, id="stars in a row"),
        pytest.param("pl?g", "pleg/pleg", True, id="a question mark is one character"),
        pytest.param("ple?g", "pleg/pleg", False, id="and not none"),
        pytest.param("pleg/*", "pleg/cache", True, id="a path pattern"),
        pytest.param("pleg/*", "runtime/kill/killer", False, id="of another package"),
        pytest.param("runtime/*", "runtime/kill/killer", False, id="a star crosses no slash"),
        pytest.param("runtime/*/*", "runtime/kill/killer", True, id="as many parts as the pattern has"),
        pytest.param("kill/killer", "runtime/kill/killer", True, id="the last parts of a path"),
        pytest.param("[lm]*", "sync/loop", True, id="a set"),
        pytest.param("[^l]*", "sync/loop", False, id="a set of others"),
        pytest.param("[a-m]oop", "sync/loop", True, id="a range"),
        pytest.param("[m-a]oop", "sync/loop", False, id="a range that runs backwards holds nothing"),
        pytest.param("\\l\\o\\o\\p", "sync/loop", True, id="escaped characters mean themselves"),
        pytest.param("lo[\\o]p", "sync/loop", True, id="also in a set"),
        pytest.param("pod.sync", "sync/pod_sync", False, id="a dot is a dot"),
        pytest.param("loop\n", "sync/loop", False, id="a line end is not nothing"),
        pytest.param("loop[", "sync/loop", False, id="a bracket that is never closed matches nothing"),
        pytest.param("loop[]", "sync/loop", False, id="nor does an empty set"),
        pytest.param("[-a]oop", "sync/loop", False, id="nor a range without a beginning"),
        pytest.param("[a-]oop", "sync/loop", False, id="nor one without an end"),
        pytest.param("loop\\", "sync/loop", False, id="nor a pattern that ends in an escape"),
        pytest.param("[\\", "sync/loop", False, id="also within a set"),
    ],
)
def test_patterns(pattern, name, matches):
    assert (compile_pattern(pattern).match(name) is not None) is matches


def passes(filter_, module, verbosity):
    return filter_.filter(logging.LogRecord(module, level_of(verbosity), "", 1, "Looked", (), None))


@pytest.mark.parametrize(
    ("rules", "module", "shown"),
    [
        pytest.param([], "klet.pleg.pleg", 2, id="without a pattern the verbosity of all"),
        pytest.param([("pleg", 4)], "klet.pleg.pleg", 4, id="a module of its own verbosity"),
        pytest.param([("pleg", 4)], "klet.sync.loop", 2, id="others keep that of all"),
        pytest.param([("pleg", 1)], "klet.pleg.pleg", 2, id="a pattern only adds lines"),
        pytest.param([("p*", 3), ("pleg", 6)], "klet.pleg.pleg", 3, id="the first match decides"),
        pytest.param([("pleg", 0), ("p*", 5)], "klet.pleg.pleg", 5, id="a pattern with 0 is as if it were not there"),
        pytest.param([("generic", 5)], "klet.pleg.pleg", 5, id="upstream's file name of the PLEG"),
        pytest.param([("kuberuntime_*", 5)], "klet.runtime.sandboxes", 5, id="upstream's file names of the runtime"),
        pytest.param([("prober", 4)], "klet.probes", 4, id="a package that decides, by upstream's file name"),
        pytest.param([("round_trippers", 6)], "klet.kube.transport", 6, id="upstream's file name of the API client"),
        pytest.param([("transport", 6)], "klet.kube.transport", 6, id="our own name of it"),
        pytest.param([("*", 10)], "klet.pleg.pleg", 10, id="everything"),
    ],
)
def test_the_highest_level_that_a_module_shows(rules, module, shown):
    filter_ = ModuleFilter(2, [VModuleRule(*rule) for rule in rules])
    for _ in range(2):  # the second time from memory
        assert [verbosity for verbosity in range(11) if passes(filter_, module, verbosity)] == [*range(shown + 1)]


def test_errors_pass_whatever_the_verbosity():
    record = logging.LogRecord("klet.pleg.pleg", logging.ERROR, "", 1, "Broken", (), None)
    assert ModuleFilter(0, [VModuleRule("x", 1)]).filter(record)


def test_loggers_are_as_open_as_the_most_verbose_module():
    assert ModuleFilter(2).highest == 2
    assert ModuleFilter(2, [VModuleRule("x", 7), VModuleRule("y", 3)]).highest == 7
    assert level_of(7) < REQUESTS


def test_upstreams_file_names_stand_for_modules_that_exist():
    modules = {module for modules in UPSTREAM_FILES.values() for module in modules.split()}
    assert [module for module in modules if find_spec(f"klet.{module.replace('/', '.')}") is None] == []


def find_deciders() -> Iterator[str]:
    """Every name under which the source records decisions."""
    for path in Path(klet.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.keyword(arg="decider", value=ast.Constant(value=str(name))):
                    yield name
                case (
                    ast.Assign(targets=[ast.Name(id="DECIDER")], value=ast.Constant(value=str(name)))
                    | ast.AnnAssign(target=ast.Name(id="DECIDER"), value=ast.Constant(value=str(name)))
                ):
                    yield name


def test_who_records_a_decision_is_a_module_that_a_pattern_can_name():
    deciders = {*find_deciders()}
    assert len(deciders) > 30
    assert [name for name in deciders if find_spec(f"klet.{name}") is None] == []
