import stat

import pytest

from klet.api.config import ConfigMap, Secret
from klet.api.meta import ObjectMeta
from klet.offline.object_files import NoFiles, ObjectFiles, file_name, file_stem
from klet.offline.object_formats import Known, PlainFormat, SealedFormat
from klet.offline.sealing import load_sealer
from klet.offline.store import KEY_SIZE
from klet.testing.clock import ManualClock

SEALER = load_sealer(bytes(KEY_SIZE))
CONFIG = ConfigMap(metadata=ObjectMeta(namespace="ns", name="cfg"), data={"a": "1"}, binary_data={"b": b"\x00\xff"})
SECRET = Secret(metadata=ObjectMeta(namespace="ns", name="key"), data={"password": b"hunter2\x00"})


def plain(owner):
    return PlainFormat(kind="KeptConfigMap", owner=owner, struct=ConfigMap)


def sealed(owner, sealer=SEALER):
    return SealedFormat(kind="KeptSecret", owner=owner, struct=Secret, sealer=sealer)


@pytest.fixture
def config_maps(tmp_path, threads):
    return ObjectFiles(directory=tmp_path / "configmaps", form=plain, threads=threads, clock=ManualClock())


@pytest.fixture
def secrets(tmp_path, threads):
    return ObjectFiles(directory=tmp_path / "secrets", form=sealed, threads=threads, clock=ManualClock())


async def test_the_newest_state_is_found(config_maps):
    assert await config_maps.find("ns/cfg") is None
    await config_maps.keep("ns/cfg", None, version="-")
    assert await config_maps.find("ns/cfg") == Known(None)
    await config_maps.keep("ns/cfg", CONFIG, version="1")
    assert await config_maps.find("ns/cfg") == Known(CONFIG)


async def test_a_version_is_written_once(config_maps, tmp_path):
    await config_maps.keep("ns/cfg", CONFIG, version="1")
    [file] = (tmp_path / "configmaps").iterdir()
    before = file.stat()
    await config_maps.keep("ns/cfg", CONFIG, version="1")
    assert file.stat().st_ino == before.st_ino
    await config_maps.keep("ns/cfg", ConfigMap(data={"a": "2"}), version="2")
    assert file.stat().st_ino != before.st_ino


async def test_no_secret_is_on_disk_in_plain_text(secrets, tmp_path):
    await secrets.keep("ns/key", SECRET, version="1")
    assert await secrets.find("ns/key") == Known(SECRET)
    [file] = (tmp_path / "secrets").iterdir()
    content = file.read_bytes()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    for form in (b"hunter2", b"aHVudGVyMgA", b"password"):
        assert form not in content


async def test_what_another_key_sealed_is_set_aside_and_reported(secrets, tmp_path, threads, caplog):
    await secrets.keep("ns/key", SECRET, version="1")
    await secrets.keep("ns/none", None, version="-")
    other = load_sealer(b"x" * KEY_SIZE)
    later = ObjectFiles(
        directory=tmp_path / "secrets",
        form=lambda owner: sealed(owner, other),
        threads=threads,
        clock=ManualClock(),
    )
    assert await later.find("ns/key") is None
    assert caplog.messages == ["Checkpoint is damaged and was set aside"]
    assert "another key" in caplog.records[0].rule
    assert await later.find("ns/none") == Known(None)
    await later.keep("ns/key", SECRET, version="1")
    assert await later.find("ns/key") == Known(SECRET)
    await later.retain(lambda _: False)
    assert [path.suffix for path in (tmp_path / "secrets").iterdir()] != [".json"]
    assert len(list((tmp_path / "secrets").iterdir())) == 1


async def test_the_file_of_one_object_is_not_taken_for_that_of_another(secrets, tmp_path):
    await secrets.keep("ns/key", SECRET, version="1")
    directory = tmp_path / "secrets"
    (directory / file_name("ns/key")).rename(directory / file_name("ns/other"))
    assert await secrets.find("ns/other") is None


async def test_what_nobody_wants_is_removed(config_maps):
    for name in ("a", "b", "c"):
        await config_maps.keep(f"ns/{name}", CONFIG, version="1")
    await config_maps.retain({file_name("ns/b")}.__contains__)
    assert [await config_maps.find(f"ns/{name}") for name in ("a", "b", "c")] == [None, Known(CONFIG), None]
    await config_maps.keep("ns/a", CONFIG, version="1")
    assert await config_maps.find("ns/a") == Known(CONFIG)


async def test_a_disk_that_refuses_is_reported_and_tried_again(tmp_path, threads, caplog):
    (tmp_path / "configmaps").write_bytes(b"in the way")
    files = ObjectFiles(directory=tmp_path / "configmaps", form=plain, threads=threads, clock=ManualClock())
    await files.keep("ns/cfg", CONFIG, version="1")
    assert await files.find("ns/cfg") is None
    assert caplog.messages == ["Not kept for the time without an API server", "What was kept cannot be read"]
    (tmp_path / "configmaps").unlink()
    await files.keep("ns/cfg", CONFIG, version="1")
    assert await files.find("ns/cfg") == Known(CONFIG)


async def test_without_a_key_nothing_is_kept():
    files: NoFiles[Secret] = NoFiles()
    await files.keep("ns/key", SECRET, version="1")
    assert await files.find("ns/key") is None
    await files.retain(lambda _: False)


@pytest.mark.parametrize("owner", ["a" * 63 + "/" + "b" * 253, "../../etc/passwd", ".hidden", "ns/ü", ""])
def test_every_owner_has_a_name_that_every_filesystem_takes(owner):
    name = file_name(owner)
    assert len(f".{name}.corrupt-20300101T000000Z-10") < 255
    assert "/" not in name
    assert not name.startswith(".")
    assert name.startswith(file_stem(owner))


def test_owners_that_look_alike_have_files_of_their_own():
    assert file_name("a/b.c") != file_name("a/b_c")
