import pytest
from msgspec.structs import replace

from klet.config.defaults import default_configuration
from klet.config.gates import resolve_gates
from klet.config.image_policy import find_image_policy_problems, find_pattern_problem


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


def test_without_the_gate_neither_setting_is_possible():
    gates = resolve_gates({"KubeletEnsureSecretPulledImages": False})
    config = default_configuration(gates)
    assert list(find_image_policy_problems(config, gates)) == []
    config = replace(
        config,
        image_pull_credentials_verification_policy="AlwaysVerify",
        preloaded_images_verification_allowlist=("registry.example/*",),
    )
    assert list(find_image_policy_problems(config, gates)) == [
        f"`{field}` must not be set if KubeletEnsureSecretPulledImages feature gate is not enabled"
        for field in ("imagePullCredentialsVerificationPolicy", "preloadedImagesVerificationAllowlist")
    ]
