"""`klet run` as a process: what it warns of before it does anything. Its port is taken, so that it ends at once."""

import json
import socket
import subprocess
import sys

CONFIG = {
    "apiVersion": "kubelet.config.k8s.io/v1beta1",
    "kind": "KubeletConfiguration",
    "failCgroupV1": False,
    "failSwapOn": False,
    "authentication": {"webhook": {"enabled": False}, "anonymous": {"enabled": True}},
    "authorization": {"mode": "AlwaysAllow"},
    "address": "127.0.0.1",
    "healthzPort": 0,
    "protectKernelDefaults": False,
    "streamingConnectionIdleTimeout": "5h",
    "iptablesDropBit": 9,
}
DEADLINE = 60


def test_each_setting_without_effect_is_warned_of_once(tmp_path):
    config = tmp_path / "config.yaml"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        config.write_text(json.dumps({**CONFIG, "port": taken.getsockname()[1]}))
        command = [sys.executable, "-P", "-m", "klet", "run", f"--config={config}", f"--root-dir={tmp_path / 'root'}"]
        ended = subprocess.run(
            [*command, "--klet-leave-kernel-tunables"], capture_output=True, text=True, timeout=DEADLINE, check=False
        )
    lines = ended.stderr.splitlines()
    assert ended.returncode == 1
    assert "cannot listen on" in lines[-1]
    for setting in ("streamingConnectionIdleTimeout", "iptablesDropBit"):
        assert len([line for line in lines if setting in line]) == 1
    assert len([line for line in lines if "About the configuration" in line]) == 2
