from datetime import timedelta

from klet.testing.conformance.progress import SpecProgress

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


def test_specs_are_counted_as_they_end():
    progress = SpecProgress()
    said = [failed for line in OUTPUT.splitlines(keepends=True) if (failed := progress.read(line))]
    assert said == ["[sig-node] Pods should run [NodeConformance]", "[sig-node] Pods should stop"]
    assert progress.failed == said
    assert (progress.total, progress.passed, progress.done) == (4, 2, 4)
    assert progress.describe(timedelta(seconds=75)) == "4 of 4 done, 2 failed, 1:15 min"


def test_before_the_suite_says_how_many_there_are():
    assert SpecProgress().describe(timedelta()) == "0 of ? done, 0 failed, 0:00 min"
