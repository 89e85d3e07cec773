import os
import stat
import time
from datetime import timedelta
from pathlib import Path

import pytest

from klet.certs.errors import PairDamaged, PairError, PairMissing
from klet.certs.store import CLIENT_PREFIX, PairStore
from klet.testing.clock import ManualClock

SECOND = timedelta(seconds=1)


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def directory(tmp_path):
    return tmp_path / "pki"


@pytest.fixture
def store(directory, clock):
    return PairStore(prefix=CLIENT_PREFIX, directory=directory, configured=None, clock=clock)


def dated(directory, clock):
    return directory / f"kubelet-client-{clock.now().astimezone():%Y-%m-%d-%H-%M-%S}.pem"


def names(directory):
    return sorted(path.name for path in directory.iterdir())


def test_an_update_is_in_force_at_once(store, directory, clock, pair):
    stored = store.update(pair.certificate, pair.key)
    file = dated(directory, clock)
    assert file.read_text() == pair.certificate + pair.key
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(directory.stat().st_mode) == 0o755
    assert names(directory) == [file.name, "kubelet-client-current.pem"]
    assert (stored.certificate_file, stored.key_file, stored.certificate) == (file, file, pair.certificate)
    assert store.load() == stored


def test_the_date_is_local_time(store, directory, clock, pair, monkeypatch):
    monkeypatch.setenv("TZ", "XYZ-5:30")
    time.tzset()
    try:
        store.update(pair.certificate, pair.key)
    finally:
        monkeypatch.undo()
        time.tzset()
    assert clock.now().isoformat() == "2030-01-01T00:00:00+00:00"
    assert "kubelet-client-2030-01-01-05-30-00.pem" in names(directory)


def test_the_link_is_absolute_even_if_the_directory_is_not(clock, pair, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    store = PairStore(prefix=CLIENT_PREFIX, directory=Path("pki"), configured=None, clock=clock)
    store.update(pair.certificate, pair.key)
    assert (tmp_path / "pki" / "kubelet-client-current.pem").readlink() == dated(tmp_path / "pki", clock)


def test_the_newest_counts_and_the_older_ones_stay(store, directory, clock, new_pair):
    for name in ("one", "two", "three"):
        made = new_pair(name)
        store.update(made.certificate, made.key)
        clock.advance(SECOND)
    assert store.load().certificate == made.certificate
    assert len(list(directory.glob("kubelet-client-20*.pem"))) == 3


def test_two_updates_in_one_second(store, directory, new_pair):
    for name in ("one", "two"):
        made = new_pair(name)
        store.update(made.certificate, made.key)
    assert store.load().certificate == made.certificate
    assert len(names(directory)) == 2


def test_what_stands_between_certificates_is_not_kept(store, pair, authority_files):
    authority = authority_files[0].read_text()
    stored = store.update(f"words\n{pair.certificate}{pair.key}{authority}", pair.key)
    assert stored.certificate_file.read_text() == pair.certificate + authority + pair.key


@pytest.mark.parametrize(
    ("damage", "rule"),
    [
        pytest.param(lambda pair, other: (pair.certificate, other), "the key does not belong", id="a foreign key"),
        pytest.param(lambda pair, _: ("", pair.key), "holds no PEM certificate", id="no certificate"),
        pytest.param(lambda pair, _: (pair.certificate, ""), "holds no PEM private key", id="no key"),
    ],
)
def test_what_is_no_pair_changes_nothing(store, directory, clock, pair, other_key, damage, rule):
    before = store.update(pair.certificate, pair.key)
    clock.advance(SECOND)
    listed = names(directory)
    with pytest.raises(PairDamaged, match=f"{dated(directory, clock)}: not written: {rule}"):
        store.update(*damage(pair, other_key))
    assert names(directory) == listed
    assert store.load() == before


@pytest.mark.parametrize("name", ["kubelet-client-current.pem", "kubelet-client-updated.pem"])
def test_a_file_in_place_of_a_link_stops_an_update(store, directory, pair, name):
    directory.mkdir()
    (directory / name).write_text("mine")
    with pytest.raises(PairError, match=f"expected {directory}/{name} to be a symlink but it is a file"):
        store.update(pair.certificate, pair.key)
    assert (directory / name).read_text() == "mine"


def test_a_link_left_over_is_replaced(store, directory, pair):
    directory.mkdir()
    (directory / "kubelet-client-updated.pem").symlink_to("/nowhere")
    stored = store.update(pair.certificate, pair.key)
    assert store.load() == stored
    assert not os.path.lexists(directory / "kubelet-client-updated.pem")


class TestLoad:
    def test_nothing_there(self, store, directory):
        with pytest.raises(PairMissing) as caught:
            store.load()
        assert str(caught.value) == (
            f"no certificate and key at {directory}/kubelet-client-current.pem"
            f" or {directory}/kubelet-client.crt and {directory}/kubelet-client.key"
        )

    def test_the_order(self, directory, clock, new_pair, tmp_path):
        configured = (tmp_path / "my.crt", tmp_path / "my.key")
        plain = (directory / "kubelet-client.crt", directory / "kubelet-client.key")
        directory.mkdir()
        made = {name: new_pair(name) for name in ("current", "configured", "plain")}
        for (certificate_file, key_file), name in ((configured, "configured"), (plain, "plain")):
            certificate_file.write_text(made[name].certificate)
            key_file.write_text(made[name].key)
        store = PairStore(prefix=CLIENT_PREFIX, directory=directory, configured=configured, clock=clock)
        store.update(made["current"].certificate, made["current"].key)
        found = [store.load().certificate]
        store.current_path.unlink()
        found.append(store.load().certificate)
        configured[1].unlink()
        found.append(store.load().certificate)
        assert found == [made[name].certificate for name in ("current", "configured", "plain")]

    def test_an_update_that_was_cut_short_is_finished(self, store, directory, pair):
        stored = store.update(pair.certificate, pair.key)
        (directory / "kubelet-client-current.pem").rename(directory / "kubelet-client-updated.pem")
        assert store.load() == stored
        assert "kubelet-client-current.pem" in names(directory)
        assert "kubelet-client-updated.pem" not in names(directory)

    def test_a_dangling_link_counts_as_none(self, store, directory):
        directory.mkdir()
        store.current_path.symlink_to(directory / "gone.pem")
        with pytest.raises(PairMissing):
            store.load()

    def test_an_updated_file_that_is_no_link_is_an_error(self, store, directory):
        directory.mkdir()
        (directory / "kubelet-client-updated.pem").write_text("mine")
        with pytest.raises(PairError, match="to be a symlink but it is a file"):
            store.load()

    @pytest.mark.parametrize("content", ["", "nonsense"])
    def test_a_damaged_one_is_an_error_and_nothing_else_is_tried(self, store, directory, pair, content):
        stored = store.update(pair.certificate, pair.key)
        (directory / "kubelet-client.crt").write_text(pair.certificate)
        (directory / "kubelet-client.key").write_text(pair.key)
        stored.certificate_file.write_text(content)
        with pytest.raises(PairDamaged) as caught:
            store.load()
        assert str(caught.value) == (
            f"{stored.certificate_file}: holds no PEM certificate; "
            f"remove {store.current_path} to have a new one requested"
        )

    def test_a_file_that_the_go_kubelet_wrote_is_read(self, store, directory, pair):
        """Same name, same content, same link."""
        directory.mkdir()
        file = directory / "kubelet-client-2029-12-31-23-59-59.pem"
        file.write_text(pair.certificate + pair.key)
        store.current_path.symlink_to(file)
        assert store.load().certificate_file == file


def test_a_directory_that_cannot_be_made(clock, tmp_path, pair):
    (tmp_path / "file").write_text("")
    store = PairStore(prefix=CLIENT_PREFIX, directory=tmp_path / "file" / "pki", configured=None, clock=clock)
    with pytest.raises(PairError, match=r"cannot store a certificate at .*: Not a directory"):
        store.update(pair.certificate, pair.key)
