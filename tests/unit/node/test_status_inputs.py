"""What is read for a status, and what is not waited for."""

import asyncio
from datetime import timedelta

import pytest

from klet.aio.clock import LoopClock
from klet.api.meta import ObjectMeta
from klet.api.node import Node
from klet.cri.errors import Code, error_for
from klet.host.addresses import AddressFacts
from klet.host.errors import HostError
from klet.host.machine.info import MachineInfo, SystemVersions
from klet.model.images import ImageRecord
from klet.model.unknown import Unknown
from klet.node.runtime_state import RuntimeReport, RuntimeState
from klet.node.settings import NodeSettings
from klet.node.status_inputs import PartReports, StatusInputsReader
from klet.testing.loop import EPOCH, run_virtual
from klet.wire import cri_v1_pb2 as cri

NODE = Node(metadata=ObjectMeta(name="n1"))
DOWN = error_for(Code.UNAVAILABLE, "connection refused")


class ScriptedMachine:
    """Answers, or fails."""

    def __init__(self, error=None):
        self.error = error

    def info(self):
        return self._or_error(MachineInfo(cpus=1, memory=1))

    def versions(self):
        return self._or_error(SystemVersions("6", "x"))

    def _or_error(self, answer):
        if self.error is not None:
            raise self.error
        return answer


class NotedAddresses:
    """Notes how it was asked."""

    def __init__(self):
        self.asked = []

    async def read(self, **wanted):
        self.asked.append(wanted)
        return AddressFacts()


async def seven():
    return 7


class ScriptedVersion:
    """Answers, fails or hangs."""

    def __init__(self, *answers):
        self.answers = list(answers)

    async def version(self, _request):
        answer = self.answers.pop(0)
        if answer is None:
            await asyncio.Event().wait()
        if isinstance(answer, Exception):
            raise answer
        return cri.VersionResponse(runtime_name="cri-o", runtime_version=answer)


class Images:
    found = (ImageRecord("a"),)


async def read(*answers, parts=PartReports(), settings=NodeSettings(name="n1"), times=1, error=None):  # noqa: B008  # frozen values
    clock = LoopClock(epoch=EPOCH)
    state = RuntimeState(pleg_error=lambda: None, clock=clock)
    state.note(RuntimeReport(runtime_error=None, network_error="no network"))
    addresses = NotedAddresses()
    reader = StatusInputsReader(
        machine=ScriptedMachine(error),
        addresses=addresses,
        health=state,
        runtime=ScriptedVersion(*answers),
        images=Images(),
        parts=parts,
        settings=settings,
        clock=clock,
    )
    seen = [await reader.read(NODE) for _ in range(times)]
    return seen, addresses.asked, clock.now() - EPOCH


@pytest.mark.parametrize(
    ("answers", "expected", "took"),
    [
        pytest.param(["v1.29.1"], ["cri-o://1.29.1"], 0, id="without the letter"),
        pytest.param(["1.6.20~ds1"], ["cri-o://1.6.20"], 0, id="a distribution's addition is left out"),
        pytest.param(["2.1.0-rc.1+x"], ["cri-o://2.1.0-rc.1+x"], 0, id="a semantic version is reported whole"),
        pytest.param(["dev"], ["cri-o://Unknown"], 0, id="a text without numbers is no version"),
        pytest.param([DOWN], ["containerd://Unknown"], 0, id="a runtime that is down"),
        pytest.param(["1.0", DOWN], ["cri-o://1.0", "cri-o://Unknown"], 0, id="a runtime that went down"),
        pytest.param([None], ["containerd://Unknown"], 2, id="a runtime that hangs is not waited for"),
    ],
)
def test_the_version_of_the_runtime(answers, expected, took):
    seen, _, passed = run_virtual(read(*answers, times=len(answers)))
    assert [each.runtime_version for each in seen] == expected
    assert passed == timedelta(seconds=took)


def test_errors_come_in_order():
    parts = PartReports(storage_error=lambda: "no CSINode", shutdown_error=lambda: "node is shutting down")
    ((seen,), _, _) = run_virtual(read("1", parts=parts))
    assert seen.errors == ("no network", "no CSINode", "node is shutting down")


def test_storage_that_does_not_count_is_not_read():
    ((seen,), _, _) = run_virtual(read("1", parts=PartReports(storage=seven)))
    assert seen.storage == 7
    settings = NodeSettings(name="n1", counts_storage=False)
    ((seen,), _, _) = run_virtual(read("1", parts=PartReports(storage=seven), settings=settings))
    assert seen.storage is None


def test_a_machine_and_a_system_that_can_be_read():
    ((seen,), _, _) = run_virtual(read("1"))
    assert (seen.machine, seen.versions) == (MachineInfo(cpus=1, memory=1), SystemVersions("6", "x"))


def test_a_machine_and_a_system_that_cannot_be_read():
    ((seen,), _, _) = run_virtual(read("1", error=HostError("cannot read it")))
    assert seen.machine == Unknown("error getting machine info: cannot read it")
    assert seen.versions == Unknown("error getting version info: cannot read it")


def test_the_resolver_is_asked_only_if_need_be():
    _, asked, _ = run_virtual(read("1", settings=NodeSettings(name="10.1.1.1")))
    assert asked == [{"name": "10.1.1.1", "prefer": 4, "lookup": False}]
