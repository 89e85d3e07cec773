"""What a pod has on disk: directories, hosts file, termination logs, volumes, and their removal."""

import asyncio
import os
import stat
import threading
from pathlib import Path

import pytest
from msgspec.structs import replace

from klet.aio.threads import Threads
from klet.api.pod import HostAlias, Pod
from klet.errors import KletError
from klet.host.errors import HostError
from klet.model.pods import BadPodUID, PodUID
from klet.runtime.config.container_planner import ContainerFiles
from klet.runtime.pod_files import PodFiles
from klet.testing.builders import make_container, make_pod

MAIN = make_container("main")
HEAD = """\
# Kubernetes-managed hosts file.
127.0.0.1\tlocalhost
::1\tlocalhost ip6-localhost ip6-loopback
fe00::0\tip6-localnet
fe00::0\tip6-mcastprefix
fe00::1\tip6-allnodes
fe00::2\tip6-allrouters
"""


@pytest.fixture
def threads():
    threads = Threads(limit=1)
    yield threads
    threads.close()


@pytest.fixture
def files(tmp_path, threads) -> PodFiles:
    return PodFiles(root=tmp_path / "root", logs=tmp_path / "logs", cluster_domain="cluster.local", threads=threads)


def pod_with(**spec) -> Pod:
    pod = make_pod(MAIN, name="web", uid="u-1")
    return replace(pod, spec=replace(pod.spec, **spec))


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def text_of(path: str) -> str:
    return Path(path).read_text()


async def made_for(files: PodFiles, pod: Pod, *, ips: tuple[str, ...] = ()) -> ContainerFiles:
    await files.prepare_pod(pod)
    return await files.prepare_container(pod, MAIN, pod_ips=ips)


async def test_directories_of_a_pod_have_their_modes_whatever_the_umask(files, tmp_path):
    before = os.umask(0o077)
    try:
        await files.prepare_pod(pod_with())
        await files.prepare_pod(pod_with())
    finally:
        os.umask(before)
    home = tmp_path / "root/pods/u-1"
    modes = {path.name: mode_of(path) for path in (home, *home.iterdir())}
    assert modes == {"u-1": 0o750, "volumes": 0o750, "plugins": 0o750, "containers": 0o750}
    assert mode_of(tmp_path / "logs/default_web_u-1") == 0o755


@pytest.mark.parametrize(
    ("spec", "ips", "tail"),
    [
        pytest.param({}, ("10.0.0.1",), "10.0.0.1\tweb\n", id="one address"),
        pytest.param({}, ("10.0.0.1", "fd00::1"), "10.0.0.1\tweb\nfd00::1\tweb\n", id="two addresses"),
        pytest.param(
            {"subdomain": "s"},
            ("10.0.0.1",),
            "10.0.0.1\tweb.s.default.svc.cluster.local\tweb\n",
            id="a subdomain",
        ),
        pytest.param(
            {
                "host_aliases": (
                    HostAlias(ip="1.2.3.4", hostnames=("a", "b")),
                    HostAlias(ip="5.6.7.8", hostnames=("c",)),
                )
            },
            ("10.0.0.1",),
            "10.0.0.1\tweb\n\n# Entries added by HostAliases.\n1.2.3.4\ta\tb\n5.6.7.8\tc\n",
            id="aliases",
        ),
    ],
)
async def test_hosts_file(files, spec, ips, tail):
    made = await made_for(files, pod_with(**spec), ips=ips)
    assert text_of(made.hosts_file) == HEAD + tail
    assert mode_of(Path(made.hosts_file)) == 0o644


async def test_hosts_file_on_the_hosts_network_is_the_hosts(files):
    aliases = (HostAlias(ip="1.2.3.4", hostnames=("a",)),)
    made = await made_for(files, pod_with(host_network=True, host_aliases=aliases))
    text = text_of(made.hosts_file)
    own = text_of("/etc/hosts")
    assert text == (
        f"# Kubernetes-managed hosts file (host network).\n{own}\n# Entries added by HostAliases.\n1.2.3.4\ta\n"
    )


async def test_a_pod_without_an_address_gets_no_hosts_file(files):
    assert (await files.prepare_container(pod_with(), MAIN, pod_ips=())).hosts_file == ""


async def test_the_hosts_file_is_rewritten_for_each_start_and_running_containers_see_it(files, tmp_path):
    made = await made_for(files, pod_with(), ips=("10.0.0.1",))
    os.link(made.hosts_file, tmp_path / "mounted")
    await made_for(files, pod_with(), ips=("10.0.0.2",))
    assert text_of(str(tmp_path / "mounted")) == HEAD + "10.0.0.2\tweb\n"


async def test_each_start_has_a_termination_log_of_its_own(files, tmp_path):
    made = [Path((await files.prepare_container(pod_with(), MAIN, pod_ips=())).termination_log) for _ in range(2)]
    assert made[0] != made[1]
    for path in made:
        assert path.parent == tmp_path / "root/pods/u-1/containers/main"
        assert (len(path.name), path.read_bytes(), mode_of(path)) == (8, b"", 0o666)
        assert int(path.name, 16) >= 0
    assert mode_of(made[0].parent) == 0o750
    assert mode_of(tmp_path / "logs/default_web_u-1/main") == 0o755


async def test_a_container_starts_without_a_termination_log_if_it_must(files, tmp_path):
    (tmp_path / "root/pods/u-1").mkdir(parents=True)
    (tmp_path / "root/pods/u-1/containers").write_text("in the way")
    made = await files.prepare_container(pod_with(), MAIN, pod_ips=("10.0.0.1",))
    assert made.termination_log == ""
    assert made.hosts_file


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        pytest.param([], 0, id="no logs"),
        pytest.param(["0.log", "1.log", "1.log.20300101"], 2, id="logs"),
        pytest.param(["7.log/"], 0, id="a directory is no log"),
        pytest.param(["1.log", f"{9 * 10**18}.log", "\u0669.log"], 2, id="counts that no container can have"),
    ],
)
async def test_restart_count_by_the_logs(files, tmp_path, names, expected):
    directory = tmp_path / "logs/default_web_u-1/main"
    directory.mkdir(parents=True)
    for name in names:
        if name.endswith("/"):
            (directory / name).mkdir()
        else:
            (directory / name).touch()
    assert await files.next_restart_count(pod_with(), "main") == expected


async def test_restart_count_without_readable_logs_is_zero(files, tmp_path):
    assert await files.next_restart_count(pod_with(), "main") == 0
    (tmp_path / "logs/default_web_u-1").mkdir(parents=True)
    (tmp_path / "logs/default_web_u-1/main").write_text("not a directory")
    assert await files.next_restart_count(pod_with(), "main") == 0


async def test_pods_on_disk_are_those_with_data(files, tmp_path):
    assert await files.pods_on_disk() == frozenset()
    for name in ("u-1", "lost+found", ".hidden", "a_b"):
        (tmp_path / "root/pods" / name).mkdir(parents=True)
    for name in ("default_web_u-2", "stray", "x_y_..", "x_y_.", "x_y_"):
        (tmp_path / "logs" / name).mkdir(parents=True)
    assert await files.pods_on_disk() == {"u-1"}


@pytest.mark.parametrize("uid", ["", ".", "..", "../u-2", "u-2/volumes", "a\0"])
async def test_what_is_no_uid_removes_nothing(files, tmp_path, uid):
    await files.prepare_pod(pod_with())
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(KletError, match="no plain name"):
        await files.remove_pod(uid)
    assert sorted(tmp_path.rglob("*")) == before


async def test_a_pod_without_a_valid_uid_gets_no_directories(files, tmp_path):
    pod = replace(pod_with(), metadata=replace(pod_with().metadata, uid=".."))
    with pytest.raises(BadPodUID, match=r"invalid pod UID '\.\.': must be at most 253 letters"):
        await files.prepare_pod(pod)
    assert list(tmp_path.iterdir()) == []


class TestLinks:
    """Somebody who may write to the directories has put links there."""

    @pytest.fixture
    def secret(self, tmp_path):
        directory = tmp_path / "secret"
        directory.mkdir(mode=0o700)
        (directory / "0.log").write_text("secret")
        (directory / "0.log").chmod(0o600)
        return directory

    def assert_untouched(self, secret):
        assert {path.name: (path.read_text(), mode_of(path)) for path in secret.iterdir()} == {
            "0.log": ("secret", 0o600)
        }
        assert mode_of(secret) == 0o700

    @pytest.mark.parametrize("place", ["logs/default_web_u-1", "logs/default_web_u-1/main", "logs"])
    async def test_a_linked_log_directory_is_refused_and_its_mode_stays(self, files, tmp_path, secret, place):
        await files.prepare_pod(pod_with())
        path = tmp_path / place
        if path.exists():
            path.rename(tmp_path / "away")
        path.symlink_to(secret)
        with pytest.raises(HostError, match="cannot make"):
            await made_for(files, pod_with(), ips=("10.0.0.1",))
        self.assert_untouched(secret)

    async def test_a_linked_hosts_file_is_not_written_through(self, files, tmp_path, secret):
        await files.prepare_pod(pod_with())
        (tmp_path / "root/pods/u-1/etc-hosts").symlink_to(secret / "0.log")
        with pytest.raises(HostError, match="links are not followed"):
            await files.prepare_container(pod_with(), MAIN, pod_ips=("10.0.0.1",))
        self.assert_untouched(secret)

    async def test_a_pipe_for_a_hosts_file_keeps_nobody_waiting(self, files, tmp_path):
        await files.prepare_pod(pod_with())
        os.mkfifo(tmp_path / "root/pods/u-1/etc-hosts")
        with pytest.raises(HostError):
            await files.prepare_container(pod_with(), MAIN, pod_ips=("10.0.0.1",))

    async def test_a_linked_directory_gets_no_termination_log(self, files, tmp_path, secret):
        await files.prepare_pod(pod_with())
        (tmp_path / "root/pods/u-1/containers/main").symlink_to(secret)
        assert (await files.prepare_container(pod_with(), MAIN, pod_ips=())).termination_log == ""
        self.assert_untouched(secret)

    async def test_removal_takes_the_links_only(self, files, tmp_path, secret):
        await files.prepare_pod(pod_with())
        (tmp_path / "logs/default_web_u-1/main").symlink_to(secret)
        (tmp_path / "logs/other_web_u-1").symlink_to(secret)
        (tmp_path / "root/pods/u-1/volumes/link").symlink_to(secret)
        await files.remove_pod(PodUID("u-1"))
        assert list((tmp_path / "logs").iterdir()) == []
        assert list((tmp_path / "root/pods").iterdir()) == []
        self.assert_untouched(secret)

    async def test_logs_behind_a_link_are_not_counted(self, files, tmp_path, secret):
        (tmp_path / "logs/default_web_u-1").mkdir(parents=True)
        (tmp_path / "logs/default_web_u-1/main").symlink_to(secret)
        assert await files.next_restart_count(pod_with(), "main") == 0


async def test_directories_that_were_there_keep_their_modes(files, tmp_path):
    await made_for(files, pod_with())
    (tmp_path / "logs/default_web_u-1/main").chmod(0o777)
    await made_for(files, pod_with())
    assert mode_of(tmp_path / "logs/default_web_u-1/main") == 0o777


async def test_removal_takes_data_and_logs_of_that_pod_only(files, tmp_path):
    other = replace(pod_with(), metadata=replace(pod_with().metadata, uid="u-2"))
    for pod in (pod_with(), other):
        await files.prepare_pod(pod)
        await files.prepare_container(pod, MAIN, pod_ips=("10.0.0.1",))
    await files.remove_pod(PodUID("u-1"))
    await files.remove_pod(PodUID("u-1"))
    assert await files.pods_on_disk() == {"u-2"}
    assert files.log_path(other, "main", 0).parent.is_dir()
    assert not files.log_path(pod_with(), "main", 0).parent.parent.exists()


async def test_a_hosts_file_of_megabytes_is_whole_and_does_not_hold_up_the_loop(files, threads):
    """Nobody limits hostAliases but the size of a manifest: the file is made on a thread, so that others go on."""
    names = tuple(f"host-{number}.example.internal" for number in range(50))
    aliases = tuple(HostAlias(ip=f"10.0.{high}.{low}", hostnames=names) for high in range(16) for low in range(256))
    pod = pod_with(host_aliases=aliases)
    await files.prepare_pod(pod)
    is_free = threading.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(threads.run(is_free.wait, 20))  # the only thread is taken
        making = group.create_task(files.prepare_container(pod, MAIN, pod_ips=("10.1.0.7",)))
        for _ in range(10):
            await asyncio.sleep(0)
        assert not making.done()
        is_free.set()
    text = text_of(making.result().hosts_file)
    assert len(text) > 4_000_000
    assert text.endswith("10.0.15.255\t" + "\t".join(names) + "\n")
    assert text.count("\n10.0.") == len(aliases)
