"""With and without what tracing needs: the libraries, and a collector."""

import sys
import time

from klet.app.tracing import open_tracer
from klet.config.sections import Tracing


async def test_without_tracing_there_is_no_tracer(caplog):
    async with open_tracer(None, host_name="n1") as tracer:
        assert tracer is None
    assert caplog.messages == []


async def test_without_the_extra_the_node_runs_and_names_the_field_and_the_command(monkeypatch, caplog):
    for name in [name for name in sys.modules if name.startswith(("opentelemetry", "klet.tracing"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    async with open_tracer(Tracing(), host_name="n1") as tracer:
        assert tracer is None
    (line,) = caplog.records
    assert line.message == "tracing: nothing is traced: OpenTelemetry is not installed"
    assert line.fix == "pip install 'klet[tracing]'"


async def test_a_collector_that_is_not_there_delays_the_end_by_little(unused_tcp_port):
    began = time.monotonic()
    tracing = Tracing(endpoint=f"127.0.0.1:{unused_tcp_port}", sampling_rate_per_million=1_000_000)
    async with open_tracer(tracing, host_name="n1") as tracer:
        for _ in range(1000):
            with tracer.span("syncPod", scope="test"):
                pass
    assert time.monotonic() - began < 10
