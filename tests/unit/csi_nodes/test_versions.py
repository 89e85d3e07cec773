"""Which versions and names of CSI drivers are taken: the reference's table, and what a hostile driver says."""

import pytest

from klet.csi_nodes.versions import check_versions, choose_version, find_driver_problem, parse_version
from klet.model.csi import CsiVersion, RegisteredDriver
from klet.model.plugins import PluginInfo, VersionProblem

NAME, SOCKET = "ebs.csi.example.com", "/var/lib/kubelet/plugins/ebs/csi.sock"


def plugin(*versions, name=NAME, endpoint=SOCKET):
    return PluginInfo(type="CSIPlugin", name=name, endpoint=endpoint, versions=versions)


def registered(*numbers):
    return RegisteredDriver(name=NAME, endpoint=SOCKET, version=CsiVersion(numbers))


@pytest.mark.parametrize(
    ("versions", "expected"),
    [
        pytest.param(("v1.0.0",), (1, 0, 0), id="v1.0.0"),
        pytest.param(("0.2.0", "v1.0.0"), (1, 0, 0), id="an old one beside it"),
        pytest.param(("v1.2.3", "boo", "v0.3.0", "2.0.1"), (1, 2, 3), id="nonsense and later ones are ignored"),
        pytest.param(("1.0.0", "1.10.0", "1.9.0"), (1, 10, 0), id="the highest"),
        pytest.param((" v1.5-rc.1+build",), (1, 5), id="blanks before it and anything after it"),
        pytest.param(("0.3.0",), None, id="0.3.0"),
        pytest.param(("0.2.0",), None, id="0.2.0"),
        pytest.param(("0.2.0", "v0.3.0"), None, id="only old ones"),
        pytest.param(("4.9.12", "2.0.1"), None, id="only later ones"),
        pytest.param((), None, id="none"),
        pytest.param(("var", "boo", "foo"), None, id="only nonsense"),
        pytest.param(("1",), None, id="one number is too few"),
        pytest.param(("01.0",), None, id="no number begins with zero"),
        pytest.param(("1." + "9" * 5000,), None, id="a number that would take long to read"),
        pytest.param(("\u0661.\u0660.\u0660",), None, id="digits of another script"),
    ],
)
def test_the_version_that_is_used(versions, expected):
    chosen = choose_version(versions)
    assert (chosen.numbers if isinstance(chosen, CsiVersion) else None) == expected


@pytest.mark.parametrize(
    ("versions", "expected"),
    [
        pytest.param(("0.3.0",), "highest supported version reported by driver is 0.3.0, must be v1.x", id="too old"),
        pytest.param(
            ("2.0.1",),
            "could not find a highest supported version from versions ([2.0.1]) reported by this driver: <nil>",
            id="too new",
        ),
        pytest.param(
            ("boo", "foo"),
            "could not find a highest supported version from versions ([boo foo]) reported by this driver: could not "
            'parse "boo" as version',
            id="nonsense",
        ),
    ],
)
def test_why_no_version_is_used(versions, expected):
    assert choose_version(versions) == VersionProblem(expected)


def test_a_version_is_shown_as_it_was_written():
    assert str(parse_version("v1.0.0-rc1")) == "1.0.0"


@pytest.mark.parametrize(
    ("versions", "existing", "expected"),
    [
        pytest.param(("1.0.0",), None, CsiVersion((1, 0, 0)), id="a new driver"),
        pytest.param(("1.1.0",), registered(1, 0, 0), CsiVersion((1, 1, 0)), id="newer than the one that is there"),
        pytest.param(
            ("v1.0.0",),
            registered(1, 0, 0),
            VersionProblem(
                'kubernetes.io/csi: RegisterPlugin for CSI driver "ebs.csi.example.com" failed. Another driver with '
                'the same name is already registered with a higher supported version: "1.0.0"'
            ),
            id="the same version",
        ),
        pytest.param(
            (),
            None,
            VersionProblem(
                'kubernetes.io/csi: RegisterPlugin for CSI driver "ebs.csi.example.com" failed. Plugin returned an '
                "empty list for supported versions"
            ),
            id="no version",
        ),
        pytest.param(
            ("0.3.0",),
            None,
            VersionProblem(
                'kubernetes.io/csi: RegisterPlugin for CSI driver "ebs.csi.example.com" failed. None of the versions '
                'specified ["0.3.0"] are supported. err=highest supported version reported by driver is 0.3.0, must '
                "be v1.x"
            ),
            id="an old version",
        ),
    ],
)
def test_a_driver_beside_one_of_its_name(versions, existing, expected):
    assert check_versions("RegisterPlugin", plugin(*versions), existing) == expected


def test_a_driver_that_fits_is_taken():
    assert find_driver_problem(plugin("1.0.0"), None) is None


def test_a_driver_without_a_version_is_refused_in_upstream_s_words():
    assert find_driver_problem(plugin(), None) == (
        "validation failed for CSI Driver ebs.csi.example.com at endpoint /var/lib/kubelet/plugins/ebs/csi.sock: "
        'kubernetes.io/csi: ValidatePlugin for CSI driver "ebs.csi.example.com" failed. Plugin returned an empty list '
        "for supported versions"
    )


@pytest.mark.parametrize(
    ("name", "endpoint"),
    [
        pytest.param("", SOCKET, id="no name"),
        pytest.param("a" * 64, SOCKET, id="a long name"),
        pytest.param("../../etc", SOCKET, id="a name that is a path"),
        pytest.param("a/b", SOCKET, id="a name of two parts"),
        pytest.param("a\nb", SOCKET, id="a name of two lines"),
        pytest.param("..", SOCKET, id="the directory above"),
        pytest.param(NAME, "csi.sock", id="a relative endpoint"),
        pytest.param(NAME, "/a\0b", id="an endpoint with a null"),
        pytest.param(NAME, "/" + "a" * 107, id="an endpoint that no socket can have"),
        pytest.param(NAME, "unix:///csi.sock", id="an endpoint with a scheme"),
    ],
)
def test_names_that_must_not_become_paths(name, endpoint):
    problem = find_driver_problem(plugin("1.0.0", name=name, endpoint=endpoint), None)
    assert problem is not None
    assert len(problem) < 4096


def test_capitals_are_allowed_as_upstream():
    assert find_driver_problem(plugin("1.0.0", name="EBS.csi.example.com"), None) is None


def test_a_refusal_is_short_whatever_the_driver_says():
    problem = find_driver_problem(plugin(*("x" * 1000,) * 50, endpoint="y" * 50_000), None)
    assert problem is not None
    assert len(problem) < 8192
    problem = find_driver_problem(plugin(*("x" * 1000,) * 50), None)
    assert problem is not None
    assert len(problem) < 8192
