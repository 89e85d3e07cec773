"""Reasons to reject a pod that it brings along itself: kernel parameters, AppArmor profiles, gated fields. Pure.

What depends on the Node and on other pods is in `predicates.py`.
"""

from collections.abc import Sequence
from typing import Final

from klet.api.pod import Pod
from klet.api.pod_resources import asks_for_pod_level_resources
from klet.api.sysctls import IPC, NET, SAFE_SYSCTLS, matches_sysctl, namespace_of, normalize_sysctl
from klet.model.app_armor import LOCALHOST, every_container, find_app_armor_profile, needs_app_armor
from klet.model.reasons import Reason
from klet.model.verdicts import Admit, Reject, Verdict

_NEW: Final = frozenset({"", "Pending"})
"""Phases of a pod that has not run yet."""


class SysctlCheck:
    """The check of kernel parameters as an admission handler."""

    def __init__(self, *, allowed: Sequence[str]) -> None:
        self._allowed = tuple(allowed)
        """Patterns of those that pods may set besides the safe ones."""

    async def admit(self, pod: Pod, others: Sequence[Pod]) -> Verdict:  # noqa: ARG002 - one pod decides it
        return check_sysctls(pod, allowed=self._allowed) or Admit()


class AppArmorCheck:
    """The check of AppArmor profiles as an admission handler."""

    def __init__(self, *, is_enabled: bool) -> None:
        self._is_enabled = is_enabled
        """Whether the kernel confines containers with such profiles."""

    async def admit(self, pod: Pod, others: Sequence[Pod]) -> Verdict:  # noqa: ARG002 - one pod decides it
        return check_app_armor(pod, is_enabled=self._is_enabled) or Admit()


class FeatureCheck:
    """The check of gated fields as an admission handler (podFeaturesAdmitHandler)."""

    def __init__(self, *, pod_level_resources: bool) -> None:
        self._pod_level_resources = pod_level_resources

    async def admit(self, pod: Pod, others: Sequence[Pod]) -> Verdict:  # noqa: ARG002 - one pod decides it
        return check_features(pod, pod_level_resources=self._pod_level_resources) or Admit()


def check_sysctls(pod: Pod, *, allowed: Sequence[str]) -> Reject | None:
    """Reject a sysctl that may harm other pods and is not allowed (`allowedUnsafeSysctls`)."""
    wanted = pod.spec.security_context.sysctls if pod.spec.security_context is not None else ()
    for sysctl in (normalize_sysctl(each.name) for each in wanted):
        namespace = namespace_of(sysctl)
        if namespace is None or not any(matches_sysctl(sysctl, pattern) for pattern in (*SAFE_SYSCTLS, *allowed)):
            return Reject(Reason.SYSCTL_FORBIDDEN, f'forbidden sysctl: "{sysctl}" not allowlisted')
        if (namespace == NET and pod.spec.host_network) or (namespace == IPC and pod.spec.host_ipc):
            message = f'forbidden sysctl: "{sysctl}" not allowed with host {namespace} enabled'
            return Reject(Reason.SYSCTL_FORBIDDEN, message)
    return None


def check_app_armor(pod: Pod, *, is_enabled: bool) -> Reject | None:
    """Reject a pod with an AppArmor profile that would not be enforced. A pod that has run is not checked again."""
    if pod.status.phase not in _NEW or not needs_app_armor(pod):
        return None
    if not is_enabled:
        return Reject(Reason.APP_ARMOR, "Cannot enforce AppArmor: AppArmor is not enabled on the host")
    for container in every_container(pod):
        profile = find_app_armor_profile(pod, container)
        if profile is not None and profile.type == LOCALHOST and not (profile.localhost_profile or "").strip():
            name = "nil" if profile.localhost_profile is None else f"*{profile.localhost_profile}"
            text = f"&AppArmorProfile{{Type:{LOCALHOST},LocalhostProfile:{name},}}"
            message = f'Cannot enforce AppArmor: invalid empty AppArmor profile name: "{text}"'
            return Reject(Reason.APP_ARMOR, message)
    return None


def check_features(pod: Pod, *, pod_level_resources: bool) -> Reject | None:
    """Reject a pod with resources of its own while the gate PodLevelResources is off."""
    if pod_level_resources or not asks_for_pod_level_resources(pod.spec):
        return None
    return Reject(Reason.POD_LEVEL_RESOURCES_NOT_SUPPORTED, "PodLevelResources feature gate is disabled")
