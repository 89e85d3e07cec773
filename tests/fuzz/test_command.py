"""The command runs a finding again, in a child that it forks: these tests come before those that open gRPC."""

import argparse
import io
import json
from contextlib import contextmanager

from klet.aio.clock import SystemClock
from klet.testing.fuzz.__main__ import Session, main
from klet.testing.fuzz.corpus import RECIPE_SUFFIX, encode_recipe
from klet.testing.fuzz.mutators import amplify_bytes, change_bytes, choose_of
from klet.testing.fuzz.target import FuzzTarget, Limits, Recipe


def run(*arguments):
    out, err = io.StringIO(), io.StringIO()
    return main(arguments, out=out, err=err), out.getvalue(), err.getvalue()


def quadratic():
    @contextmanager
    def opened():
        yield lambda data: len([1 for byte in data for _ in data if byte == 256])

    return FuzzTarget(
        name="quadratic",
        summary="",
        seeds=lambda: [b"seed"],
        mutate=choose_of((change_bytes,)),
        amplify=amplify_bytes(),
        opened=opened,
        limits=Limits(largest=8 << 10),
    )


def test_a_file_is_run_again(tmp_path):
    file = tmp_path / "input"
    file.write_bytes(b"no log\n")
    assert run("log-lines", "--replay", str(file)) == (0, "log-lines: nothing is wrong with it\n", "")
    assert run("log-lines", "--replay", str(tmp_path / "none"))[0] == 2
    code, text, _ = run("log-lines", "--replay", str(file), "-o", "json")
    assert (code, json.loads(text)) == (0, {"target": "log-lines", "file": str(file), "findings": []})


def test_what_a_file_shows_is_said_in_either_form(tmp_path):
    """A reader of nothing: its cost is that of its input squared."""
    file = tmp_path / f"input{RECIPE_SUFFIX}"
    file.write_bytes(encode_recipe(Recipe(b"", b"a")))
    session = {"replay": str(file)}
    for output in ("text", "json"):
        out = io.StringIO()
        options = argparse.Namespace(**session, output=output)
        found = Session(options=options, clock=SystemClock(), out=out, err=io.StringIO()).replay(quadratic())
        assert found == 1
        text = out.getvalue() if output == "text" else json.loads(out.getvalue())["findings"][0]["flaw"]
        assert "grow" in text or "ran more than" in text
