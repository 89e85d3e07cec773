import pytest

from klet.host.containerd_probe import has_capability
from klet.host.procfs import CAP_SYS_RESOURCE


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        pytest.param("Name:\tx\nCapEff:\t000001ffffffffff\n", True, id="all capabilities"),
        pytest.param("Name:\tx\nCapEff:\t000001fffeffffff\n", False, id="all but this one"),
        pytest.param("Name:\tx\n", False, id="a kernel that does not say"),
    ],
)
def test_has_capability(tmp_path, status, expected):
    path = tmp_path / "status"
    path.write_text(status)
    assert has_capability(CAP_SYS_RESOURCE, status=path) is expected
