"""Where a newer containerd comes from."""

from klet.testing.newer_containerd import find_newer_containerd


def test_what_is_there_is_not_fetched_again(tmp_path):
    programs = tmp_path / "containerd-forky" / "programs"
    programs.mkdir(parents=True)
    assert find_newer_containerd(tmp_path) == programs
