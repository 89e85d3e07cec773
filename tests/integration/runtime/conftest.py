import os

import pytest


@pytest.fixture
def root():
    """Skip a test that only root can do."""
    if os.geteuid() != 0:
        pytest.skip("needs root: run the tests as root")
