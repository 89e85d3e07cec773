import pytest

from klet.host.listening import find_listener, parse_listening

HEADER = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"


def line(address, state, inode):
    return f"   0: {address} 00000000:0000 {state} 00000000:00000000 00:00000000 00000000     0        0 {inode} 1\n"


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        pytest.param([("00000000:280A", "0A", 7)], {7}, id="on every address"),
        pytest.param([("0100007F:280A", "0A", 7), ("0200007F:280A", "0A", 8)], {7, 8}, id="on two addresses"),
        pytest.param([("00000000000000000000000000000000:280A", "0A", 7)], {7}, id="of the other family"),
        pytest.param([("0100007F:280A", "01", 7)], set(), id="connected, not listening"),
        pytest.param([("0100007F:280B", "0A", 7)], set(), id="another port"),
    ],
)
def test_sockets_that_listen_on_a_port(lines, expected):
    assert parse_listening(HEADER + "".join(line(*each) for each in lines), 10250) == expected


@pytest.mark.parametrize(
    ("port", "expected"),
    [
        pytest.param(10250, "kubelet (pid 12)", id="somebody listens"),
        pytest.param(10248, "", id="nobody listens"),
        pytest.param(9, "", id="somebody out of sight listens"),
    ],
)
def test_the_process_that_listens_on_a_port(tmp_path, port, expected):
    proc = tmp_path / "proc"
    (proc / "self" / "net").mkdir(parents=True)
    lines = line("0100007F:280A", "0A", 77) + line("0100007F:0009", "0A", 78)
    (proc / "self" / "net" / "tcp").write_text(HEADER + lines)
    for process, target in ((5, "socket:[1]"), (12, "socket:[77]")):
        (proc / str(process) / "fd").mkdir(parents=True)
        (proc / str(process) / "fd" / "3").symlink_to(target)
        stat = f"{process} (kubelet) S " + " ".join("1" for _ in range(30))
        (proc / str(process) / "stat").write_text(stat)
    (proc / "13").mkdir()
    assert find_listener(port, root=tmp_path) == expected
