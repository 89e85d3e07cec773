"""The CSI plugin with the test driver; plain directories stand for mounts."""

import contextlib

import pytest

from klet.errors import KletError
from klet.testing.csi.backing import PlainBacking
from klet.testing.csi.bench import open_bench


@pytest.fixture
async def bench(tmp_path):
    backing = PlainBacking(root=tmp_path / "backing")
    async with open_bench(tmp_path / "root", tmp_path / "d.sock", backing) as opened:
        yield opened


@pytest.fixture
def fails():
    """Expect an error of exactly this class and with this text."""

    @contextlib.contextmanager
    def expect(kind, message):
        with pytest.raises(KletError) as caught:
            yield
        assert (type(caught.value), str(caught.value)) == (kind, message)

    return expect
