"""JSON from outside that is not UTF-8, or nests too deep, is a mistake of its sender: never another error.

msgspec looks at the bytes of a text only when it is wanted, and raises UnicodeDecodeError then.
"""

import hashlib

import pytest

from klet.api.codec import DecodeError, decode
from klet.api.config import ConfigMap
from klet.api.kinds import KINDS
from klet.api.pod import Pod
from klet.certs.child.__main__ import respond
from klet.certs.messages import ChildRefusal
from klet.checkpoint import CheckpointDamaged
from klet.cli.apply_plan import Applied, read_applied
from klet.cli.node.record import DamagedRecord, read_record
from klet.embedded.patching import Patch
from klet.embedded.refusals import RequestRefused
from klet.errors import KletError
from klet.offline.object_formats import PlainFormat
from klet.offline.snapshot import KeptClusterFormat, PodsFormat
from klet.runtime.config.id_blocks import decode_block
from klet.status.checkpoint import SavedStateFormat

DEEP = 100_000


def sealed(kind, payload):
    checksum = hashlib.sha256(f"{kind}\n1\n".encode() + payload).hexdigest()
    return b'{"kind":"%b","version":1,"checksum":"%b","payload":%b}' % (kind.encode(), checksum.encode(), payload)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b'{"metadata":{"name":"\x80"}}', id="in a field that is read"),
        pytest.param(
            b'{"metadata":{"name":3},"kind":{"":"\x85"}}', id="in one that is not, of an object that is wrong"
        ),
        pytest.param(b'{"spec":' * DEEP, id="nested too deep"),
    ],
)
def test_an_object_of_the_api(data):
    with pytest.raises(DecodeError, match=r"invalid JSON|Expected"):
        decode(Pod, data)


@pytest.mark.parametrize(
    ("form", "kind", "payload"),
    [
        pytest.param(
            SavedStateFormat(), "AgentMemory", b'{"statuses":{"u":{"phase":"\x80"}},"delays":[]}', id="a status"
        ),
        pytest.param(SavedStateFormat(), "AgentMemory", b'{"statuses":{},"delays":[{"uid":"\x80"}]}', id="a delay"),
        pytest.param(PodsFormat(), "AcceptedPods", b'{"nodeName":"\x80"}', id="pods: the name of the node"),
        pytest.param(KeptClusterFormat(), "OfflineSurroundings", b'{"nodeName":"\x80"}', id="surroundings"),
        pytest.param(
            PlainFormat(kind="ConfigMap", owner="a", struct=ConfigMap), "ConfigMap", b'{"owner":"\x80"}', id="an owner"
        ),
    ],
)
def test_a_checkpoint(form, kind, payload):
    with pytest.raises(CheckpointDamaged):
        form.decode(sealed(kind, payload))


def test_the_file_of_a_pods_ids():
    with pytest.raises(KletError, match="invalid user namespace mappings file"):
        decode_block(b'{"uidMappings":[{"hostId":"\x80"}]}')


def test_a_request_for_a_certificate():
    assert isinstance(respond(b'{"type":"\x80"}'), ChildRefusal)


@pytest.mark.parametrize("body", [b'{"a":"\x80"}', b"[" * DEEP], ids=["not UTF-8", "nested too deep"])
def test_a_patch_for_the_embedded_api(body):
    with pytest.raises(RequestRefused):
        Patch("application/merge-patch+json", body).apply({}, KINDS[0])


def test_the_state_of_klet_up(tmp_path):
    file = tmp_path / "file"
    file.write_bytes(b'{"origins":{"\x80":[]},"name":"\x80"}')
    assert read_applied(file) == Applied()
    with pytest.raises(DamagedRecord):
        read_record(file)
