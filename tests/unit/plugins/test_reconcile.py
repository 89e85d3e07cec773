"""What to do for sockets and registered plugins."""

from datetime import UTC, datetime

import pytest

from klet.model.plugins import PluginInfo
from klet.plugins.boards import DesiredPlugin, DesiredPlugins, RegisteredPlugin, RegisteredPlugins, SocketIdentity
from klet.plugins.reconcile import RegistryPlan, plan_registry

NOW = datetime(2030, 1, 1, tzinfo=UTC)


class NoHandler:
    """A handler of which nothing is asked."""

    def find_problem(self, _plugin):
        raise AssertionError("not asked")

    register = deregister = find_problem


HANDLER = NoHandler()


def desired(socket, identity=1):
    return DesiredPlugin(socket=socket, identity=SocketIdentity(identity), since=NOW)


def registered(socket, identity=1, name="p"):
    info = PluginInfo(type="t", name=name, endpoint=socket)
    return RegisteredPlugin(socket=socket, identity=SocketIdentity(identity), info=info, handler=HANDLER)


@pytest.mark.parametrize(
    ("wanted", "known", "unregister", "register"),
    [
        pytest.param((), (), (), (), id="nothing"),
        pytest.param((desired("/a"),), (), (), (desired("/a"),), id="a socket that has come"),
        pytest.param((desired("/a"),), (registered("/a"),), (), (), id="one that is registered"),
        pytest.param((), (registered("/a"),), (registered("/a"),), (), id="one that has gone"),
        pytest.param(
            (desired("/a", 2),), (registered("/a", 1),), (registered("/a", 1),), (),
            id="one that was made again is unregistered first",
        ),
        pytest.param(
            (desired("/a"), desired("/b")), (registered("/a"),), (), (desired("/b"),),
            id="two sockets of one name are two plugins",
        ),
        pytest.param(
            (desired("/b"),), (registered("/a"),), (registered("/a"),), (desired("/b"),),
            id="one comes as another goes",
        ),
    ],
)  # fmt: skip
def test_the_plan(wanted, known, unregister, register):
    plan = plan_registry({each.socket: each for each in wanted}, {each.socket: each for each in known})
    assert plan == RegistryPlan(unregister=unregister, register=register)


def test_a_socket_that_is_made_again_has_one_entry_of_another_identity():
    board = DesiredPlugins()
    board.add("/a", now=NOW)
    first = board.all()["/a"]
    later = NOW.replace(year=2031)
    board.add("/a", now=later)
    assert len(board.all()) == 1
    assert board.all()["/a"].identity != first.identity
    assert board.all()["/a"].since == later


def test_a_path_that_is_no_socket_is_removed_without_a_change():
    board = DesiredPlugins()
    with board.changes() as changes:
        board.remove("/directory")
        assert changes.drain() == []


def test_the_board_of_registered_plugins():
    board = RegisteredPlugins()
    board.put(registered("/a"))
    assert list(board.all()) == ["/a"]
    board.remove("/a")
    board.remove("/a")
    assert board.all() == {}
