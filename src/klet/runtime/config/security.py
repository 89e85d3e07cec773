"""The security part of a container's CRI configuration, and the run-as-non-root check."""

from collections.abc import Sequence

from msgspec import Struct

from klet.api.container import Container, EphemeralContainer
from klet.api.pod import Pod
from klet.api.security import AppArmorProfile, Capabilities, PodSecurityContext, SeccompProfile, SecurityContext
from klet.model import app_armor
from klet.model.app_armor import find_app_armor_profile
from klet.model.foreign_text import LONGEST_WORD, shorten
from klet.model.images import ImageUser
from klet.model.pods import format_pod
from klet.runtime.config.sandbox_config import groups_policy, namespace_options, selinux_options
from klet.runtime.errors import CREATE_CONFIG_ERROR, StartError
from klet.wire import cri_v1_pb2 as cri

MASKED_PATHS = (
    "/proc/asound", "/proc/acpi", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats",
    "/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug", "/proc/scsi", "/sys/firmware",
    "/sys/devices/virtual/powercap",
)  # fmt: skip
READONLY_PATHS = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")
LARGEST_UID = 2**31 - 1


class SecuritySettings(Struct, frozen=True, kw_only=True):
    """What the node adds to every container."""

    seccomp_default: bool = False
    seccomp_root: str = ""
    thermal_paths: tuple[str, ...] = ()
    """The machine's files on overheated CPUs, which reveal to one container what others do."""


def check_non_root(pod: Pod, container: Container | EphemeralContainer, user: ImageUser) -> None:
    """Refuse a container that asked not to run as root and would."""
    own, shared = _contexts(pod, container)
    if not _first(own.run_as_non_root, shared.run_as_non_root):
        return
    where = f'(pod: "{format_pod(pod)}", container: {container.name})'
    uid = _first(own.run_as_user, shared.run_as_user)
    if uid is not None:
        if uid == 0:
            raise StartError(CREATE_CONFIG_ERROR, f"container's runAsUser breaks non-root policy {where}")
        return
    if user.name:
        message = (
            f"container has runAsNonRoot and image has non-numeric user ({user.name}), "
            f"cannot verify user is non-root {where}"
        )
        raise StartError(CREATE_CONFIG_ERROR, message)
    if not user.uid:
        raise StartError(CREATE_CONFIG_ERROR, f"container has runAsNonRoot and image will run as root {where}")
    if not 0 < user.uid <= LARGEST_UID:
        message = (
            f"container has runAsNonRoot and image has an invalid user id ({user.uid}). (Must be 1-({LARGEST_UID})): "
            f"[must be between 0 and {LARGEST_UID}, inclusive] {where}"
        )
        raise StartError(CREATE_CONFIG_ERROR, message)


def build_security_context(
    pod: Pod,
    container: Container | EphemeralContainer,
    user: ImageUser,
    settings: SecuritySettings,
    *,
    user_namespace: cri.UserNamespace | None = None,
    target_id: str = "",
    extra_groups: Sequence[int] = (),
) -> cri.LinuxContainerSecurityContext:
    """Build the user that the container runs as, and what it may do."""
    own, shared = _contexts(pod, container)
    context = cri.LinuxContainerSecurityContext(
        namespace_options=namespace_options(pod, user_namespace=user_namespace, target_id=target_id),
        privileged=bool(own.privileged),
        readonly_rootfs=bool(own.read_only_root_filesystem),
        no_new_privs=own.allow_privilege_escalation is False,
        seccomp=_seccomp(own.seccomp_profile or shared.seccomp_profile, settings),
        supplemental_groups=[
            *([] if shared.fs_group is None else [shared.fs_group]),
            *shared.supplemental_groups,
            *extra_groups,
        ],
        supplemental_groups_policy=groups_policy(shared),
        selinux_options=selinux_options(own.se_linux_options or shared.se_linux_options),
    )
    uid = _first(own.run_as_user, shared.run_as_user)
    if uid is not None:
        context.run_as_user.value = uid
    elif user.name:
        context.run_as_username = user.name
    else:
        # Runtimes refuse a group without a user, so root is named where neither pod nor image names anyone.
        context.run_as_user.value = user.uid or 0
    if (gid := _first(own.run_as_group, shared.run_as_group)) is not None:
        context.run_as_group.value = gid
    if own.capabilities is not None:
        context.capabilities.CopyFrom(_capabilities(own.capabilities))
    _set_apparmor(context, find_app_armor_profile(pod, container))
    if own.proc_mount != "Unmasked":
        context.masked_paths.extend([*MASKED_PATHS, *settings.thermal_paths])
        context.readonly_paths.extend(READONLY_PATHS)
    return context


def _contexts(pod: Pod, container: Container | EphemeralContainer) -> tuple[SecurityContext, PodSecurityContext]:
    return container.security_context or SecurityContext(), pod.spec.security_context or PodSecurityContext()


def _first(own: int | None, shared: int | None) -> int | None:
    return shared if own is None else own


def _capabilities(wanted: Capabilities) -> cri.Capability:
    return cri.Capability(add_capabilities=wanted.add, drop_capabilities=wanted.drop)


def _set_apparmor(context: cri.LinuxContainerSecurityContext, profile: AppArmorProfile | None) -> None:
    """Say it in the new and in the deprecated form: old runtimes know only the second."""
    if profile is None:
        return
    match profile.type:
        case app_armor.RUNTIME_DEFAULT:
            context.apparmor.profile_type, context.apparmor_profile = (
                cri.SecurityProfile.RuntimeDefault,
                "runtime/default",
            )
        case app_armor.LOCALHOST:
            if not profile.localhost_profile:
                raise StartError(CREATE_CONFIG_ERROR, "missing localhost apparmor profile name")
            context.apparmor.profile_type = cri.SecurityProfile.Localhost
            context.apparmor.localhost_ref = profile.localhost_profile
            context.apparmor_profile = f"localhost/{profile.localhost_profile}"
        case app_armor.UNCONFINED:
            context.apparmor.profile_type, context.apparmor_profile = cri.SecurityProfile.Unconfined, "unconfined"
        case unknown:
            raise _unknown_profile("AppArmor", unknown)


def _seccomp(profile: SeccompProfile | None, settings: SecuritySettings) -> cri.SecurityProfile:
    kind = cri.SecurityProfile
    if profile is None:
        default = kind.RuntimeDefault if settings.seccomp_default else kind.Unconfined
        return cri.SecurityProfile(profile_type=default)
    match profile.type:
        case "RuntimeDefault":
            return cri.SecurityProfile(profile_type=kind.RuntimeDefault)
        case "Localhost":
            if not profile.localhost_profile:
                message = "localhostProfile must be set if seccompProfile type is Localhost."
                raise StartError(CREATE_CONFIG_ERROR, message)
            path = f"{settings.seccomp_root}/{profile.localhost_profile}"
            return cri.SecurityProfile(profile_type=kind.Localhost, localhost_ref=path)
        case "Unconfined":
            return cri.SecurityProfile(profile_type=kind.Unconfined)
        case unknown:
            raise _unknown_profile("seccomp", unknown)


def _unknown_profile(what: str, kind: str) -> StartError:
    """Return the error for a type of a newer API server: a pod that asks for it wants to be confined."""
    return StartError(CREATE_CONFIG_ERROR, f'unknown {what} profile type "{shorten(kind, LONGEST_WORD)}"')
