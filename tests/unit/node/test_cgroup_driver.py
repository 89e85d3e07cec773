"""Whose cgroup driver holds."""

from datetime import timedelta

import pytest

from klet.aio.clock import LoopClock
from klet.cri.errors import Code, error_for
from klet.node.cgroup_driver import PAUSE, CgroupDriverUnknown, choose_cgroup_driver, find_cgroup_driver
from klet.testing.loop import EPOCH, run_virtual
from klet.wire import cri_v1_pb2 as cri

BUSY = error_for(Code.UNKNOWN, "busy")
NO_SUCH_CALL = error_for(Code.UNIMPLEMENTED, "unknown method RuntimeConfig for service runtime.v1.RuntimeService")


def says(driver) -> cri.RuntimeConfigResponse:
    return cri.RuntimeConfigResponse(linux=cri.LinuxRuntimeConfiguration(cgroup_driver=driver))


@pytest.mark.parametrize(
    ("answer", "configured", "expected"),
    [
        pytest.param(says(cri.SYSTEMD), "cgroupfs", "systemd", id="systemd wins over the configuration"),
        pytest.param(says(cri.CGROUPFS), "systemd", "cgroupfs", id="cgroupfs wins over the configuration"),
        pytest.param(says(cri.CGROUPFS), "cgroupfs", "cgroupfs", id="both agree"),
        pytest.param(cri.RuntimeConfigResponse(), "systemd", "systemd", id="a runtime that says nothing"),
    ],
)
def test_choose_cgroup_driver(answer, configured, expected):
    assert choose_cgroup_driver(answer, configured=configured) == expected


def test_an_unknown_driver():
    with pytest.raises(CgroupDriverUnknown, match=r"^runtime returned an unknown cgroup driver 7$"):
        choose_cgroup_driver(says(7), configured="cgroupfs")


class ScriptedRuntime:
    """Answers one thing after the other."""

    def __init__(self, *answers):
        self.answers = list(answers)

    async def runtime_config(self, _request):
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.mark.parametrize(
    ("answers", "expected", "waited"),
    [
        pytest.param([says(cri.SYSTEMD)], "systemd", 0, id="the first answer"),
        pytest.param([BUSY, BUSY, says(cri.SYSTEMD)], "systemd", 2, id="the third answer"),
        pytest.param([NO_SUCH_CALL], "cgroupfs", 0, id="a runtime without the call is not asked again"),
        pytest.param([BUSY, NO_SUCH_CALL], "cgroupfs", 1, id="a runtime that is replaced by an older one"),
    ],
)
def test_find_cgroup_driver(answers, expected, waited):
    runtime = ScriptedRuntime(*answers)

    async def find() -> tuple[str, timedelta]:
        clock = LoopClock(epoch=EPOCH)
        began = clock.now()
        return await find_cgroup_driver(runtime, configured="cgroupfs", clock=clock), clock.now() - began

    assert run_virtual(find()) == (expected, waited * PAUSE)
    assert runtime.answers == []


def test_a_runtime_that_never_answers():
    runtime = ScriptedRuntime(BUSY, BUSY, BUSY)
    with pytest.raises(
        CgroupDriverUnknown, match=r"^the runtime does not report its cgroup driver: rpc error: code = Un"
    ):
        run_virtual(find_cgroup_driver(runtime, configured="cgroupfs", clock=LoopClock(epoch=EPOCH)))
