from datetime import timedelta

from klet.api.handlers import ExecAction, Probe
from klet.host.http_client import HttpClient
from klet.probes.handler import ProbeAnswer, ProbeTarget
from klet.probes.prober import TRIES, Prober
from klet.testing.builders import make_container, make_pod


class FaultyRuntime:
    """Fails in a way that nobody has thought of."""

    def __init__(self):
        self.asked = 0

    async def exec_sync(self, _request):
        self.asked += 1
        raise RecursionError("too deep " * 1000)


async def test_a_fault_in_a_probe_concerns_one_container_alone(caplog):
    runtime = FaultyRuntime()
    target = ProbeTarget(
        pod=make_pod(),
        container=make_container("main"),
        id="c",
        probe=Probe(exec=ExecAction(command=("true",))),
        pod_ip="",
        timeout=timedelta(seconds=1),
    )
    outcome = await Prober(runtime=runtime, http=HttpClient()).prepare(target)()
    assert (outcome.answer, runtime.asked) == (ProbeAnswer.UNKNOWN, TRIES)
    assert outcome.error.startswith("RecursionError: too deep too deep")
    assert len(outcome.error) < 1000
    assert caplog.messages == ["A probe could not be carried out"] * TRIES
