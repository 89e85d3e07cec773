"""The data on upstream's settings beside what the built kubelet of the pinned release says itself."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from klet.config.errors import ConfigError
from klet.config.gates import resolve_gates
from klet.testing.control_plane.programs import (
    KUBELET,
    VERSION,
    chosen_release,
    describe_program,
    find_program,
    missing_programs,
)

UPSTREAM = json.loads((Path(__file__).parents[1] / "data" / "upstream_settings.json").read_text())
FLAG = re.compile(r"^  (?:-(\w), |    )--([\w-]+)(?: (\S+))?(?:   |$)")
DEFAULT = re.compile(r"\(default (.*)\)$")
DEPRECATED = re.compile(r" \(DEPRECATED: (.*)\)$")
NEEDED = {need for row in UPSTREAM["gates"].values() for need in row["dependencies"]}
LEFT_OUT = frozenset({"", "0", "0s", "[]", "false"})


@pytest.fixture(scope="module")
def kubelet():
    if chosen_release() != VERSION:
        pytest.skip(f"the data is of {VERSION}, and {chosen_release()} was asked for: leave out --kubernetes-version")
    if missing_programs((KUBELET,)):
        pytest.skip(describe_program(KUBELET))
    return str(find_program(KUBELET))


@pytest.fixture(scope="module")
def help_text(kubelet):
    return subprocess.run([kubelet, "--help"], check=True, capture_output=True, text=True, timeout=60).stdout


def read_flags(text):
    """The flags of a help text, and what it says of each."""
    described = {}
    for line in text.partition("\nFlags:\n")[2].splitlines():
        if match := FLAG.match(line):
            shorthand, name, kind = match.groups(default="")
            described[name] = [shorthand, kind, line[match.end() :].strip()]
        else:
            described[name][2] += f"\n{line.strip()}"
    return {name: read_flag(*parts) for name, parts in described.items()}


def read_flag(shorthand, kind, text):
    deprecated = DEPRECATED.search(text)
    text = text[: deprecated.start()] if deprecated else text
    default = DEFAULT.search(text.splitlines()[-1]) if text else None
    return {
        "shorthand": shorthand,
        "kind": kind,
        "deprecated": deprecated[1] if deprecated else "",
        "default": default[1].strip('"') if default else "",
    }


def test_the_flags_are_those_of_the_program(help_text):
    expected = {
        name: {
            "shorthand": row["shorthand"],
            "kind": row["kind"],
            "deprecated": row["deprecated"],
            "default": "" if row["default"] in LEFT_OUT else row["default"],
        }
        for name, row in UPSTREAM["flags"].items()
        if not row["hidden"]
    }
    assert read_flags(help_text) == expected


def test_the_gates_are_those_of_the_program(help_text):
    shown = re.findall(r"^ +(\w+=true\|false .*?)(?: \(DEPRECATED: .*\))?$", help_text, re.MULTILINE)
    expected = [
        f"{name}=true|false ({row['stage']} - default={str(row['default']).lower()})"
        for name, row in sorted(UPSTREAM["gates"].items())
        if row["stage"] in ("ALPHA", "BETA")
    ]
    assert shown == expected


@pytest.mark.parametrize(
    "overrides",
    [
        pytest.param({name: not row["default"]}, id=name)
        for name, row in sorted(UPSTREAM["gates"].items())
        if row["stage"] in ("GA", "DEPRECATED") or row["dependencies"] or name in NEEDED
    ],
)
def test_the_program_takes_and_refuses_the_same(kubelet, overrides):
    """Gates that the help text leaves out, and those that others depend on or that depend on others."""
    text = ",".join(f"{name}={str(value).lower()}" for name, value in overrides.items())
    # The configuration is read after the gates were set.
    command = [kubelet, f"--feature-gates={text}", "--config=/nonexistent/klet"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    _, found, refusal = done.stderr.partition("failed to set feature gates from initial flags-based config: ")
    if not found:
        assert "failed to load kubelet config file, path: /nonexistent/klet" in done.stderr
        assert resolve_gates(overrides)
        return
    with pytest.raises(ConfigError) as caught:
        resolve_gates(overrides)
    assert sorted_problems(str(caught.value)) == sorted_problems(refusal.strip().rstrip('"'))


def sorted_problems(text):
    """Upstream reports several problems in no particular order."""
    inner = text[1:-1] if text.startswith("[") else text
    return sorted(re.split(r", (?=\w+ is enabled)", inner))
