"""Rules for Windows options, and for what the operating system of a pod rules out."""

import re
from collections.abc import Iterator
from typing import Final

from klet.api.pod import PodSpec
from klet.api.security import SecurityContext, WindowsSecurityContextOptions
from klet.api.validation import formats
from klet.api.validation.errors import FieldErrors, forbidden, invalid, invalid_each, not_supported, required
from klet.api.validation.fieldpath import FieldPath
from klet.api.validation.options import PodValidationOptions
from klet.api.validation.visiting import containers_with_paths

OPERATING_SYSTEMS: Final = ("linux", "windows")
_CREDENTIAL_SPEC_LIMIT: Final = 64 * 1024
_DOMAIN_LIMIT: Final = 256
_USER_LIMIT: Final = 104
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_NET_BIOS: Final = re.compile(r'[^\\/:*?"<>|.][^\\/:*?"<>|]{0,14}')
_DNS_LABEL: Final = r"[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
_DNS: Final = re.compile(rf"{_DNS_LABEL}(?:\.{_DNS_LABEL})*")
_BAD_USER: Final = re.compile(r'["/\\:;|=,+*?<>@\[\]]')
_NO_WINDOWS: Final = "cannot be set for a windows pod"


def validate_os(spec: PodSpec, path: FieldPath) -> FieldErrors:
    if spec.os is None:
        return
    name = spec.os.name
    if not name:
        yield required(path.child("os", "name"), "cannot be empty")
    elif name not in OPERATING_SYSTEMS:
        yield not_supported(path.child("os"), name, OPERATING_SYSTEMS)
    elif name == "linux":
        yield from _linux(spec, path)
    else:
        yield from _windows(spec, path)


def validate_windows_options(options: WindowsSecurityContextOptions | None, path: FieldPath) -> FieldErrors:
    if options is None:
        return
    if (name := options.gmsa_credential_spec_name) is not None:
        yield from invalid_each(path.child("gmsaCredentialSpecName"), name, formats.dns_subdomain(name))
    if (spec := options.gmsa_credential_spec) is not None:
        here = path.child("gmsaCredentialSpec")
        if not spec:
            yield invalid(here, spec, "gmsaCredentialSpec cannot be an empty string")
        elif len(spec.encode()) > _CREDENTIAL_SPEC_LIMIT:
            yield invalid(here, spec, "gmsaCredentialSpec size must be under 64 KiB")
    if (user := options.run_as_user_name) is not None:
        yield from invalid_each(path.child("runAsUserName"), user, _run_as_user_name(user))


def validate_host_process(spec: PodSpec, path: FieldPath, options: PodValidationOptions) -> FieldErrors:
    """Check host-process containers: all or none, in the host network, if privileged ones are allowed at all."""
    pod_options = spec.security_context.windows_options if spec.security_context else None
    inherited = pod_options.host_process if pod_options else None
    total = hosted = 0
    for container, here in containers_with_paths(spec, path):
        total += 1
        context = container.security_context
        own = context.windows_options.host_process if context and context.windows_options else None
        if inherited is not None and own is not None and inherited != own:
            shown = "true" if inherited else "false"
            message = f"pod hostProcess value must be identical if both are specified, was {shown}"
            yield invalid(here.child("securityContext", "windowsOptions", "hostProcess"), own, message)
        hosted += bool(inherited if own is None else own)
    if not hosted:
        return
    if hosted != total:
        message = "If pod contains any hostProcess containers then all containers must be HostProcess containers"
        yield invalid(path, "", message)
    if not spec.host_network:
        message = "hostNetwork must be true if pod contains any hostProcess containers"
        yield invalid(path.child("hostNetwork"), spec.host_network, message)
    if not options.allow_privileged:
        yield forbidden(path, "hostProcess containers are disallowed by cluster policy")


def _run_as_user_name(name: str) -> Iterator[str]:
    parts = name.split("\\")
    if not name:
        yield "runAsUserName cannot be an empty string"
    elif _CONTROL.search(name):
        yield "runAsUserName cannot contain control characters"
    elif len(parts) > 2:
        yield "runAsUserName cannot contain more than one backslash"
    else:
        if len(parts) == 2:
            yield from _domain(parts[0])
        yield from _user(parts[-1])


def _domain(domain: str) -> Iterator[str]:
    if len(domain) >= _DOMAIN_LIMIT:
        yield "runAsUserName's Domain length must be under 256 characters"
    if not (_NET_BIOS.fullmatch(domain) or _DNS.fullmatch(domain)):
        yield "runAsUserName's Domain doesn't match the NetBios nor the DNS format"


def _user(user: str) -> Iterator[str]:
    if not user:
        yield "runAsUserName's User cannot be empty"
    elif len(user) > _USER_LIMIT:
        yield "runAsUserName's User length must not be longer than 104 characters"
    if user and not user.strip(". "):
        yield "runAsUserName's User cannot contain only periods or spaces"
    if _BAD_USER.search(user):
        yield "runAsUserName's User cannot contain the following characters: \"/\\:;|=,+*?<>@[]"


def _linux(spec: PodSpec, path: FieldPath) -> FieldErrors:
    message = "windows options cannot be set for a linux pod"
    if spec.security_context and spec.security_context.windows_options is not None:
        yield forbidden(path.child("securityContext", "windowsOptions"), message)
    for container, here in containers_with_paths(spec, path):
        if container.security_context and container.security_context.windows_options is not None:
            yield forbidden(here.child("securityContext", "windowsOptions"), message)


def _windows(spec: PodSpec, path: FieldPath) -> FieldErrors:
    if (context := spec.security_context) is not None:
        for names, value in (
            (("securityContext", "appArmorProfile"), context.app_armor_profile),
            (("securityContext", "seLinuxOptions"), context.se_linux_options),
            (("hostUsers",), spec.host_users),
            (("hostPID",), spec.host_pid or None),
            (("hostIPC",), spec.host_ipc or None),
            (("securityContext", "seccompProfile"), context.seccomp_profile),
            (("securityContext", "fsGroup"), context.fs_group),
            (("securityContext", "fsGroupChangePolicy"), context.fs_group_change_policy),
            (("securityContext", "sysctls"), context.sysctls or None),
            (("shareProcessNamespace",), spec.share_process_namespace),
            (("securityContext", "runAsUser"), context.run_as_user),
            (("securityContext", "runAsGroup"), context.run_as_group),
            (("securityContext", "supplementalGroups"), context.supplemental_groups or None),
            (("securityContext", "supplementalGroupsPolicy"), context.supplemental_groups_policy),
            (("securityContext", "seLinuxChangePolicy"), context.se_linux_change_policy),
        ):
            if value is not None:
                yield forbidden(path.child(*names), _NO_WINDOWS)
    for container, here in containers_with_paths(spec, path):
        if container.security_context is not None:
            yield from _windows_container(container.security_context, here.child("securityContext"))


def _windows_container(context: SecurityContext, path: FieldPath) -> FieldErrors:
    for wire_name, value in (
        ("appArmorProfile", context.app_armor_profile),
        ("seLinuxOptions", context.se_linux_options),
        ("seccompProfile", context.seccomp_profile),
        ("capabilities", context.capabilities),
        ("readOnlyRootFilesystem", context.read_only_root_filesystem),
        ("privileged", context.privileged),
        ("allowPrivilegeEscalation", context.allow_privilege_escalation),
        ("procMount", context.proc_mount),
        ("runAsUser", context.run_as_user),
        ("runAsGroup", context.run_as_group),
    ):
        if value is not None:
            yield forbidden(path.child(wire_name), _NO_WINDOWS)
