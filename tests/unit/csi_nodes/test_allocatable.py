"""How often a driver is asked for the number of volumes."""

from datetime import timedelta

import pytest

from klet.api.storage import CSIDriver, CSIDriverSpec
from klet.csi_nodes.allocatable import find_period


@pytest.mark.parametrize(
    ("driver", "expected"),
    [
        pytest.param(None, None, id="no object"),
        pytest.param(CSIDriver(), None, id="no period"),
        pytest.param(
            CSIDriver(spec=CSIDriverSpec(node_allocatable_update_period_seconds=60)),
            timedelta(minutes=1),
            id="a minute",
        ),
        pytest.param(CSIDriver(spec=CSIDriverSpec(node_allocatable_update_period_seconds=0)), None, id="zero"),
        pytest.param(
            CSIDriver(spec=CSIDriverSpec(node_allocatable_update_period_seconds=2**62)),
            timedelta(days=3650),
            id="longer than time can be",
        ),
    ],
)
def test_the_period(driver, expected):
    assert find_period(driver) == expected
