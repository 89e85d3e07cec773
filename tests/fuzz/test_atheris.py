"""The engine that libFuzzer drives: what it finds, keeps, repeats and survives, on targets with faults in them."""

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from klet.aio.clock import SystemClock
from klet.testing.fuzz.atheris_engine import AtherisFuzzer, Budget, EngineError, is_there
from klet.testing.fuzz.corpus import Corpus, NoCorpus
from klet.testing.fuzz.isolated import Guard

pytestmark = pytest.mark.skipif(not is_there(), reason="atheris is not installed: there is no wheel for this machine")

FUZZ = Path(__file__).parents[2] / "scripts" / "fuzz"
GUARD = Guard(seconds=2, memory=512 << 20)
PATIENT = Guard(seconds=60, memory=512 << 20)
"""For what takes memory: a busy machine needs seconds to give that much."""
PLANTED = """
import ctypes, os, time
from contextlib import contextmanager
from klet.testing.fuzz.mutators import amplify_bytes, change_bytes, choose_of
from klet.testing.fuzz.target import Flaw, FuzzTarget, Limits


def steps(data):
    if data[:1] == b"f":
        if data[1:2] == b"u":
            if data[2:3] == b"z":
                if data[3:4] == b"z":
                    raise Flaw("found")
    return 0


def crash(data):
    return ctypes.string_at(0) if data[:1] == b"!" else 0


def hang(data):
    return time.sleep(1000) if data[:1] == b"!" else 0


def devour(data):
    if data[:1] == b"!":
        kept = b"x" * (700 << 20)
        time.sleep(1000)
        return len(kept)
    return 0


def leave(data):
    return os._exit(3) if data[:1] == b"!" else 0


def quadratic(data):
    return len([1 for byte in data for _ in data if byte == 256])


def well(data):
    return len(data) % 3


def all_targets():
    return {run.__name__: make(run) for run in (steps, crash, hang, devour, leave, quadratic, well)}


def make(run):
    @contextmanager
    def opened():
        yield run

    return FuzzTarget(
        name=run.__name__,
        summary="",
        seeds=lambda: [b"seed"],
        mutate=choose_of((change_bytes,)),
        amplify=amplify_bytes(),
        opened=opened,
        limits=Limits(largest=8 << 10, input_size=64),
    )
"""


@pytest.fixture
def fuzz(tmp_path, monkeypatch):
    """Fuzzes one of the planted targets."""
    (tmp_path / "planted_targets.py").write_text(PLANTED)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]))
    monkeypatch.delitem(sys.modules, "planted_targets", raising=False)
    targets = importlib.import_module("planted_targets").all_targets()

    def run(name, *, executions=20_000, keeper=None, guard=GUARD, is_over=lambda progress: bool(progress.findings)):
        fuzzer = AtherisFuzzer(
            target=targets[name],
            seed=1,
            keeper=keeper or NoCorpus(),
            budget=Budget(executions=executions),
            clock=SystemClock(),
            module="planted_targets",
            guard=guard,
        )
        return fuzzer.run(is_over=is_over)

    return run


def test_edges_lead_to_what_is_behind_four_comparisons(fuzz):
    (finding,) = fuzz("steps", executions=200_000).findings
    assert (finding.flaw, finding.data) == ("found", b"fuzz")


@pytest.mark.parametrize(
    ("name", "guard", "flaw"),
    [
        ("crash", GUARD, "died of SIGSEGV"),
        ("hang", GUARD, "did not end within 2 s"),
        ("devour", PATIENT, "took more than 512 MiB of memory"),
    ],
)
def test_what_ends_the_process_is_found_made_small_and_can_be_replayed(fuzz, tmp_path, name, guard, flaw):
    corpus = Corpus(directory=tmp_path, target=name)
    (finding,) = fuzz(name, keeper=corpus, guard=guard).findings
    assert (finding.flaw, finding.data) == (flaw, b"!")
    assert corpus.save(finding).read_bytes() == b"!"


def test_code_that_ends_the_process_in_silence_is_said(fuzz):
    with pytest.raises(EngineError, match="ended with code 3"):
        fuzz("leave")


def test_cost_is_measured_afterwards(fuzz):
    progress = fuzz("quadratic", executions=500, is_over=lambda _: False)
    assert progress.measured >= 1
    assert any("grow" in finding.flaw or "ran more than" in finding.flaw for finding in progress.findings)


def test_one_seed_makes_one_sequence_of_inputs(fuzz, tmp_path):
    kept = []
    for name in ("a", "b"):
        fuzz("steps", executions=3000, keeper=Corpus(directory=tmp_path / name, target="steps"))
        kept.append(sorted(file.read_bytes() for file in (tmp_path / name / "steps" / "corpus").iterdir()))
    assert kept[0] == kept[1] != []


def test_a_run_goes_on_with_what_was_kept(fuzz, tmp_path):
    class Kept(NoCorpus):
        def load(self):
            return [b"fuzz"]

    progress = fuzz("steps", executions=50, keeper=Kept())
    assert [finding.flaw for finding in progress.findings] == ["found"]


def run_fuzz(cache, *arguments):
    environment = {**os.environ, "KLET_CACHE": str(cache)}
    return subprocess.run([FUZZ, *arguments], env=environment, capture_output=True, text=True, timeout=300, check=False)


def test_the_command_uses_it_where_it_is_there(tmp_path):
    done = run_fuzz(tmp_path, "log-lines", "--seed", "1", "--executions", "500", "-o", "json")
    summary = json.loads(done.stdout)
    assert (summary["engine"], summary["findings"]) == ("atheris", [])
    assert summary["executions"] >= 500
    assert summary["edges"] > 50
    assert summary["measured"] == 2
    assert len(list((tmp_path / "fuzz" / "log-lines" / "corpus").iterdir())) > 3
    assert done.returncode == 0, done.stderr
