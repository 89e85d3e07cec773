import os

import pytest

from klet.host.process_counts import ProcessCounter, parse_max_open_files, parse_net_dev, parse_pids
from klet.model.stats import InterfaceCounters

TABLE = b"""Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes packets errs drop fifo colls carrier compressed
    lo:     100       1    0    0    0     0          0         0      100       1    0    0    0     0       0        0
  eth0:    1000      10    1    2    0     0          0         0     2000      20    3    4    0     0       0        0
veth1234:  1000      10    1    2    0     0          0         0     2000      20    3    4    0     0       0        0
Docker0:      1       1    1    1    0     0          0         0        1       1    1    1    0     0       0        0
 wlan0: nonsense
"""


def test_interfaces_without_those_that_cadvisor_skips():
    assert parse_net_dev(TABLE) == (InterfaceCounters("eth0", 1000, 10, 1, 2, 2000, 20, 3, 4),)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(b"Max open files            1024                 4096                 files\n", 1024, id="soft"),
        pytest.param(b"Max open files            unlimited            unlimited            files\n", None, id="none"),
        pytest.param(
            b"Max processes             1                    1                    processes\n", None, id="other"
        ),
        pytest.param(b"", None, id="ended"),
    ],
)
def test_the_soft_limit_of_open_files(text, expected):
    assert parse_max_open_files(text) == expected


def test_processes_of_other_namespaces_are_not_counted():
    assert parse_pids(b"12\n0\n7\n") == [12, 7]


def test_open_files_and_sockets_of_a_process(tmp_path):
    files = tmp_path / "7" / "fd"
    files.mkdir(parents=True)
    for number, target in enumerate(("socket:[1]", "/dev/null", "pipe:[2]")):
        (files / str(number)).symlink_to(target)
    assert ProcessCounter(proc=tmp_path).open_files([7, 8]) == (3, 1)


def test_the_oldest_process_is_the_first_of_a_container(tmp_path):
    for pid, started in ((30, 500), (40, 400), (50, 600)):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "stat").write_text(f"{pid} (x) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 {started} 0 0\n")
    counter = ProcessCounter(proc=tmp_path)
    assert (counter.oldest([30, 40, 50]), counter.oldest([30]), counter.oldest([])) == (40, 30, None)


def test_our_own_process_has_open_files():
    counter = ProcessCounter()
    files, _ = counter.open_files([os.getpid()])
    assert files > 0
    assert counter.max_open_files(os.getpid()) is not None
    assert counter.interfaces(os.getpid()) is not None
