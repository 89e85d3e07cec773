"""Which tests may run beside one another where pytest-xdist has several processes."""

from pathlib import Path

import pytest

INTEGRATION = Path(__file__).parent / "integration"
VIRTUAL_MACHINE = "test_cgroups_v2.py"


def pytest_collection_modifyitems(items):
    """Tests of a module stay together, and all that use the machine itself: there is only one."""
    for item in items:
        uses_machine = item.path.is_relative_to(INTEGRATION) and item.path.name != VIRTUAL_MACHINE
        item.add_marker(pytest.mark.xdist_group("the machine" if uses_machine else str(item.path)))
