import pytest

from klet.aio.threads import Threads


@pytest.fixture
def threads():
    pool = Threads(limit=2)
    yield pool
    pool.close()
