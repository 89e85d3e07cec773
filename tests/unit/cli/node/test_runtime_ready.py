import pytest

from klet.cli.node.runtime_ready import find_plugin_error

FAILED = 'time="2030-01-01T00:00:00Z" level=warning msg="failed to load plugin {plugin}" error="{error}"\n'
FIRST = FAILED.format(plugin="io.containerd.grpc.v1.cri", error='no snapshotter \\"x\\"')
SECOND = FAILED.format(plugin="io.containerd.cri.v1.runtime", error="no space left on device")
OTHER = FAILED.format(plugin="io.containerd.snapshotter.v1.zfs", error="no zfs")
SKIPPED = 'level=info msg="skip loading plugin \\"io.containerd.grpc.v1.cri\\"..." type=io.containerd.grpc.v1\n'


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        pytest.param("", None, id="an empty log"),
        pytest.param(OTHER, None, id="another plugin"),
        pytest.param(FIRST + OTHER, 'no snapshotter "x"', id="the plugin, and another one"),
        pytest.param(FIRST + SECOND, "no space left on device", id="the newest failure, under containerd 2's name"),
        pytest.param(SKIPPED, "its configuration disables it", id="a plugin that is disabled"),
    ],
)
def test_find_plugin_error(log, expected):
    assert find_plugin_error(log) == expected
