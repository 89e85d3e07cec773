"""The board of drivers."""

from klet.csi_nodes.drivers import CsiDriverBoard
from klet.model.csi import CsiVersion, RegisteredDriver


def test_a_driver_comes_and_goes():
    board = CsiDriverBoard()
    driver = RegisteredDriver(name="d", endpoint="/d", version=CsiVersion((1, 0)))
    with board.changes() as changes:
        board.put(driver)
        assert board.find("d") == driver
        assert board.names() == ("d",)
        board.remove("d")
        board.remove("d")
        assert board.find("d") is None
        assert changes.drain() == ["d", "d"]
