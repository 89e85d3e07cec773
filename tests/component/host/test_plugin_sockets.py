"""What is asked of plugins over real sockets, and what they may do wrong."""

import asyncio
from datetime import timedelta

import pytest

from klet.aio.clock import SystemClock
from klet.host.plugin_sockets import PluginSocketError, RegistrationSockets
from klet.model.plugins import PluginInfo
from klet.testing.registrar import RegistrarFault, serve_registrar

SOON = timedelta(milliseconds=300)


@pytest.fixture
def sockets():
    return RegistrationSockets(clock=SystemClock())


@pytest.fixture
def hasty():
    """For plugins that are not there."""
    return RegistrationSockets(clock=SystemClock(), dial_timeout=SOON)


@pytest.mark.parametrize("name", ["a.sock", "a%2Fb#c?d e.sock"])
async def test_a_plugin_says_what_it_is_and_is_notified(tmp_path, sockets, name):
    socket = tmp_path / name
    async with (
        serve_registrar(socket, name="d", endpoint="/d", versions=("1.0", "1.1")) as registrar,
        sockets.dial(str(socket)) as client,
    ):
        assert await client.get_info() == PluginInfo(type="CSIPlugin", name="d", endpoint="/d", versions=("1.0", "1.1"))
        await client.notify(error="")
        await client.notify(error="no")
        assert registrar.notified == [(True, ""), (False, "no")]


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        pytest.param(
            RegistrarFault.SILENT,
            "rpc error: code = DeadlineExceeded desc = context deadline exceeded",
            id="one that does not answer",
        ),
        pytest.param(
            RegistrarFault.BREAKS_OFF,
            "rpc error: code = Unavailable desc = the process has ended",
            id="one that breaks off",
        ),
        pytest.param(RegistrarFault.FLOODS, "rpc error: code = ResourceExhausted desc = ", id="one that says too much"),
        pytest.param(
            RegistrarFault.GARBLED,
            "rpc error: code = Internal desc = grpc: failed to unmarshal the received message of "
            "/pluginregistration.Registration/GetInfo",
            id="one that says nothing that can be read",
        ),
    ],
)
async def test_a_plugin_that_answers_badly(tmp_path, sockets, fault, expected):
    socket = tmp_path / "a.sock"
    async with serve_registrar(socket, fault=fault), sockets.dial(str(socket)) as client:
        with pytest.raises(PluginSocketError) as caught:
            await client.get_info()
    assert str(caught.value).startswith(expected)


async def test_a_socket_where_nobody_listens(tmp_path, hasty):
    async with serve_registrar(tmp_path / "a.sock") as registrar:
        await registrar.die()
        assert registrar.socket.is_socket()
        with pytest.raises(PluginSocketError, match=r"^context deadline exceeded$"):
            async with hasty.dial(str(registrar.socket)):
                pass


async def test_a_socket_that_is_missing(tmp_path, hasty):
    with pytest.raises(PluginSocketError, match=r"^context deadline exceeded$"):
        async with hasty.dial(str(tmp_path / "missing.sock")):
            pass


async def test_a_path_that_is_too_long_for_a_socket(tmp_path, sockets):
    with pytest.raises(PluginSocketError, match="at most 107 bytes"):
        async with sockets.dial(str(tmp_path / ("x" * 200))):
            pass


async def test_a_plugin_that_listens_late_is_reached(tmp_path, sockets):
    socket = tmp_path / "a.sock"
    dialed = asyncio.Event()

    async def ask():
        dialed.set()
        async with sockets.dial(str(socket)) as client:
            return await client.get_info()

    async with asyncio.TaskGroup() as group:
        asking = group.create_task(ask())
        await dialed.wait()
        async with serve_registrar(socket, name="late"):
            assert (await asking).name == "late"


async def test_a_long_reason_is_cut(tmp_path, sockets):
    async with serve_registrar(tmp_path / "a.sock") as registrar, sockets.dial(str(registrar.socket)) as client:
        await client.notify(error="x" * 100_000)
        [(registered, error)] = registrar.notified
        assert not registered
        assert len(error.encode()) == 10 * 1024
