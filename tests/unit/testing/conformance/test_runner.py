from datetime import timedelta

import pytest

from klet.testing.conformance.report import ReportUnreadable
from klet.testing.conformance.runner import SpecProgress, Suite, build_command, clean_environment, read_report
from klet.testing.conformance.spec_sets import Selection

OUTPUT = """\
Running Suite: Kubernetes e2e suite - /x
Will run 4 of 7137 specs
Running in parallel across 6 processes
•
------------------------------
• [FAILED] [12.345 seconds]
[sig-node] Pods [It] should run [NodeConformance] [sig-node, NodeConformance]
k8s.io/kubernetes/test/e2e/pods.go:7

  • a point in a message
------------------------------
• [3.210 seconds]
------------------------------
• [TIMEDOUT] [300.000 seconds]
[sig-node] Pods [BeforeEach] should stop
"""


def test_the_command_line(monkeypatch, tmp_path):
    monkeypatch.setenv("KLET_UPSTREAM_BIN", str(tmp_path))
    for name in ("ginkgo", "e2e.test", "kubectl"):
        (tmp_path / name).touch(mode=0o755)
    suite = Suite(
        kubeconfig=tmp_path / "admin",
        directory=tmp_path / "out",
        home=tmp_path,
        kubelet_root=tmp_path / "root",
        procs=3,
    )
    made = build_command(suite, Selection(focus=("a b", "c"), skip=("d",)))
    own, theirs = made[: made.index("--")], made[made.index("--") :]
    assert own[0] == str(tmp_path / "ginkgo")
    assert own[-1] == str(tmp_path / "e2e.test")
    assert {"--procs=3", "--focus=a b", "--focus=c", "--skip=d", f"--output-dir={tmp_path / 'out'}"} < set(own)
    assert {f"--kubeconfig={tmp_path / 'admin'}", f"--kubectl-path={tmp_path / 'kubectl'}"} < set(theirs)
    assert f"--kubelet-root-dir={tmp_path / 'root'}" in theirs


def test_nothing_leads_the_suite_elsewhere(tmp_path):
    given = {"PATH": "/bin", "KUBECONFIG": "/k", "KUBE_TEST_REPO_LIST": "x", "https_proxy": "p", "GINKGO_X": "1"}
    assert clean_environment(given, tmp_path) == {"PATH": "/bin", "HOME": str(tmp_path)}


def test_without_a_report_what_ginkgo_said_is_shown(tmp_path):
    (tmp_path / "ginkgo.log").write_text("flag provided but not defined")
    with pytest.raises(ReportUnreadable, match="ended with 2 and wrote no report; it said:\nflag provided"):
        read_report(tmp_path / "report.json", tmp_path / "ginkgo.log", 2)


def test_specs_are_counted_as_they_end():
    progress = SpecProgress()
    said = [failed for line in OUTPUT.splitlines(keepends=True) if (failed := progress.read(line))]
    assert said == ["[sig-node] Pods should run [NodeConformance]", "[sig-node] Pods should stop"]
    assert progress.failed == said
    assert (progress.total, progress.passed, progress.done) == (4, 2, 4)
    assert progress.describe(timedelta(seconds=75)) == "4 of 4 done, 2 failed, 1:15 min"


def test_before_the_suite_says_how_many_there_are():
    assert SpecProgress().describe(timedelta()) == "0 of ? done, 0 failed, 0:00 min"
