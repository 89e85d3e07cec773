from pathlib import Path

import pytest

from klet.cli.install.kubelet_form import agent_socket


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        pytest.param([], "/var/lib/kubelet/klet.sock", id="the default"),
        pytest.param(["kubelet", "--root-dir=/srv/k"], "/srv/k/klet.sock", id="another root directory"),
        pytest.param(["kubelet", "--root-dir", "/srv/k", "--v=2"], "/srv/k/klet.sock", id="the value as its own word"),
        pytest.param(["kubelet", "--klet-socket=/run/k.sock", "--root-dir=/x"], "/run/k.sock", id="another socket"),
        pytest.param(["kubelet", "--root-dir"], "/var/lib/kubelet/klet.sock", id="a flag without a value"),
    ],
)
def test_agent_socket(words, expected):
    assert agent_socket(words) == Path(expected)
