from klet.cli.node.teardown import cni_results, known_sandboxes, leased_containers, remove_empty, shim_sockets


def test_sandboxes_are_known_by_their_leases_and_directories(tmp_path):
    leases, state = tmp_path / "leases", tmp_path / "state"
    leases.mkdir()
    (leases / "10.83.0.2").write_text("aaa\r\neth0")
    (leases / "fd00::2").write_text("aaa\r\neth0")
    (leases / "lock").touch()
    (leases / "last_reserved_ip.0").write_text("10.83.0.2")
    (state / "io.containerd.grpc.v1.cri/sandboxes/bbb").mkdir(parents=True)
    assert leased_containers(leases) == ["aaa", "aaa"]
    assert known_sandboxes(state, leases) == ["aaa", "bbb"]
    assert known_sandboxes(tmp_path / "none", tmp_path / "none") == []


def test_shims_note_where_their_sockets_are(tmp_path):
    task = tmp_path / "io.containerd.runtime.v2.task/k8s.io"
    for name, address in (("a", "unix:///run/containerd/s/abc"), ("b", "unix:///etc/passwd")):
        (task / name).mkdir(parents=True)
        (task / name / "address").write_text(address)
    assert [str(path) for path in shim_sockets(tmp_path)] == ["/run/containerd/s/abc"]


def test_results_of_a_sandbox():
    assert [path.name for path in cni_results("klet", ["aaa"])] == ["cni-loopback-aaa-lo", "klet-aaa-eth0"]


def test_only_empty_directories_go(tmp_path):
    (tmp_path / "full/file").mkdir(parents=True)
    (tmp_path / "empty").mkdir()
    remove_empty([tmp_path / "full", tmp_path / "empty", tmp_path / "none"])
    assert [path.name for path in tmp_path.iterdir()] == ["full"]
