"""Half a minute of fuzzing over all targets, the same inputs each time: so many of them, however long they take.

With klet's own engine: it is on every machine, and begins at once (docs/decisions/fuzzing.md).
"""

import json
import os
import subprocess
from pathlib import Path

import pytest

from klet.testing.fuzz.targets.all import all_targets
from klet.testing.fuzz.targets.request_heads import check_connection, read_requests

FUZZ = Path(__file__).parents[2] / "scripts" / "fuzz"
EXECUTIONS = {
    "request-heads": 1500,
    "probe-answers": 1000,
    "log-lines": 2500,
    "manifests": 500,
    "checkpoints": 1000,
    "kubeconfig": 750,
    "plugin-answers": 75,
    "directory-names": 75,
}


def run_fuzz(cache, *arguments):
    environment = {**os.environ, "KLET_CACHE": str(cache)}
    return subprocess.run(
        [FUZZ, *arguments, "--engine", "own"], env=environment, capture_output=True, text=True, timeout=300, check=False
    )


def test_every_target_has_its_share():
    assert EXECUTIONS.keys() == all_targets().keys()


@pytest.mark.parametrize("target", EXECUTIONS)
def test_nothing_is_found(target, tmp_path):
    done = run_fuzz(tmp_path, target, "--seed", "1", "--executions", str(EXECUTIONS[target]), "-o", "json")
    summary = json.loads(done.stdout)
    assert summary["findings"] == [], done.stderr
    assert summary["executions"] == EXECUTIONS[target]
    assert summary["corpus"] > len(all_targets()[target].seeds()), "the inputs lead nowhere"
    assert done.returncode == 0


def test_one_seed_makes_one_sequence_of_inputs(tmp_path):
    kept = []
    for name, seed in (("a", "7"), ("b", "7"), ("c", "8")):
        run_fuzz(tmp_path / name, "checkpoints", "--seed", seed, "--executions", "400")
        kept.append({file.name for file in (tmp_path / name / "fuzz" / "checkpoints" / "corpus").iterdir()})
    assert kept[0] == kept[1] != kept[2]


def test_a_run_without_a_seed_goes_on_with_what_was_kept(tmp_path):
    first = run_fuzz(tmp_path, "log-lines", "--seed", "1", "--executions", "300", "-o", "json")
    again = run_fuzz(tmp_path, "log-lines", "--executions", "30", "-o", "json")
    assert json.loads(again.stdout)["lines"] >= 0.95 * json.loads(first.stdout)["lines"]


def test_the_name_of_a_coding_has_no_case():
    request = b"POST / HTTP/1.1\r\nHost: n\r\nTransfer-Encoding: CHUNKED\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
    assert check_connection(read_requests, request)[0] == 1


@pytest.mark.parametrize(
    "target", [b"http://", b"http://n", b"http://n?x=//y", b"HTTPS://n:1/pods?x=1", b"http:///a//b"]
)
def test_a_whole_url_is_the_same_request_for_all_readers(target):
    assert check_connection(read_requests, b"GET %s HTTP/1.1\nHost:\n\n" % target)[0] == 1
