"""`/checkpoint/`: what it asks of the runtime, where the archive goes, and every refusal."""

import json
import os
import re
import stat

import pytest

from klet.cri.errors import Code
from klet.server.routes.checkpoint import parse_timeout
from klet.testing.fake_runtime.faults import Fail, Fault

PATH = "/checkpoint/default/web/main"
NAME = re.compile(r"checkpoint-web_default-main-\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(Z|[+-]\d\d:\d\d)\.tar")


@pytest.fixture(autouse=True)
def _no_umask():
    before = os.umask(0)
    yield
    os.umask(before)


def requests(kubelet):
    return [call.request for call in kubelet.runtime.calls if call.rpc == "CheckpointContainer"]


async def test_a_checkpoint_is_a_file_of_roots_below_the_root_directory(kubelet):
    status, body = await kubelet.get(PATH, method="POST")
    assert status == 200
    (archive,) = json.loads(body)["items"]
    assert body == f'{{"items":["{archive}"]}}'
    (asked,) = requests(kubelet)
    assert asked.location == archive
    directory = kubelet.root / "checkpoints"
    (file,) = directory.iterdir()
    assert (str(file), bool(NAME.fullmatch(file.name))) == (archive, True)
    assert file.read_bytes() == b"checkpoint of " + asked.container_id.encode()
    assert [stat.S_IMODE(path.stat().st_mode) for path in (directory, file)] == [0o700, 0o600]


@pytest.mark.parametrize(
    ("query", "seconds"),
    [
        pytest.param("", 120, id="the default"),
        pytest.param("?timeout=5", 120, id="shorter than the request timeout"),
        pytest.param("?timeout=500", 500, id="longer"),
        pytest.param("?timeout=x&timeout=700", 700, id="the last one counts"),
        pytest.param("?timeout=9223372036854775807", 2**63 - 1, id="as long as can be"),
    ],
)
async def test_the_timeout_that_the_runtime_is_given(kubelet, query, seconds):
    assert (await kubelet.get(PATH + query, method="POST"))[0] == 200
    assert requests(kubelet)[0].timeout == seconds


@pytest.mark.parametrize(
    ("path", "status", "body"),
    [
        pytest.param("/checkpoint/default/gone/main", 404, "pod does not exist", id="an unknown pod"),
        pytest.param("/checkpoint/default/web/none", 404, "container none does not exist", id="an unknown container"),
        pytest.param(f"{PATH}?timeout=5s", 404, "cannot parse value of timeout parameter", id="no number"),
        pytest.param(f"{PATH}?timeout=", 404, "cannot parse value of timeout parameter", id="an empty timeout"),
        pytest.param(
            f"{PATH}?timeout=-1",
            500,
            "checkpointing of default/web/main failed (rpc error: code = InvalidArgument desc = "
            "CheckpointContainer requires the timeout value to be > 0)",
            id="a negative timeout",
        ),
        pytest.param("/checkpoint/default/web", 404, "404: Page Not Found", id="no container"),
    ],
)
async def test_refusals(kubelet, path, status, body):
    assert await kubelet.get(path, method="POST") == (status, body)
    assert requests(kubelet) == []


async def test_a_container_that_does_not_run(kubelet):
    for container in kubelet.runtime.containers():
        kubelet.runtime.end_container(container.id, 0)
    text = "checkpointing of default/web/main failed (container main not found)"
    assert await kubelet.get(PATH, method="POST") == (500, text)


async def test_a_runtime_that_fails(kubelet):
    kubelet.runtime.faults.add(Fault("CheckpointContainer", Fail(Code.UNKNOWN, "no criu")))
    text = "checkpointing of default/web/main failed (rpc error: code = Unknown desc = no criu)"
    assert await kubelet.get(PATH, method="POST") == (500, text)


async def test_a_runtime_without_checkpoints(start):
    async with start(has_checkpoints=False) as kubelet:
        status, body = await kubelet.get(PATH, method="POST")
        assert status == 500
        assert "code = Unimplemented" in body


async def test_other_methods_and_other_formats(kubelet):
    assert (await kubelet.get(PATH))[0] == 405
    assert (await kubelet.get(PATH, method="POST", headers={"Accept": "text/html"}))[0] == 406
    assert requests(kubelet) == []


async def test_a_link_instead_of_the_directory_is_not_followed(kubelet, tmp_path):
    kubelet.root.mkdir()
    (tmp_path / "elsewhere").mkdir()
    (kubelet.root / "checkpoints").symlink_to(tmp_path / "elsewhere")
    status, body = await kubelet.get(PATH, method="POST")
    assert (status, "links are not followed" in body or "Not a directory" in body) == (500, True)
    assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.mark.parametrize(
    ("given", "expected"),
    [([], 0), (["1", "2"], 2), (["+7"], 7), (["-7"], -7), ([" 7"], None), (["9" * 30], None), (["\u0667"], None)],
)
def test_timeouts(given, expected):
    assert parse_timeout(given) == expected
