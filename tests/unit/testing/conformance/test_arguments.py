import pytest

from klet.testing.conformance.__main__ import choose_drivers, main, make_request, parse
from klet.testing.conformance.spec_sets import DRA, NODE, RESIZE, SETS, Selection
from klet.version import KUBERNETES_VERSION


def test_the_default_is_klet_with_the_node_set(monkeypatch, tmp_path):
    monkeypatch.setenv("KLET_CACHE", str(tmp_path))
    made = make_request(parse([]))
    assert (made.kubelet, made.selection, made.procs, made.repeat) == ("klet", NODE.selection, 6, 1)
    assert made.records.parts[-2:] == ("conformance", KUBERNETES_VERSION)
    assert made.results == tmp_path / "upstream" / KUBERNETES_VERSION / "conformance" / "klet" / "node"


def test_focus_and_skip_may_be_repeated():
    made = make_request(parse(["--focus=a", "--focus=b", "--skip=", "--kubelet=upstream", "-o", "json"]))
    assert (made.kubelet, made.selection, made.as_json) == ("upstream", Selection(("a", "b"), ()), True)


def test_a_set_has_its_own_results_and_klet_skips_what_it_waits_for():
    made = make_request(parse(["--set=resize"]))
    assert (made.spec_set, made.results.name) == ("resize", "resize")
    assert RESIZE.awaited[0].pattern in made.selection.skip


@pytest.mark.parametrize("more", [["--awaited"], ["--kubelet=upstream"], ["--focus=guaranteed"]], ids=str)
def test_specs_of_features_to_come_run_when_asked_for(more):
    assert RESIZE.awaited[0].pattern not in make_request(parse(["--set=resize", *more])).selection.skip


def test_the_sets_are_described(capsys):
    assert main(["--list-sets"]) == 0
    assert [line.partition(":")[0] for line in capsys.readouterr().out.splitlines()] == list(SETS)


def test_an_empty_cache_is_said_and_nothing_is_built(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("KLET_CACHE", str(tmp_path))
    monkeypatch.delenv("KLET_UPSTREAM_BIN", raising=False)
    assert main(["--set=dozen", "--cached"]) == 0
    said = capsys.readouterr().err
    assert "skipped: no kube-apiserver" in said
    assert "userland of the images in the cache; scripts/conformance without --cached builds what is missing" in said
    assert not list(tmp_path.iterdir())


def test_without_the_programs_of_drivers_their_specs_are_left_out(monkeypatch, tmp_path, capsys):
    program = tmp_path / "e2e.test"
    program.write_text("#!/bin/sh\necho registry.k8s.io/sig-storage/hostpathplugin:v1.17.0\n")
    program.chmod(0o755)
    monkeypatch.setenv("KLET_UPSTREAM_BIN", str(tmp_path))
    request, images, shells = choose_drivers(make_request(parse(["--set=dra", "--kubelet=upstream"])), DRA)
    assert (request.selection.skip[-1], images) == (DRA.drivers, ())
    assert shells == ("registry.k8s.io/sig-storage/hostpathplugin:v1.17.0",)
    assert f"no hostpathplugin in {tmp_path}" in capsys.readouterr().err
    (tmp_path / "hostpathplugin").write_text("")
    (tmp_path / "hostpathplugin").chmod(0o755)
    request, images, shells = choose_drivers(make_request(parse(["--set=dra", "--kubelet=upstream"])), DRA)
    assert (DRA.drivers in request.selection.skip, shells) == (False, ())
    assert images == ("registry.k8s.io/sig-storage/hostpathplugin:v1.17.0",)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param(["--focus", "("], "no regular expression", id="a pattern that is none"),
        pytest.param(["--procs", "0"], "less than 1", id="no process"),
        pytest.param(["--repeat", "x"], "'x' is not a whole number", id="no number"),
        pytest.param(["--kubelet", "other"], "invalid choice", id="an unknown agent"),
        pytest.param(["--record", "--focus=a"], "--record is for a whole set", id="a record of a part"),
        pytest.param(["--record", "--skip="], "--record is for a whole set", id="a record of more"),
        pytest.param(["--record", "--set=dozen"], "--record is for a whole set", id="a set without records"),
        pytest.param(["--set", "other"], "invalid choice", id="an unknown set"),
        pytest.param(["--only-failed", "--focus", "a"], "--only-failed chooses", id="two choices of specs"),
    ],
)
def test_wrong_arguments_end_with_2_and_the_reason(arguments, message, capsys):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert message in capsys.readouterr().err
