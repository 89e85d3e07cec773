"""Settings against the machine, and paths against what is there."""

import socket
from pathlib import Path

import pytest
from msgspec.structs import replace
from msgspec.structs import replace as change

from klet.config.command_line import Settings, parse_command_line
from klet.config.errors import ConfigError
from klet.config.sections import MemorySwap
from klet.host.machine.info import Cpu, MachineInfo
from klet.node.machine_checks import check_machine, check_paths, check_storage
from klet.node.settings import NodeSettings, cut_reservations

GIB = 1 << 30
CPUS = tuple(Cpu(number, core=number, socket=0, node=0) for number in range(4))
MACHINE = MachineInfo(hostname="node", cpus=4, agent_cpus=2, memory=8 * GIB, topology=CPUS)
V1 = replace(MACHINE, cgroup_version=1)


def settings(*arguments: str, **changes) -> Settings:
    """Settings by flags, and by fields of the configuration that have no flag."""

    def missing(path: str):
        raise FileNotFoundError(path)

    parsed = parse_command_line(("--address=127.0.0.1", *arguments), read_file=missing, list_dir=missing)
    assert isinstance(parsed, Settings)
    return change(parsed, config=replace(parsed.config, **changes))


@pytest.mark.parametrize(
    ("given", "machine", "message"),
    [
        pytest.param(settings(), replace(MACHINE, has_swap=True), "running with swap on is not supported, please "
                     "disable swap or set --fail-swap-on flag to false", id="swap"),
        pytest.param(settings(memory_swap=MemorySwap(swap_behavior="LimitedSwap")), V1, 'memorySwap.swapBehavior '
                     '"LimitedSwap" needs cgroup v2', id="limited swap on cgroup v1"),
        pytest.param(settings("--reserved-cpus=1-9"), MACHINE, "reserved-cpus: 1-9 is not a subset of online-cpus: 0-3",
                     id="CPUs that are not there"),
        pytest.param(settings("--kube-reserved=cpu=3,memory=5Gi", "--system-reserved=cpu=2,memory=4Gi"), MACHINE,
                     'invalid Node Allocatable configuration. Resource "cpu" has a reservation of 5 but capacity of 4. '
                     'Expected capacity >= reservation. Resource "memory" has a reservation of 9Gi but capacity of 8Gi.'
                     " Expected capacity >= reservation. Lower kubeReserved", id="more reserved than there is"),
        pytest.param(settings("--kube-reserved=memory=7Gi", "--eviction-hard=memory.available<2Gi"), MACHINE,
                     'invalid Node Allocatable configuration. Resource "memory" has a reservation of 9Gi',
                     id="what eviction keeps counts"),
        pytest.param(settings("--kube-reserved=memory=7Gi", "--eviction-hard=memory.available<50%"), MACHINE,
                     'invalid Node Allocatable configuration. Resource "memory" has a reservation of 11Gi',
                     id="also as a share"),
    ],
)  # fmt: skip
def test_what_the_machine_cannot_keep(given, machine, message):
    with pytest.raises(ConfigError) as caught:
        check_machine(given, machine)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("given", "machine"),
    [
        pytest.param(settings(), MACHINE, id="defaults"),
        pytest.param(settings("--fail-swap-on=false"), replace(MACHINE, has_swap=True), id="swap that is allowed"),
        pytest.param(settings("--reserved-cpus=0-3"), MACHINE, id="all CPUs reserved"),
        pytest.param(settings("--reserved-cpus=0-9"), replace(MACHINE, topology=(), cpus=10),
                     id="CPUs that nobody can count"),
        pytest.param(settings("--kube-reserved=cpu=4"), MACHINE, id="the agent itself may be kept on fewer CPUs"),
        pytest.param(settings("--kube-reserved=memory=8Gi", "--eviction-hard=memory.available<1Gi",
                              "--experimental-allocatable-ignore-eviction"), MACHINE, id="eviction left out"),
    ],
)  # fmt: skip
def test_what_it_can(given, machine):
    check_machine(given, machine)


@pytest.fixture
def check(tmp_path):
    """Check a root and a socket below a directory."""

    def check(root: str, socket: str = ""):
        check_paths(root=tmp_path / root, socket=tmp_path / (socket or f"{root}/klet.sock"))

    return check


def test_a_root_that_is_still_to_be_made(check, tmp_path):
    check("a/b")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("root", ["file", "file/below"])
def test_a_file_where_the_root_should_be(check, tmp_path, root):
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=f"--root-dir {tmp_path}/{root}: {tmp_path}/file is not a directory"):
        check(root)


def test_a_root_whose_name_no_file_system_takes(check):
    with pytest.raises(ConfigError, match=r"--root-dir or --klet-socket .*: File name too long"):
        check("x" * 256, socket="s")


def test_a_file_where_the_socket_should_be_is_not_removed(check, tmp_path):
    file = tmp_path / "precious"
    file.touch()
    with pytest.raises(ConfigError, match=f"{file} exists and is not a socket: klet would have to remove it"):
        check("root", socket="precious")
    assert file.exists()


def test_the_socket_of_a_previous_run_is_fine(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # the whole path may be too long for a socket
    with socket.socket(socket.AF_UNIX) as earlier:
        earlier.bind("s")
        check_paths(root=tmp_path / "root", socket=Path("s"))


def test_a_socket_in_a_directory_that_is_not_there(check, tmp_path):
    with pytest.raises(ConfigError, match=f"there is no directory {tmp_path}/nowhere: make it first"):
        check("root", socket="nowhere/s")


@pytest.mark.parametrize(
    ("size", "counts", "fails"),
    [
        pytest.param(GIB, True, True, id="less than is reserved"),
        pytest.param(3 * GIB, True, False, id="more than is reserved"),
        pytest.param(GIB, False, False, id="local storage that is no resource"),
        pytest.param(None, True, False, id="a size that is not known"),
    ],
)
def test_reserved_storage(size, counts, fails):
    reservations = cut_reservations(settings("--kube-reserved=ephemeral-storage=2Gi").config)
    node = NodeSettings(name="n", counts_storage=counts, reservations=reservations)
    if not fails:
        check_storage(size, node)
        return
    with pytest.raises(ConfigError) as caught:
        check_storage(size, node)
    assert str(caught.value).startswith(
        'invalid Node Allocatable configuration. Resource "ephemeral-storage" has a reservation of '
    )
