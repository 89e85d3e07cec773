"""The node's own registry logins."""

import json
from datetime import timedelta
from pathlib import Path

import pytest

from klet.images.node_logins import KEPT_FOR, NodeLoginFiles, NoNodeLogins, find_login_files, read_first
from klet.testing.clock import ManualClock


class InlineThreads:
    """Runs on the spot what would run on a thread."""

    async def run(self, function, *args, **kwargs):
        return function(*args, **kwargs)


def entry(name):
    return {"quay.io": {"username": name, "password": "hidden"}}


def put(path: Path, name: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {"auths": entry(name)} if path.name == "config.json" else entry(name)
    path.write_text(json.dumps(content))


def user_of(logins):
    return [login.username for login in logins.values()]


def test_where_logins_are_looked_for():
    assert [str(path) for path, _ in find_login_files(Path("/var/lib/kubelet"), Path("/root"))] == [
        "/var/lib/kubelet/config.json", "config.json", "/root/.docker/config.json", "/.docker/config.json",
        "/var/lib/kubelet/.dockercfg", ".dockercfg", "/root/.dockercfg", "/.dockercfg",
    ]  # fmt: skip


def test_a_node_without_a_home():
    assert [str(path) for path, _ in find_login_files(Path("/r"), None)] == [
        "/r/config.json", "config.json", "/.docker/config.json", "/r/.dockercfg", ".dockercfg", "/.dockercfg",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        pytest.param([], [], id="none"),
        pytest.param(["home/.dockercfg"], ["home/.dockercfg"], id="only an old one"),
        pytest.param(["root/.dockercfg", "home/.docker/config.json"], ["home/.docker/config.json"],
                     id="any new one before the old ones"),
        pytest.param(["home/.docker/config.json", "root/config.json"], ["root/config.json"],
                     id="the root directory before the others"),
    ],
)  # fmt: skip
def test_the_first_file_counts(tmp_path, files, expected):
    for file in files:
        put(tmp_path / file, file)
    places = [place for place in find_login_files(tmp_path / "root", tmp_path / "home") if tmp_path in place[0].parents]
    assert user_of(read_first(places)) == expected


def test_a_file_that_cannot_be_read_is_reported_and_passed_over(tmp_path, caplog):
    put(tmp_path / "root" / "config.json", "first")
    (tmp_path / "root" / "config.json").write_text('{"auths": {"quay.io": {"auth": "hidden"}}}')
    put(tmp_path / "home" / ".dockercfg", "second")
    places = [place for place in find_login_files(tmp_path / "root", tmp_path / "home") if tmp_path in place[0].parents]
    assert user_of(read_first(places)) == ["second"]
    [record] = caplog.records
    assert record.path == str(tmp_path / "root" / "config.json")
    assert "hidden" not in f"{record.error} {caplog.text}"


async def test_they_are_read_again_after_a_while(tmp_path):
    clock = ManualClock()
    logins = NodeLoginFiles(root=tmp_path, home=None, threads=InlineThreads(), clock=clock)
    put(tmp_path / "config.json", "old")
    assert user_of(await logins.read()) == ["old"]
    put(tmp_path / "config.json", "new")
    await clock.run(KEPT_FOR - timedelta(seconds=1))
    assert user_of(await logins.read()) == ["old"]
    await clock.run(timedelta(seconds=1))
    assert user_of(await logins.read()) == ["new"]


async def test_a_node_that_logs_in_nowhere():
    assert await NoNodeLogins().read() == {}
