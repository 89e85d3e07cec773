from pathlib import Path

from klet.volumes.names import Layout, escape, go_list, pod_volume_name, unescape


def test_slashes_become_tildes_and_back():
    assert escape("kubernetes.io/empty-dir") == "kubernetes.io~empty-dir"
    assert unescape("kubernetes.io~empty-dir") == "kubernetes.io/empty-dir"


def test_a_volume_of_a_pod_has_a_name_of_its_own():
    name = pod_volume_name("kubernetes.io/secret", "uid-1", "key")
    assert name == "kubernetes.io/secret/uid-1-key"


def test_where_things_lie():
    layout = Layout(Path("/var/lib/kubelet"))
    assert layout.volume("u", "kubernetes.io/secret", "key") == Path(
        "/var/lib/kubelet/pods/u/volumes/kubernetes.io~secret/key"
    )
    assert layout.marker("u", "wrapped_key") == Path(
        "/var/lib/kubelet/pods/u/plugins/kubernetes.io~empty-dir/wrapped_key/ready"
    )


def test_lists_are_printed_as_go_does():
    assert (go_list([]), go_list(["a", "b"])) == ("[]", "[a b]")
