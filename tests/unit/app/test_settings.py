"""What the parts get of the configuration."""

from pathlib import Path

import pytest

from klet.app.settings import choose_legacy_logs


@pytest.mark.parametrize(
    ("logs", "expected"),
    [
        pytest.param("/var/log/pods", "/var/log/containers", id="where upstream has it"),
        pytest.param("/tmp/node/logs", "/tmp/node/containers", id="beside the logs of a node that has them elsewhere"),
    ],
)
def test_links_to_logs(logs, expected):
    assert choose_legacy_logs(Path(logs)) == Path(expected)
