"""Rules for the security contexts of pods and containers."""

import re
from typing import Final

from klet.api.pod import PodSpec
from klet.api.security import AppArmorProfile, PodSecurityContext, SeccompProfile, SecurityContext
from klet.api.validation import formats
from klet.api.validation.errors import (
    FieldErrors,
    duplicate,
    forbidden,
    invalid,
    invalid_each,
    not_supported,
    required,
    too_long,
)
from klet.api.validation.fieldpath import FieldPath
from klet.api.validation.options import PodValidationOptions
from klet.api.validation.windows import validate_windows_options

PROFILE_TYPES: Final = ("Localhost", "RuntimeDefault", "Unconfined")
_NO_CONTEXT: Final = PodSecurityContext()
_PROC_MOUNTS: Final = ("Default", "Unmasked")
_FS_GROUP_CHANGE_POLICIES: Final = ("Always", "OnRootMismatch")
_SUPPLEMENTAL_GROUPS_POLICIES: Final = ("Merge", "Strict")
_SE_LINUX_CHANGE_POLICIES: Final = ("MountOption", "Recursive")
_APP_ARMOR_LIMIT: Final = 4095
_SYSCTL_LIMIT: Final = 253
_SYSCTL: Final = re.compile(r"^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$")


def validate_security_context(
    context: SecurityContext, path: FieldPath, options: PodValidationOptions, *, host_users: bool
) -> FieldErrors:
    if context.privileged and not options.allow_privileged:
        yield forbidden(path.child("privileged"), "disallowed by cluster policy")
    yield from _identity(context.run_as_user, path.child("runAsUser"))
    yield from _identity(context.run_as_group, path.child("runAsGroup"))
    if context.proc_mount is not None:
        if context.proc_mount not in _PROC_MOUNTS:
            yield not_supported(path.child("procMount"), context.proc_mount, _PROC_MOUNTS)
        if host_users and context.proc_mount == "Unmasked":
            message = "`hostUsers` must be false to use `Unmasked`"
            yield invalid(path.child("procMount"), context.proc_mount, message)
    if context.seccomp_profile is not None:
        yield from _seccomp_profile(context.seccomp_profile, path.child("seccompProfile"))
    if context.allow_privilege_escalation is False:
        yield from _no_escalation(context, path)
    yield from validate_windows_options(context.windows_options, path.child("windowsOptions"))
    if context.app_armor_profile is not None:
        yield from _app_armor_profile(context.app_armor_profile, path.child("appArmorProfile"))


def validate_pod_security_context(spec: PodSpec, context: PodSecurityContext, path: FieldPath) -> FieldErrors:
    if context == _NO_CONTEXT and not spec.host_pid:
        return
    yield from _identity(context.fs_group, path.child("fsGroup"))
    yield from _identity(context.run_as_user, path.child("runAsUser"))
    yield from _identity(context.run_as_group, path.child("runAsGroup"))
    for position, group in enumerate(context.supplemental_groups):
        yield from _identity(group, path.child("supplementalGroups").at(position))
    if spec.share_process_namespace and spec.host_pid:
        message = "ShareProcessNamespace and HostPID cannot both be enabled"
        yield invalid(path.child("shareProcessNamespace"), spec.share_process_namespace, message)
    yield from _sysctls(spec, context, path.child("sysctls"))
    yield from _one_of(context.fs_group_change_policy, _FS_GROUP_CHANGE_POLICIES, path.child("fsGroupChangePolicy"))
    if context.seccomp_profile is not None:
        yield from _seccomp_profile(context.seccomp_profile, path.child("seccompProfile"))
    yield from validate_windows_options(context.windows_options, path.child("windowsOptions"))
    if context.app_armor_profile is not None:
        yield from _app_armor_profile(context.app_armor_profile, path.child("appArmorProfile"))
    groups = path.child("supplementalGroupsPolicy")
    yield from _one_of(context.supplemental_groups_policy, _SUPPLEMENTAL_GROUPS_POLICIES, groups)
    yield from _one_of(context.se_linux_change_policy, _SE_LINUX_CHANGE_POLICIES, path.child("seLinuxChangePolicy"))


def sysctl_namespace(name: str) -> str:
    """Return the kernel namespace that a sysctl belongs to: `net`, `ipc` or none."""
    dot, slash = name.find("."), name.find("/")
    if slash >= 0 and (dot < 0 or slash < dot):
        name = name.translate({ord("."): "/", ord("/"): "."})
    if name.startswith("net."):
        return "net"
    if name == "kernel.sem" or name.startswith(("kernel.shm", "kernel.msg", "fs.mqueue.")):
        return "ipc"
    return ""


def _identity(value: int | None, path: FieldPath) -> FieldErrors:
    if value is not None:
        yield from invalid_each(path, value, formats.user_or_group_id(value))


def _one_of(value: str | None, supported: tuple[str, ...], path: FieldPath) -> FieldErrors:
    if value is not None and value not in supported:
        yield not_supported(path, value, supported)


def _no_escalation(context: SecurityContext, path: FieldPath) -> FieldErrors:
    if context.privileged:
        yield invalid(path, context, "cannot set `allowPrivilegeEscalation` to false and `privileged` to true")
    added = () if context.capabilities is None else context.capabilities.add
    for capability in added:
        if capability == "CAP_SYS_ADMIN":
            message = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN"
            yield invalid(path, context, message)


def _seccomp_profile(profile: SeccompProfile, path: FieldPath) -> FieldErrors:
    if not profile.type:
        yield required(path.child("type"), "type is required when seccompProfile is set")
    elif profile.type not in PROFILE_TYPES:
        yield not_supported(path.child("type"), profile.type, PROFILE_TYPES)
    here = path.child("localhostProfile")
    if profile.type == "Localhost":
        if profile.localhost_profile is None:
            yield required(here, "must be set when seccomp type is Localhost")
        else:
            yield from invalid_each(here, profile.localhost_profile, formats.local_path(profile.localhost_profile))
    elif profile.localhost_profile is not None:
        yield invalid(here, profile, "can only be set when seccomp type is Localhost")


def _app_armor_profile(profile: AppArmorProfile, path: FieldPath) -> FieldErrors:
    name, here = profile.localhost_profile, path.child("localhostProfile")
    match profile.type:
        case "Localhost":
            if name is None:
                yield required(here, "must be set when AppArmor type is Localhost")
                return
            if name.strip() != name:
                yield invalid(here, name, "must not be padded with whitespace")
            elif not name:
                yield required(here, "must be set when AppArmor type is Localhost")
            if len(name.encode()) > _APP_ARMOR_LIMIT:
                yield too_long(here, _APP_ARMOR_LIMIT)
        case "RuntimeDefault" | "Unconfined":
            if name is not None:
                yield invalid(here, name, "can only be set when AppArmor type is Localhost")
        case "":
            yield required(path.child("type"), "type is required when appArmorProfile is set")
        case _:
            yield not_supported(path.child("type"), profile.type, PROFILE_TYPES)


def _sysctls(spec: PodSpec, context: PodSecurityContext, path: FieldPath) -> FieldErrors:
    seen: set[str] = set()
    for position, sysctl in enumerate(context.sysctls):
        here = path.at(position).child("name")
        if not sysctl.name:
            yield required(here)
        elif len(sysctl.name) > _SYSCTL_LIMIT or not _SYSCTL.match(sysctl.name):
            message = f"must have at most {_SYSCTL_LIMIT} characters and match regex {_SYSCTL.pattern}"
            yield invalid(here, sysctl.name, message)
        elif sysctl.name in seen:
            yield duplicate(here, sysctl.name)
        namespace = sysctl_namespace(sysctl.name)
        if spec.host_network and namespace == "net":
            yield invalid(here, sysctl.name, "may not be specified when 'hostNetwork' is true")
        elif spec.host_ipc and namespace == "ipc":
            yield invalid(here, sysctl.name, "may not be specified when 'hostIPC' is true")
        seen.add(sysctl.name)
