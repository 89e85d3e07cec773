import pytest

from klet.config.image_policy import find_pattern_problem


@pytest.mark.parametrize(
    "pattern",
    [
        "docker.io/library/busybox",
        "registry.example/a",
        "registry.example:5000/a/b_c/d-e",
        "localhost/a",
        "[::1]:5000/a",
        "registry.example/*",
        "docker.io/library/*",
    ],
)
def test_good_pattern(pattern):
    assert find_pattern_problem(pattern) == ""


@pytest.mark.parametrize(
    "pattern",
    [
        "",
        " registry.example/a",
        "registry.example/a ",
        "*",
        "/*",
        "registry.*/a",
        "registry.example/a*",
        "busybox",
        "library/busybox",
        "docker.io/busybox",
        "index.docker.io/library/busybox",
        "registry.example/A",
        "registry.example/a:1",
        "registry.example/a@sha256:0",
        "registry.example/",
        "registry.example/a//b",
    ],
)
def test_bad_pattern(pattern):
    assert find_pattern_problem(pattern)
