"""Security contexts of pods and containers (core/v1)."""

from klet.api.base import ApiObject, Int64, required


class Capabilities(ApiObject, frozen=True, kw_only=True):
    add: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()


class SELinuxOptions(ApiObject, frozen=True, kw_only=True):
    user: str = ""
    role: str = ""
    type: str = ""
    level: str = ""


class SeccompProfile(ApiObject, frozen=True, kw_only=True):
    type: str = required(str)
    localhost_profile: str | None = None


class AppArmorProfile(ApiObject, frozen=True, kw_only=True):
    type: str = required(str)
    localhost_profile: str | None = None


class WindowsSecurityContextOptions(ApiObject, frozen=True, kw_only=True):
    gmsa_credential_spec_name: str | None = None
    gmsa_credential_spec: str | None = None
    run_as_user_name: str | None = None
    host_process: bool | None = None


class Sysctl(ApiObject, frozen=True, kw_only=True):
    name: str = required(str)
    value: str = required(str)


class PodSecurityContext(ApiObject, frozen=True, kw_only=True):
    """Privileges that the containers of a pod share."""

    se_linux_options: SELinuxOptions | None = None
    windows_options: WindowsSecurityContextOptions | None = None
    run_as_user: Int64 | None = None
    run_as_group: Int64 | None = None
    run_as_non_root: bool | None = None
    supplemental_groups: tuple[Int64, ...] = ()
    supplemental_groups_policy: str | None = None
    fs_group: Int64 | None = None
    sysctls: tuple[Sysctl, ...] = ()
    fs_group_change_policy: str | None = None
    seccomp_profile: SeccompProfile | None = None
    app_armor_profile: AppArmorProfile | None = None
    se_linux_change_policy: str | None = None


class SecurityContext(ApiObject, frozen=True, kw_only=True):
    """Privileges of one container; what is set wins over the pod."""

    capabilities: Capabilities | None = None
    privileged: bool | None = None
    se_linux_options: SELinuxOptions | None = None
    windows_options: WindowsSecurityContextOptions | None = None
    run_as_user: Int64 | None = None
    run_as_group: Int64 | None = None
    run_as_non_root: bool | None = None
    read_only_root_filesystem: bool | None = None
    allow_privilege_escalation: bool | None = None
    proc_mount: str | None = None
    seccomp_profile: SeccompProfile | None = None
    app_armor_profile: AppArmorProfile | None = None
