from ipaddress import ip_address

import pytest

from klet.host.listening import (
    UDP,
    BoundSocket,
    HeldPort,
    HostPort,
    find_holders,
    find_listener,
    parse_sockets,
    serves,
)

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
    found = parse_sockets(HEADER + "".join(line(*each) for each in lines), 10250)
    assert {socket.inode for socket in found} == expected


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        pytest.param("0100007F", "127.0.0.1", id="four bytes"),
        pytest.param("00000000", "0.0.0.0", id="every address"),
        pytest.param("B80D01200000000000000000010000FF", "2001:db8::ff00:1", id="sixteen"),
    ],
)
def test_addresses_of_sockets(address, expected):
    (socket,) = parse_sockets(HEADER + line(f"{address}:280A", "0A", 7), 10250)
    assert str(socket.address) == expected


@pytest.mark.parametrize(
    ("bound", "wanted", "expected"),
    [
        pytest.param("127.0.0.1", "", True, id="every address has this one too"),
        pytest.param("127.0.0.1", "0.0.0.0", True, id="the same, written out"),
        pytest.param("0.0.0.0", "10.0.0.1", True, id="a socket on every address"),
        pytest.param("10.0.0.1", "10.0.0.1", True, id="the same address"),
        pytest.param("127.0.0.1", "10.0.0.1", False, id="another address"),
    ],
)
def test_whose_connections_they_are(bound, wanted, expected):
    assert serves(BoundSocket(ip_address(bound), 7), HostPort(80, address=wanted)) is expected


def test_who_holds_which_of_several_ports(tmp_path):
    proc = tmp_path / "proc"
    (proc / "self" / "net").mkdir(parents=True)
    (proc / "self" / "net" / "tcp").write_text(HEADER + line("0100007F:0050", "0A", 77))
    (proc / "self" / "net" / "udp").write_text(HEADER + line("00000000:0035", "07", 78))
    (proc / "12" / "fd").mkdir(parents=True)
    (proc / "12" / "fd" / "3").symlink_to("socket:[78]")
    (proc / "12" / "stat").write_text("12 (dnsmasq) S " + " ".join("1" for _ in range(30)))
    web, dns, free = HostPort(80), HostPort(53, UDP), HostPort(53)
    assert find_holders((web, dns, free, HostPort(80, "SCTP")), root=tmp_path) == (
        HeldPort(web, "a process that cannot be seen"),
        HeldPort(dns, "dnsmasq (pid 12)"),
    )


@pytest.mark.parametrize(
    ("port", "expected"),
    [
        pytest.param(10250, "kubelet (pid 12)", id="somebody listens"),
        pytest.param(10248, "", id="nobody listens"),
        pytest.param(9, "", id="an unknown process listens"),
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
