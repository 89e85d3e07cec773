"""Where packages come from."""

import pytest

from klet.testing.debian_packages import PackagesMissing, choose_mirror

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
    with pytest.raises(PackagesMissing, match=f'no Debian archive with the release "{codename}"'):
        choose_mirror(listed, codename=codename)
