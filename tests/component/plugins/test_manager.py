"""Plugins that come, go and misbehave: a real directory, real sockets, real gRPC. Only the test moves the time."""

import asyncio
import logging
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial

import pytest

from klet.aio.clock import SystemClock
from klet.aio.threads import Threads
from klet.errors import KletError
from klet.host.plugin_sockets import RegistrationSockets
from klet.host.socket_watch import watch_sockets
from klet.metrics import MetricRegistry
from klet.plugins.boards import DesiredPlugins, RegisteredPlugins
from klet.plugins.manager import FIRST_DELAY, LONGEST_DELAY, PluginManager
from klet.plugins.metrics import register_plugins
from klet.plugins.operations import PluginOperations
from klet.plugins.watcher import RegistryWatcher
from klet.testing.clock import ManualClock
from klet.testing.registrar import RegistrarFault, serve_registrar

KIND = "CSIPlugin"


class Handler:
    """Takes plugins and remembers which it has."""

    def __init__(self):
        self.problem = None
        self.failure = None
        self.hold = asyncio.Event()
        self.hold.set()
        self.calls = []
        self._changed = asyncio.Event()

    def find_problem(self, _plugin):
        return self.problem

    async def register(self, plugin):
        self._note("register", plugin)
        await self.hold.wait()
        if self.failure is not None:
            raise KletError(self.failure)

    async def deregister(self, plugin):
        self._note("deregister", plugin)
        if self.failure is not None:
            raise KletError(self.failure)

    def _note(self, call, plugin):
        self.calls.append((call, plugin.name))
        self._changed.set()

    async def until(self, *calls):
        async with asyncio.timeout(30):
            while self.calls != list(calls):
                self._changed.clear()
                await self._changed.wait()


class Failures(logging.Handler):
    """The operations that failed, by what was logged of them."""

    def __init__(self):
        super().__init__()
        self.errors = []
        self._changed = asyncio.Event()

    def emit(self, record):
        if record.getMessage() == "Plugin operation failed":
            self.errors.append(record.error)
            self._changed.set()

    async def until(self, count):
        async with asyncio.timeout(30):
            while len(self.errors) < count:
                self._changed.clear()
                await self._changed.wait()


class Bench:
    """A plugin manager that runs, and what it works on."""

    def __init__(self, directory, threads):
        self.directory = directory
        self.clock = ManualClock()
        self.handler = Handler()
        self.failures = Failures()
        self.metrics = MetricRegistry()
        self.desired, self.registered = DesiredPlugins(), RegisteredPlugins()
        register_plugins(self.metrics, self.desired, self.registered)
        self.manager = PluginManager(
            watcher=RegistryWatcher(
                watch=partial(watch_sockets, directory, threads=threads), desired=self.desired, clock=self.clock
            ),
            desired=self.desired,
            registered=self.registered,
            operations=PluginOperations(
                sockets=RegistrationSockets(clock=SystemClock()),
                handlers={KIND: self.handler},
                registered=self.registered,
            ),
            clock=self.clock,
        )

    @asynccontextmanager
    async def running(self):
        async with asyncio.TaskGroup() as group:
            task = group.create_task(self.manager.run())
            yield self
            task.cancel()

    def socket(self, name="a"):
        return self.directory / f"{name}-reg.sock"

    async def until_waiting(self):
        """A socket waits for its next try: only then the manager looks at the clock."""
        async with asyncio.timeout(30):
            await self.clock.until_asleep()


@pytest.fixture
def bench(tmp_path):
    threads = Threads(limit=2)
    (tmp_path / "r").mkdir()
    bench = Bench(tmp_path / "r", threads)
    logger = logging.getLogger("klet.plugins.manager")
    logger.addHandler(bench.failures)
    yield bench
    logger.removeHandler(bench.failures)
    threads.close()


async def test_plugins_are_registered_without_waiting_whenever_they_come(bench):
    async with serve_registrar(bench.socket("a"), name="early", endpoint="/early") as early, bench.running():
        assert await early.until_notified() == (True, "")
        async with serve_registrar(bench.socket("b"), name="late") as late:
            assert await late.until_notified() == (True, "")
            assert bench.handler.calls == [("register", "early"), ("register", "late")]
            [first, second] = bench.registered.all().values()
            assert (first.info.endpoint, first.info.versions) == ("/early", ("1.0.0",))
            assert second.info.endpoint == str(bench.socket("b"))


async def test_a_plugin_goes_with_its_socket(bench):
    async with bench.running():
        async with serve_registrar(bench.socket(), name="d") as registrar:
            await registrar.until_notified()
        await bench.handler.until(("register", "d"), ("deregister", "d"))
        assert bench.registered.all() == {}


async def test_a_plugin_that_dies_without_a_word_stays_until_its_socket_is_made_again(bench):
    async with bench.running(), serve_registrar(bench.socket(), name="d") as registrar:
        await registrar.until_notified()
        await registrar.die()
        registrar.socket.unlink(missing_ok=True)
        await registrar.start()
        assert await registrar.until_notified(2) == (True, "")
        calls = bench.handler.calls
        assert calls == [("register", "d"), ("deregister", "d"), ("register", "d")]


async def test_two_sockets_with_one_name_are_two_plugins(bench):
    async with (
        bench.running(),
        serve_registrar(bench.socket("a"), name="d") as one,
        serve_registrar(bench.socket("b"), name="d") as other,
    ):
        await one.until_notified()
        await other.until_notified()
        assert len(bench.registered.all()) == 2


async def test_a_type_that_nobody_handles_is_refused_and_tried_again(bench, caplog):
    path = bench.socket()
    text = f"RegisterPlugin error -- no handler registered for plugin type: Strange at socket {path}"
    async with bench.running(), serve_registrar(path, type="Strange") as registrar:
        assert await registrar.until_notified() == (False, text)
        for tries, delay in enumerate((FIRST_DELAY, 2 * FIRST_DELAY, 4 * FIRST_DELAY), start=2):
            await bench.until_waiting()
            bench.clock.advance(delay - timedelta(milliseconds=1))
            await bench.until_waiting()
            assert registrar.asked == tries - 1
            bench.clock.advance(timedelta(milliseconds=1))
            assert await registrar.until_notified(tries) == (False, text)
        registrar.info = registrar.info.__class__(type=KIND, name="d", endpoint="", versions=("1.0",))
        await bench.until_waiting()
        bench.clock.advance(LONGEST_DELAY)
        assert await registrar.until_notified(5) == (True, "")
    errors = [record.error for record in caplog.records if record.message == "Plugin operation failed"]
    assert errors[0] == f"RegisterPlugin error -- failed to send error at socket {path}, err: {text}"


async def test_a_plugin_that_is_not_valid_is_refused_and_tried_again(bench):
    bench.handler.problem = "validation failed"
    async with bench.running(), serve_registrar(bench.socket(), name="d") as registrar:
        expected = (False, "RegisterPlugin error -- plugin validation failed with err: validation failed")
        assert await registrar.until_notified() == expected
        assert bench.registered.all() == {}
        bench.handler.problem = None
        await bench.until_waiting()
        bench.clock.advance(FIRST_DELAY)
        assert await registrar.until_notified(2) == (True, "")


async def test_a_plugin_whose_handler_fails_is_not_tried_again_until_its_socket_is_made_again(bench):
    bench.handler.failure = "driverNodeID must not be empty"
    async with bench.running(), serve_registrar(bench.socket(), name="d") as registrar:
        assert await registrar.until_notified() == (
            False,
            "RegisterPlugin error -- plugin registration failed with err: driverNodeID must not be empty",
        )
        await bench.failures.until(1)
        await bench.clock.run(timedelta(hours=1))
        assert registrar.asked == 1
        assert list(bench.registered.all()) == [str(bench.socket())]
        bench.handler.failure = None
        await registrar.start()
        assert await registrar.until_notified(2) == (True, "")


async def test_a_plugin_that_cannot_be_taken_away_is_forgotten_all_the_same(bench, caplog):
    async with bench.running():
        async with serve_registrar(bench.socket(), name="d") as registrar:
            await registrar.until_notified()
            bench.handler.failure = "no API server"
        await bench.handler.until(("register", "d"), ("deregister", "d"))
        await bench.clock.run(timedelta(hours=1))
        assert bench.registered.all() == {}
        assert len(bench.handler.calls) == 2
    assert [record.error for record in caplog.records] == ["UnregisterPlugin error -- no API server"]


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        pytest.param(RegistrarFault.SILENT, "code = DeadlineExceeded", id="one that does not answer"),
        pytest.param(RegistrarFault.FLOODS, "code = ResourceExhausted", id="one that says too much"),
        pytest.param(RegistrarFault.GARBLED, "code = Internal", id="one that cannot be understood"),
        pytest.param(RegistrarFault.BREAKS_OFF, "code = Unavailable", id="one that breaks off"),
    ],
)
async def test_a_bad_plugin_delays_no_other_and_is_tried_again(bench, caplog, fault, expected):
    async with bench.running(), serve_registrar(bench.socket("a"), name="bad", fault=fault) as bad:
        await bad.until_asked()
        async with serve_registrar(bench.socket("b"), name="good") as good:
            assert await good.until_notified() == (True, "")
        await bench.until_waiting()
        bad.fault = None
        bench.clock.advance(FIRST_DELAY)
        assert await bad.until_notified() == (True, "")
    [error] = [record.error for record in caplog.records if record.message == "Plugin operation failed"]
    begin = f"RegisterPlugin error -- failed to get plugin info using RPC GetInfo at socket {bench.socket('a')}, err: "
    assert error.startswith(begin)
    assert expected in error


async def test_nobody_waits_for_a_plugin_whose_socket_has_gone(bench):
    async with bench.running(), serve_registrar(bench.socket(), name="d", fault=RegistrarFault.SILENT) as silent:
        await silent.until_asked()
        silent.socket.unlink()
        async with serve_registrar(bench.socket(), name="d") as again:
            assert await again.until_notified() == (True, "")
            assert bench.handler.calls == [("register", "d")]
            assert bench.failures.errors == []


async def test_a_plugin_that_goes_while_it_is_registered_is_taken_away(bench):
    bench.handler.hold.clear()
    async with bench.running():
        async with serve_registrar(bench.socket(), name="d"):
            await bench.handler.until(("register", "d"))
        await bench.handler.until(("register", "d"), ("deregister", "d"))
        assert bench.registered.all() == {}


async def test_a_plugin_that_does_not_take_its_notification_is_registered(bench):
    async with bench.running(), serve_registrar(bench.socket(), name="d", fault=RegistrarFault.DEAF) as deaf:
        await deaf.until_notified()
        assert list(bench.registered.all()) == [str(bench.socket())]


async def test_the_metric_names_each_socket_while_it_is_there(bench):
    def series():
        lines = bench.metrics.write().decode().splitlines()
        return [line for line in lines if line.startswith("plugin_manager_total_plugins")]

    name = bench.socket()
    async with bench.running():
        assert series() == []
        async with serve_registrar(name, name="d") as registrar:
            await registrar.until_notified()
            assert sorted(series()) == [
                f'plugin_manager_total_plugins{{socket_path="{name}",state="actual_state_of_world"}} 1',
                f'plugin_manager_total_plugins{{socket_path="{name}",state="desired_state_of_world"}} 1',
            ]
        await bench.handler.until(("register", "d"), ("deregister", "d"))
        assert series() == []


async def test_a_flood_of_sockets_is_registered_in_the_end(bench):
    async with bench.running(), asyncio.TaskGroup() as group:
        done = asyncio.Event()

        async def come(number):
            async with serve_registrar(bench.socket(str(number)), name=f"d{number}") as registrar:
                await registrar.until_notified()
                done.set()

        for number in range(30):
            group.create_task(come(number))
    assert len([call for call in bench.handler.calls if call[0] == "register"]) == 30
