"""Where a newer containerd comes from."""

import pytest

from klet.testing.newer_containerd import NewerContainerdMissing, choose_mirror, find_newer_containerd

LISTED = """\
'http://deb.example.org/debian-security/dists/bookworm-security/InRelease' deb.example.org_security_InRelease 0
'http://deb.example.org/debian/dists/bookworm/InRelease' deb.example.org_debian_dists_bookworm_InRelease 0
'http://deb.example.org/debian/dists/bookworm/main/binary-amd64/Packages.xz' deb.example.org_Packages 0
"""


def test_the_mirror_is_the_one_of_the_machine():
    assert choose_mirror(LISTED, codename="bookworm") == "http://deb.example.org/debian"


@pytest.mark.parametrize(
    ("listed", "codename"),
    [
        pytest.param(LISTED, "noble", id="another distribution"),
        pytest.param(LISTED, "", id="a distribution without a name"),
        pytest.param("", "bookworm", id="no sources"),
    ],
)
def test_machines_without_a_mirror_of_debian(listed, codename):
    with pytest.raises(NewerContainerdMissing, match=f'no Debian archive with the release "{codename}"'):
        choose_mirror(listed, codename=codename)


def test_what_is_there_is_not_fetched_again(tmp_path):
    programs = tmp_path / "containerd-forky" / "programs"
    programs.mkdir(parents=True)
    assert find_newer_containerd(tmp_path) == programs
