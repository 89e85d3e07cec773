"""Rules for the verification of image pull credentials and its allowlist."""

import re
from collections.abc import Iterator
from typing import Final

from klet.config.configuration import KubeletConfiguration
from klet.config.gates import FeatureGates

ALLOWLISTED: Final = "NeverVerifyAllowlistedImages"
NEVER_VERIFY: Final = "NeverVerify"
ALWAYS_VERIFY: Final = "AlwaysVerify"
POLICIES: Final = (NEVER_VERIFY, "NeverVerifyPreloadedImages", ALLOWLISTED, ALWAYS_VERIFY)

_DOMAIN: Final = re.compile(
    r"(?P<host>[a-zA-Z0-9]([a-zA-Z0-9-]*[a-zA-Z0-9])?(\.[a-zA-Z0-9]([a-zA-Z0-9-]*[a-zA-Z0-9])?)*|\[[a-fA-F0-9:]+\])"
    r"(?P<port>:[0-9]+)?"
)
_COMPONENT: Final = re.compile(r"[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*")
_NAME_LIMIT: Final = 255


def find_image_policy_problems(config: KubeletConfiguration, gates: FeatureGates) -> Iterator[str]:
    policy = config.image_pull_credentials_verification_policy
    if not gates.enabled("KubeletEnsureSecretPulledImages"):
        if policy:
            yield (
                "`imagePullCredentialsVerificationPolicy` must not be set if KubeletEnsureSecretPulledImages "
                "feature gate is not enabled"
            )
        return
    if policy not in POLICIES:
        shown = ", ".join(f'"{name}"' for name in POLICIES[:-1])
        yield (
            f'option "{policy}" specified for imagePullCredentialsVerificationPolicy. '
            f'Valid options are {shown} or "{POLICIES[-1]}"'
        )
    patterns = config.preloaded_images_verification_allowlist
    if patterns and policy != ALLOWLISTED:
        yield (
            "can't set `preloadedImagesVerificationAllowlist` if `imagePullCredentialsVertificationPolicy` is not "
            f'"{ALLOWLISTED}"'
        )
    for pattern in patterns:
        problem = find_pattern_problem(pattern)
        if problem:
            yield f"invalid image pattern in `preloadedImagesVerificationAllowlist`: {pattern} - {problem}"


def find_pattern_problem(pattern: str) -> str:
    """Return why a pattern of the allowlist is none; empty when it is one."""
    if pattern != pattern.strip():
        return "leading/trailing spaces are not allowed"
    if not pattern:
        return "the supplied pattern is too short"
    is_wildcard = pattern.endswith("/*")
    stem = pattern.removesuffix("/*") if is_wildcard else pattern
    if is_wildcard and not stem:
        return "at least registry hostname is required"
    if "*" in stem:
        return "not a valid wildcard pattern, only patterns ending with '/*' are allowed"
    if not is_wildcard and not _is_normalized_name(stem):
        return "only a full image name with its registry and without tag or digest is accepted"
    return ""


def _is_normalized_name(name: str) -> bool:
    domain, slash, path = name.partition("/")
    match = _DOMAIN.fullmatch(domain)
    if not slash or match is None or len(name) > _NAME_LIMIT:
        return False
    # A first part that could be a directory of the default registry is not a registry.
    if not ("." in domain or match["port"] or domain == "localhost" or domain != domain.lower()):
        return False
    if domain == "index.docker.io" or (domain == "docker.io" and "/" not in path):
        return False
    return all(_COMPONENT.fullmatch(part) for part in path.split("/"))
