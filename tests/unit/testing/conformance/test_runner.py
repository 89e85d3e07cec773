import pytest

from klet.testing.conformance.report import ReportUnreadable
from klet.testing.conformance.runner import Suite, build_command, clean_environment, read_report
from klet.testing.conformance.spec_sets import Selection


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
