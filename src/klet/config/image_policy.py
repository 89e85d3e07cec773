"""Rules for the verification of image pull credentials and its allowlist."""

from collections.abc import Iterator
from typing import Final

from klet.api.image_reference import BadImageReference, parse_image_reference
from klet.config.configuration import KubeletConfiguration
from klet.config.gates import FeatureGates

ALLOWLISTED: Final = "NeverVerifyAllowlistedImages"
NEVER_VERIFY: Final = "NeverVerify"
ALWAYS_VERIFY: Final = "AlwaysVerify"
POLICIES: Final = (NEVER_VERIFY, "NeverVerifyPreloadedImages", ALLOWLISTED, ALWAYS_VERIFY)


def find_image_policy_problems(config: KubeletConfiguration, gates: FeatureGates) -> Iterator[str]:
    policy = config.image_pull_credentials_verification_policy
    if not gates.enabled("KubeletEnsureSecretPulledImages"):
        if policy:
            yield (
                "`imagePullCredentialsVerificationPolicy` must not be set if KubeletEnsureSecretPulledImages "
                "feature gate is not enabled"
            )
        if config.preloaded_images_verification_allowlist:
            yield (
                "`preloadedImagesVerificationAllowlist` must not be set if KubeletEnsureSecretPulledImages "
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
    try:
        return parse_image_reference(name).repository == name
    except BadImageReference:
        return False
