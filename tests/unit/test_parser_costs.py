"""Parsers of foreign bytes: what they cost grows with their input and no faster, and none recurses without bound.

Costs are measured in processor time of this thread, so that a busy machine does not count. Four times the input of a
linear parser costs about four times as much, and of a quadratic one sixteen times.
"""

import contextlib
import gc
import json
import time
from datetime import timedelta
from pathlib import Path

import pytest

from klet.agent_log.vmodule import compile_pattern
from klet.api.codec import DecodeError, decode
from klet.api.field_selectors import parse_field_selector
from klet.api.image_reference import image_tag
from klet.api.pod import Pod
from klet.api.quantity import Quantity
from klet.api.selectors import parse_label_selector
from klet.api.static_pods import StaticOrigin
from klet.api.times import Duration, MicroTime, Time
from klet.certs.pem import certificate_blocks, key_block
from klet.checkpoint.envelope import Envelope
from klet.checkpoint.errors import CheckpointDamaged
from klet.checkpoint.upstream import CpuManagerFormat, MemoryManagerFormat
from klet.cli.manifests import split_documents
from klet.config.document import parse_document
from klet.errors import KletError
from klet.host.cpulist import parse_cpu_list
from klet.host.http_response import ResponseReader
from klet.host.kmsg import KernelMessage, OomParser
from klet.host.mountinfo import parse_mountinfo
from klet.host.procfs import parse_colons, parse_process_stat
from klet.host.project_files import drop_directory, parse_table
from klet.images.docker_config import BadDockerConfig, parse_docker_config_json, parse_dockercfg
from klet.images.keyring import Keyring
from klet.images.names import with_default_tag
from klet.images.pulled.format import BadPullFile, decode_intent, decode_record
from klet.journal.evidence import plain_error
from klet.kube.kubeconfig import parse_kubeconfig
from klet.logs.line import parse_cri_line, parse_docker_line
from klet.logs.render import LogOptions, LogRenderer
from klet.model.expansion import expand
from klet.model.foreign_text import read_output, shorten
from klet.model.pem_blocks import read_blocks
from klet.network.dns import parse_resolv_conf
from klet.runtime.environment.env_files import find_variable
from klet.runtime.reader import was_broken_off
from klet.sources.decode import Origin, decode_pods
from klet.wire import cri_v1_pb2 as cri

FACTOR = 4
WORST = 9
"""How many times the cost may be: between the 4 of a linear parser and the 16 of a quadratic one."""
NOTHING = 0.002
"""Seconds. What costs less, also at the larger size, is not worth measuring."""
RUNS = 3
ATTEMPTS = 5
"""Other processes empty the caches of the processor, so the smallest of several costs is the one that counts."""
ORIGIN = Origin(kind=StaticOrigin.FILE, location="/pods/p.yaml", node_name="n")


def kernel_says(text):
    message = KernelMessage(level=0, facility=0, sequence=0, since_boot=timedelta(0), text=text)
    return OomParser().feed(message)


def broken_off(text):
    return was_broken_off(cri.ContainerStatus(state=cri.CONTAINER_EXITED, reason="StartError", message=text))


def byte_by_byte(data):
    reader = ResponseReader()
    for number in data:
        reader.feed(bytes((number,)))


def in_small_pieces(data):
    renderer = LogRenderer(LogOptions())
    for start in range(0, len(data), 64):
        renderer.feed(data[start : start + 64])


def kubeconfig(text):
    return parse_kubeconfig(text, path=Path("/etc/kubeconfig"))


def pods(data):
    return decode_pods(data, ORIGIN)


def pod(*, metadata=(), container=(), **spec):
    fields = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", **dict(metadata)},
        "spec": {"containers": [{"name": "c", "image": "i", **dict(container)}], **spec},
    }
    return json.dumps(fields).encode()


def many(count, build):
    return [build(number) for number in range(count)]


OWNER = {"apiVersion": "v1", "kind": "K", "name": "n", "uid": "u", "controller": True}
HEAD = b"HTTP/1.1 200 OK\r\nA: "
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"

PARSERS = [
    ("a quantity of zeros", Quantity.parse, 300, lambda n: "0" * n + "x"),
    ("a quantity of digits", Quantity.parse, 2_000, lambda n: "1" * n + "x"),
    ("a quantity with a fraction", Quantity.parse, 2_000, lambda n: "1." + "1" * n + "x"),
    ("a quantity of suffixes", Quantity.parse, 2_000, lambda n: "1" + "e" * n + "x"),
    ("a duration of many parts", Duration.parse, 10_000, lambda n: "1ns" * n),
    ("a duration of zeros", Duration.parse, 20_000, lambda n: "0" * n + "1s"),
    ("a duration of anything", Duration.parse, 20_000, lambda n: "\u00e9" * n),
    ("a time with a long fraction", Time.parse, 50_000, lambda n: "2026-01-02T03:04:05." + "1" * n + "x"),
    ("a precise time", MicroTime.parse, 50_000, lambda n: "2026-01-02T03:04:05." + "1" * n),
    ("a label selector of sets", parse_label_selector, 5_000, lambda n: "a in (" + "b," * n),
    ("a label selector of requirements", parse_label_selector, 2_000, lambda n: "a," * n),
    ("a label selector of blanks", parse_label_selector, 50_000, lambda n: " " * n + "("),
    ("a label selector with a long key", parse_label_selector, 20_000, lambda n: "a." * n + "!/b-"),
    ("a label selector of dashes", parse_label_selector, 20_000, lambda n: "a" + "-" * n),
    ("a field selector of escapes", parse_field_selector, 20_000, lambda n: "\\" * n),
    ("a field selector of terms", parse_field_selector, 2_000, lambda n: "a=b," * n),
    ("a field selector without a sign", parse_field_selector, 20_000, lambda n: "a" * n),
    ("an image of a long name", with_default_tag, 10_000, lambda n: "a-" * n + "!"),
    ("an image of many hosts", with_default_tag, 10_000, lambda n: "a.a" * n + ":1/" + "a__a" * n + "!"),
    ("an image of a long digest", with_default_tag, 20_000, lambda n: "a@" + "a." * n + "!"),
    ("the tag of an image", image_tag, 20_000, lambda n: "a@" + "a." * n + ":0"),
    ("blocks that do not end", certificate_blocks, 400, lambda n: "-----BEGIN A-----\n" * n),
    ("a key among blocks that do not end", key_block, 400, lambda n: "-----BEGIN A-----\n" * n),
    ("ends of other blocks", certificate_blocks, 2_000, lambda n: "-----BEGIN A-----\n" + "-----END B-----\n" * n),
    ("trust anchors that do not end", lambda text: list(read_blocks(text)), 400, lambda n: "-----BEGIN A-----\n" * n),
    ("a pattern of stars", lambda text: compile_pattern(text).match("a" * 60), 10, lambda n: "*?" * n + "b"),
    ("dollars", lambda text: expand(text, {}), 50_000, lambda n: "$a" * n),
    ("open references", lambda text: expand(text, {}), 50_000, lambda n: "$(" * n),
    ("a value of many lines", lambda data: find_variable(data, "X"), 20_000, lambda n: b"A='" + b"\n" * n + b"'"),
    ("variables", lambda data: find_variable(data, "X"), 5_000, lambda n: b"A='a'\n" * n),
    ("a kernel's constraint", kernel_says, 15, lambda n: "oom-kill:constraint=A," + "task_memcg=,task=,pid=1," * n),
    ("a kernel's old constraint", kernel_says, 100, lambda n: "Task in " + "killed as a result of limit of " * n),
    ("a kernel's kill", kernel_says, 100, lambda n: "kill process 1 (" * n),
    ("an end of a shim", broken_off, 300, lambda n: "failed to start shim: start failed: " * n),
    ("the head of an answer", byte_by_byte, 10_000, lambda n: HEAD + b"x" * n),
    ("the chunks of an answer", byte_by_byte, 400, lambda n: CHUNKED + b"1\r\nx\r\n" * n),
    ("chunks that come together", lambda data: ResponseReader().feed(data), 2_000, lambda n: CHUNKED + b"1\nx\n" * n),
    ("lengths", lambda data: ResponseReader().feed(data), 500, lambda n: HEAD + b"\r\nContent-Length: 1" * n),
    ("a CRI line", parse_cri_line, 50_000, lambda n: b"2026-01-02T03:04:05." + b"1" * n + b" stdout F x"),
    ("a CRI line of tags", parse_cri_line, 50_000, lambda n: b"2026-01-02T03:04:05Z stdout " + b"F:" * n),
    ("a Docker line", parse_docker_line, 50_000, lambda n: b'{"log":"' + b"\\n" * n),
    ("a log without a newline", in_small_pieces, 500_000, lambda n: b"x" * n),
    ("merged mappings", parse_document, 1_000, lambda n: f"<<: [{', '.join(many(n, '{{k{}: 1}}'.format))}]".encode()),
    (
        "keys below a long one",
        parse_document,
        2_000,
        lambda n: json.dumps({"k" * 10 * n: {str(i): 1 for i in range(n)}}).encode(),
    ),
    ("a document of lists", parse_document, 2_000, lambda n: b"a: [" + b"[]," * n + b"]"),
    ("a document of anchors", parse_document, 1_000, lambda n: b"".join(b"a%d: &a%d 1\n" % (i, i) for i in range(n))),
    ("a long number", parse_document, 100_000, lambda n: b"a: " + b"1" * n),
    ("a long fraction", parse_document, 100_000, lambda n: b"a: 1." + b"1" * n + b"e"),
    ("owners", pods, 110, lambda n: pod(metadata={"ownerReferences": many(n, lambda _: OWNER)})),
    ("claims", pods, 400, lambda n: pod(container={"resources": {"claims": many(n, lambda i: {"name": f"c{i}"})}})),
    ("spreads", pods, 400, lambda n: pod(topologySpreadConstraints=many(n, lambda i: {"topologyKey": f"k{i}"}))),
    ("finalizers", pods, 500, lambda n: pod(metadata={"finalizers": many(n, "f{}".format)})),
    (
        "managers",
        pods,
        500,
        lambda n: pod(metadata={"managedFields": [{"manager": "\x01" * n, "operation": "Apply"}]}),
    ),
    ("environment variables", pods, 500, lambda n: pod(container={"env": many(n, lambda i: {"name": f"E{i}"})})),
    ("ports", pods, 300, lambda n: pod(container={"ports": many(n, lambda i: {"containerPort": i + 1})})),
    ("a kubeconfig's number", kubeconfig, 20_000, lambda n: "a: " + "1" * n),
    ("a kubeconfig's sexagesimal", kubeconfig, 5_000, lambda n: "a: 1" + ":59" * n),
    ("a list of processors", parse_cpu_list, 2_000, lambda n: "0-1023," * n + "0"),
    ("mounts", parse_mountinfo, 500, lambda n: "1 2 0:1 / /a\\040b rw shared:1 - t s rw,a\n" * n),
    ("a mount of many fields", parse_mountinfo, 20_000, lambda n: "1 2 0:1 / /a rw " + "x " * n + "- t s rw"),
    ("projects", lambda data: drop_directory(parse_table(data, data), Path("/a")), 2_000, lambda n: b"1:/a\nb:2\n" * n),
    ("the number of a project", lambda data: parse_table(data, data), 200_000, lambda n: b"1" * n),
    ("fields of proc", parse_colons, 5_000, lambda n: "a: b\n" * n),
    ("a process of a strange name", parse_process_stat, 20_000, lambda n: "1 (" + ")" * n),
    (
        "logins",
        lambda data: Keyring([parse_docker_config_json(data)]).find("a.b/c"),
        500,
        lambda n: json.dumps({"auths": {f"a{i}.b": {"auth": "YTpi"} for i in range(n)}}).encode(),
    ),
    (
        "a login for anybody",
        lambda data: Keyring([parse_dockercfg(data)]).find("a" * 60 + ".b/c"),
        500,
        lambda n: json.dumps({"*a" * n + ".b": {"auth": "YTpi"}}).encode(),
    ),
    ("a login of a long name", parse_dockercfg, 50_000, lambda n: b'{"a":{"auth":"' + b"YTpi" * n + b'"}}'),
    ("layers of an error", plain_error, 400, lambda n: "Error: " * n),
    ("name servers", parse_resolv_conf, 2_000, lambda n: "nameserver 1.1.1.1\nsearch a b\noptions a:1 b\n" * n),
    ("a comment", split_documents, 50_000, lambda n: "#" * n + "\nkind: Pod\n"),
    ("documents", split_documents, 1_000, lambda n: "---\na: 1\n" * n),
    ("output", lambda data: shorten(read_output(data), 100), 100_000, lambda n: b"\xff" * n),
]


def cost_of(parse, data):
    """Seconds of the cheapest of some runs; a refusal costs too."""
    best = float("inf")
    for _ in range(RUNS):
        began = time.thread_time()
        with contextlib.suppress(KletError, ValueError):
            parse(data)
        best = min(best, time.thread_time() - began)
    return best


@pytest.fixture(autouse=True)
def no_collections():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize(("parse", "size", "make"), [pytest.param(*row[1:], id=row[0]) for row in PARSERS])
def test_a_parser_costs_what_its_input_is_long(parse, size, make):
    large = small = float("inf")
    for _ in range(ATTEMPTS):
        large = min(large, cost_of(parse, make(FACTOR * size)))
        if large <= NOTHING:
            return
        small = min(small, cost_of(parse, make(size)))
        if large <= WORST * small:
            return
    pytest.fail(f"{large / small:.1f} times the cost for {FACTOR} times the input")


NESTED = [
    pytest.param(b"[" * 100_000, id="lists"),
    pytest.param(b'{"a":' * 100_000, id="objects"),
    pytest.param(b'{"a":' * 300 + b"1" + b"}" * 300, id="objects that end"),
    pytest.param(b'{"auths":' + b"[" * 100_000, id="lists in an object"),
    pytest.param(b'{"metadata":{"labels":' + b'{"a":' * 100_000, id="objects in labels"),
    pytest.param(b'{"kind":"k","version":1,"checksum":"","payload":' + b"[" * 100_000, id="lists in a payload"),
    pytest.param(b'{"policyName":"","entries":' + b'{"a":' * 100_000, id="objects in entries"),
]


@pytest.mark.parametrize("data", NESTED)
@pytest.mark.parametrize(
    ("parse", "refusals"),
    [
        pytest.param(lambda data: decode(Pod, data), DecodeError, id="an object of the API"),
        pytest.param(parse_docker_config_json, BadDockerConfig, id="logins"),
        pytest.param(parse_dockercfg, BadDockerConfig, id="old logins"),
        pytest.param(decode_record, BadPullFile, id="a record of a pulled image"),
        pytest.param(decode_intent, BadPullFile, id="an intent to pull"),
        pytest.param(
            Envelope(kind="k", version=1, payload=dict[str, object]).decode, CheckpointDamaged, id="a checkpoint"
        ),
        pytest.param(CpuManagerFormat().decode, CheckpointDamaged, id="a CPU manager's state"),
        pytest.param(MemoryManagerFormat().decode, CheckpointDamaged, id="a memory manager's state"),
        pytest.param(pods, KletError, id="a manifest"),
        pytest.param(lambda data: kubeconfig(data.decode()), KletError, id="a kubeconfig"),
        pytest.param(parse_docker_line, (), id="a Docker line"),
    ],
)
def test_no_parser_follows_whatever_depth(parse, refusals, data):
    """What is nested too deep must not raise what nobody expects, nor end the process."""
    assert len(refusal_of(parse, refusals, data)) < 10_000


def refusal_of(parse, refusals, data):
    """The text of a refusal; none if the data are taken."""
    try:
        parse(data)
    except refusals as error:
        return str(error)
    return ""
