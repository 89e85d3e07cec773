"""Facts that follow from others."""

import pytest

from klet.host.machine.info import Cpu, MachineInfo, go_architecture, is_in_user_namespace


def test_online_cpus_and_sizes_of_huge_pages():
    machine = MachineInfo(
        cpus=2, memory=1, topology=(Cpu(0, 0, 0, 0), Cpu(4, 1, 0, 0)), hugepages={1 << 30: 0, 2 << 20: 3}
    )
    assert machine.online_cpus == {0, 4}
    assert machine.hugepage_sizes == (2 << 20, 1 << 30)


@pytest.mark.parametrize(
    ("machine", "architecture"),
    [
        pytest.param("x86_64", "amd64", id="Intel and AMD"),
        pytest.param("aarch64", "arm64", id="ARM"),
        pytest.param("riscv64", "riscv64", id="an architecture with one name"),
    ],
)
def test_names_of_architectures(machine, architecture):
    assert go_architecture(machine) == architecture


@pytest.mark.parametrize(
    ("uid_map", "is_inside"),
    [
        pytest.param("         0          0 4294967295\n", False, id="the machine's own ids"),
        pytest.param("0 100000 65536\n", True, id="a block of the machine's ids"),
        pytest.param("0 1000 1\n1 100000 65536\n", True, id="a rootless node"),
        pytest.param("0 0 65536\n", True, id="only some of the ids"),
        pytest.param("\n", True, id="no ids yet"),
        pytest.param("", False, id="an empty file"),
        pytest.param("odd\n", False, id="a line that says nothing"),
    ],
)
def test_user_namespaces(uid_map, is_inside):
    assert is_in_user_namespace(uid_map) is is_inside
