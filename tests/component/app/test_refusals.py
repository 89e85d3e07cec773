"""`klet run` as a process with a bad setting: exit code 1, one line, and nothing made."""

import json
import subprocess
import sys

import pytest

GOOD = {
    "apiVersion": "kubelet.config.k8s.io/v1beta1",
    "kind": "KubeletConfiguration",
    "failCgroupV1": False,
    "failSwapOn": False,
    "authentication": {"webhook": {"enabled": False}, "anonymous": {"enabled": True}},
    "authorization": {"mode": "AlwaysAllow"},
}
DEADLINE = 60


@pytest.mark.parametrize(
    ("fields", "arguments", "message"),
    [
        pytest.param({"containerRuntimeEndpoint": "tcp://127.0.0.1:1"}, [], "only support unix socket endpoint",
                     id="a rule of the configuration"),
        pytest.param({}, ["--hostname-override=../x"], '--hostname-override "../x" cannot be the name of a node',
                     id="a rule of a flag"),
        pytest.param({"kubeReserved": {"memory": "1Pi"}}, [], "invalid Node Allocatable configuration.",
                     id="more than the machine has"),
        pytest.param({}, ["--node-labels=k8s.io/x="], "unknown 'kubernetes.io' or 'k8s.io' labels specified",
                     id="a message of two lines upstream"),
        pytest.param({"clusterDomain": "\x1b[31m"}, [], "clusterDomain (--cluster-domain) must be one line",
                     id="a value that a terminal would obey"),
    ],
)  # fmt: skip
def test_a_bad_setting_ends_the_agent_before_anything_starts(tmp_path, fields, arguments, message):
    config = tmp_path / "config.yaml"
    logs = str(tmp_path / "logs" / "pods")
    config.write_text(json.dumps({**GOOD, "podLogsDir": logs, **fields}))
    command = [sys.executable, "-P", "-m", "klet", "run", f"--config={config}", f"--root-dir={tmp_path / 'root'}"]
    ended = subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert ended.returncode == 1
    assert ended.stdout == ""
    (line,) = ended.stderr.splitlines()
    assert line.startswith("klet: ")
    assert message in line
    assert line.isprintable()
    assert list(tmp_path.iterdir()) == [config]


def test_an_unknown_field_is_reported_beside_the_mistake(tmp_path):
    config = tmp_path / "config.yaml"
    config.write_text(json.dumps({**GOOD, "maxPodz": 7, "containerRuntimeEndpoint": "tcp://127.0.0.1:1"}))
    command = [sys.executable, "-P", "-m", "klet", "run", f"--config={config}", f"--root-dir={tmp_path / 'root'}"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE, check=False)
    warning, mistake = ended.stderr.splitlines()
    assert warning.startswith("klet: warning: ")
    assert "maxPodz" in warning
    assert "only support unix socket endpoint" in mistake
