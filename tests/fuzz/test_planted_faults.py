"""A fuzzer that finds nothing proves nothing: each target finds a fault that was put there, within seconds."""

import re
import shutil
from urllib.parse import urlsplit

import grpc
import msgspec
import pytest
import yaml
from grpc import aio

from klet.checkpoint import CheckpointDamaged
from klet.errors import KletError
from klet.host.http_response import HttpResponse, ResponseError
from klet.kube.access import Access
from klet.logs.render import LogRenderer
from klet.server.http1 import HttpRefusal, RequestHead, RequestMessage
from klet.testing.fuzz.corpus import NoCorpus
from klet.testing.fuzz.engine import Fuzzer
from klet.testing.fuzz.target import Limits
from klet.testing.fuzz.targets.checkpoints import File, checkpoints
from klet.testing.fuzz.targets.directory_names import directory_names, run_housekeeping
from klet.testing.fuzz.targets.kubeconfigs import kubeconfigs
from klet.testing.fuzz.targets.log_lines import log_lines
from klet.testing.fuzz.targets.manifests import manifests
from klet.testing.fuzz.targets.plugin_answers import Talk, plugin_answers
from klet.testing.fuzz.targets.probe_answers import probe_answers, read_answer
from klet.testing.fuzz.targets.request_heads import read_requests, request_heads
from klet.wire import cri_v1_pb2 as cri


def fuzz(target, *, executions=3000, growth_every=250):
    """The first finding."""
    fuzzer = Fuzzer(target=target, seed=1, keeper=NoCorpus(), growth_every=growth_every)
    progress = fuzzer.run(is_over=lambda progress: progress.findings or progress.executions >= executions)
    assert progress.findings, f"nothing found in {progress.executions} inputs"
    return progress.findings[0]


def within(target, limits):
    return msgspec.structs.replace(target, limits=limits)


def read_naively(data, _size):
    """Believes the last length that it sees."""
    found = []
    while (end := data.find(b"\r\n\r\n")) >= 0:
        first, *lines = data[:end].decode("latin-1").split("\r\n")
        words = first.split(" ")
        if len(words) != 3:
            return [*found, HttpRefusal(400, "Bad Request")]
        headers = tuple((name, value.strip()) for name, _, value in (line.partition(":") for line in lines))
        lengths = [value for name, value in headers if name.lower() == "content-length" and value.isdigit()]
        length = int(lengths[-1][:5]) if lengths else 0
        head = RequestHead(words[0], words[1], words[2].removeprefix("HTTP/"), headers)
        found.append(RequestMessage(head, data[end + 4 : end + 4 + length]))
        data = data[end + 4 + length :]
    return found


def test_a_reader_of_requests_that_believes_one_of_two_lengths():
    assert "RFC 9112" in fuzz(request_heads(read_naively)).flaw


def test_a_reader_of_requests_that_forgets_what_came_before():
    def read(data, size):
        return read_requests(data[:size] if size < len(data) else data, size)

    assert fuzz(request_heads(read)).flaw == "reads other requests when they come in pieces"


def test_a_pattern_whose_cost_is_quadratic():
    def read(data, size):
        re.search(rb"[^\x00]*\x00", data)
        return read_requests(data, size)

    # Large enough to take longer than what is measured at all, also on a fast processor.
    finding = fuzz(within(request_heads(read), Limits(largest=32 << 10)), growth_every=10)
    assert "processor time" in finding.flaw
    assert finding.recipe is not None


def test_lines_of_python_that_run_too_often():
    def render(options, data, block):
        seen = []
        for line in data.split(b"\n")[:2000]:
            if all(line != other for other in seen):
                seen.append(line + b"%d" % len(seen))
        renderer = LogRenderer(options)
        return renderer.feed(data) + renderer.finish()

    finding = fuzz(within(log_lines(render), Limits(largest=32 << 10)), growth_every=20)
    assert re.match("the lines that run grow faster than the input|ran more than", finding.flaw)


def test_a_reader_of_logs_that_counts_on_four_words():
    def render(_options, data, _block):
        return b"".join(line.split(b" ", 3)[3] for line in data.splitlines() if line)

    finding = fuzz(log_lines(render))
    assert finding.flaw.startswith("IndexError")
    assert len(finding.data) < 5, "it was not made small"


def test_a_reader_of_manifests_that_counts_on_a_name():
    def decode(data, _origin):
        try:
            yaml.load(data, yaml.CSafeLoader)["metadata"]["name"]
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            raise KletError("bad") from error
        return ()

    assert re.match("KeyError|TypeError", fuzz(manifests(decode)).flaw)


def test_a_reader_of_manifests_that_quotes_them_whole():
    def decode(data, _origin):
        raise KletError(f"bad manifest: {data!r}")

    assert "an error of more than" in fuzz(manifests(decode), growth_every=5).flaw


def test_a_reader_of_manifests_that_keeps_too_much():
    def decode(data, _origin):
        kept = [[byte] * 100 for byte in data]
        raise KletError(f"{len(kept)} bytes")

    limits = Limits(largest=8 << 10, memory=1 << 20, memory_per_byte=64)
    assert "bytes for each byte of the input" in fuzz(within(manifests(decode), limits), growth_every=5).flaw


class OldEnvelope:
    """Reads a checkpoint as klet once did."""

    def encode(self, value):
        return msgspec.json.encode(value)

    def decode(self, data):
        try:
            return msgspec.json.decode(data)
        except (msgspec.DecodeError, RecursionError) as error:
            raise CheckpointDamaged("bad") from error


class LossyEnvelope(OldEnvelope):
    def encode(self, value):
        return msgspec.json.encode(value if isinstance(value, list | dict) else str(value))


@pytest.mark.parametrize(
    ("form", "flaw"), [(OldEnvelope, "UnicodeDecodeError"), (LossyEnvelope, "reads another value than it wrote")]
)
def test_a_reader_of_checkpoints(form, flaw):
    files = {"Old": File(form, lambda content: content, {"a": [1, 2, {"b": "c"}]})}
    assert flaw in fuzz(checkpoints(files)).flaw


def test_a_reader_of_kubeconfigs_that_believes_in_addresses():
    def parse(data):
        try:
            server = str(yaml.load(data, yaml.CSafeLoader)["clusters"][0]["cluster"]["server"])
        except (yaml.YAMLError, ValueError, LookupError, TypeError, RecursionError) as error:
            raise KletError("bad") from error
        if urlsplit(server).scheme not in {"http", "https"}:
            raise KletError("bad")
        return Access(server=server)

    assert re.match("ValueError|takes", fuzz(kubeconfigs(parse)).flaw)


def test_a_reader_of_answers_that_believes_in_lengths():
    def read(data, _size):
        head, _, body = data.partition(b"\r\n\r\n")
        found = re.search(rb"(?i)content-length: *([^\r\n]*)", head)
        if found is None:
            raise ResponseError("no length")
        return HttpResponse(200, body[: int(found[1])])

    assert fuzz(probe_answers(read)).flaw.startswith("ValueError")


def test_a_reader_of_answers_that_keeps_all_of_a_location():
    def read(data, size):
        response = read_answer(data, size)
        return HttpResponse(response.status, response.body, response.location and f"/a\r\nX: {response.location}")

    target = probe_answers(read)
    # Escaped by what writes the next request: nothing may be found, or the oracle would cry wolf.
    fuzzer = Fuzzer(target=target, seed=1, keeper=NoCorpus(), growth_every=10_000)
    assert fuzzer.run(is_over=lambda progress: progress.executions >= 300).findings == ()


class TrustingAsker:
    """Asks a runtime without a look at whether it got a message."""

    def __init__(self, endpoint, _directory):
        self.channel = aio.insecure_channel(endpoint.replace("unix://", "unix:"))

    async def questions(self, _parts):
        call = self.channel.unary_unary("/runtime.v1.RuntimeService/Version", None, cri.VersionResponse.FromString)

        async def ask():
            try:
                answer = await call(b"")
            except grpc.RpcError as error:
                raise KletError("failed") from error
            return answer.version

        return (ask,)

    async def close(self):
        await self.channel.close()


@pytest.mark.filterwarnings("ignore")
def test_a_client_of_plugins_that_believes_in_messages():
    example = {"Version": cri.VersionResponse(version="1").SerializeToString()}
    talk = Talk(name="trusting", methods={"Version": cri.VersionResponse}, examples=[example], asker=TrustingAsker)
    assert fuzz(plugin_answers([talk]), executions=500).flaw.startswith("AttributeError")


def test_a_sweep_that_removes_what_is_not_its_own():
    """Within the directory that the target made, and nowhere else."""

    def sweep(roots):
        for entry in roots.pods.iterdir():
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)

    assert fuzz(directory_names(sweep), executions=200).flaw.startswith("removes what is not named like its own")


def test_a_sweep_that_follows_links():
    """All links of this target lead to one file beside its roots, which is the only thing that is removed here."""

    def sweep(roots):
        outside = roots.base.parent / "outside" / "below" / "file"
        for entry in roots.pods.iterdir():
            if entry.is_dir() and (entry / "file").exists() and (entry / "file").samefile(outside):
                outside.unlink()

    assert fuzz(directory_names(sweep), executions=200).flaw == "changes something outside of its roots"


def test_a_sweep_that_trips_over_names():
    def sweep(roots):
        for entry in roots.pods.iterdir():
            entry.name.encode()

    assert fuzz(directory_names(sweep), executions=400).flaw.startswith("UnicodeEncodeError")


def test_klets_own_sweep_is_what_the_target_runs(tmp_path):
    """The planted ones take its place through the same argument."""
    with directory_names(run_housekeeping).opened() as run:
        assert run(b"") == (False,) * 5
