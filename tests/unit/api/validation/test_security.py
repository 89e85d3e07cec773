import pytest

from klet.api.codec import convert
from klet.api.security import SecurityContext
from klet.api.validation.rendering import render_value
from klet.api.validation.security import sysctl_namespace

S = "spec.containers[0].securityContext"
P = "spec.securityContext"
IDS = "must be between 0 and 2147483647, inclusive"
TYPES = '"Localhost", "RuntimeDefault", "Unconfined"'
ARMOR = "must be set when AppArmor type is Localhost"


def shown(context):
    return render_value(convert(SecurityContext, context))


ROOT = {"privileged": True, "allowPrivilegeEscalation": False}
ADMIN = {"allowPrivilegeEscalation": False, "capabilities": {"add": ["SYS_ADMIN", "CAP_SYS_ADMIN"]}}


@pytest.mark.parametrize(
    ("context", "expected"),
    [
        pytest.param({"privileged": True, "runAsUser": 0, "procMount": "Default"}, [], id="good"),
        pytest.param(
            {"runAsUser": -1, "runAsGroup": 2147483648},
            [f"{S}.runAsUser: Invalid value: -1: {IDS}", f"{S}.runAsGroup: Invalid value: 2147483648: {IDS}"],
            id="identities out of range",
        ),
        pytest.param(
            {"procMount": "x"},
            [f'{S}.procMount: Unsupported value: "x": supported values: "Default", "Unmasked"'],
            id="an unknown proc mount",
        ),
        pytest.param(
            {"procMount": "Unmasked"},
            [f'{S}.procMount: Invalid value: "Unmasked": `hostUsers` must be false to use `Unmasked`'],
            id="an unmasked proc mount of the host's users",
        ),
        pytest.param(
            ROOT,
            [
                (
                    f"{S}: Invalid value: {shown(ROOT)}: cannot set `allowPrivilegeEscalation` to "
                    "false and `privileged` to true"
                )
            ],
            id="privileged and not escalating",
        ),
        pytest.param(
            ADMIN,
            [
                (
                    f"{S}: Invalid value: {shown(ADMIN)}: cannot set `allowPrivilegeEscalation` to false and "
                    "`capabilities.Add` CAP_SYS_ADMIN"
                )
            ],
            id="an admin and not escalating",
        ),
        pytest.param({"seccompProfile": {"type": "Localhost", "localhostProfile": "a/b"}}, [], id="a seccomp profile"),
        pytest.param(
            {"seccompProfile": {}},
            [f"{S}.seccompProfile.type: Required value: type is required when seccompProfile is set"],
            id="a seccomp profile without a type",
        ),
        pytest.param(
            {"seccompProfile": {"type": "x", "localhostProfile": "y"}},
            [
                f'{S}.seccompProfile.type: Unsupported value: "x": supported values: {TYPES}',
                (
                    f'{S}.seccompProfile.localhostProfile: Invalid value: {{"Type":"x","LocalhostProfile":"y"}}: '
                    "can only be set when seccomp type is Localhost"
                ),
            ],
            id="an unknown seccomp type",
        ),
        pytest.param(
            {"seccompProfile": {"type": "Localhost"}},
            [f"{S}.seccompProfile.localhostProfile: Required value: must be set when seccomp type is Localhost"],
            id="a seccomp profile without a file",
        ),
        pytest.param(
            {"seccompProfile": {"type": "Localhost", "localhostProfile": "/../a"}},
            [
                f'{S}.seccompProfile.localhostProfile: Invalid value: "/../a": must be a relative path',
                f"{S}.seccompProfile.localhostProfile: Invalid value: \"/../a\": must not contain '..'",
            ],
            id="a seccomp profile outside of its directory",
        ),
        pytest.param(
            {"appArmorProfile": {}},
            [f"{S}.appArmorProfile.type: Required value: type is required when appArmorProfile is set"],
            id="an AppArmor profile without a type",
        ),
        pytest.param(
            {"appArmorProfile": {"type": "x"}},
            [f'{S}.appArmorProfile.type: Unsupported value: "x": supported values: {TYPES}'],
            id="an unknown AppArmor type",
        ),
        pytest.param(
            {"appArmorProfile": {"type": "Unconfined", "localhostProfile": "x"}},
            [
                (
                    f'{S}.appArmorProfile.localhostProfile: Invalid value: "x": can only be set when '
                    "AppArmor type is Localhost"
                )
            ],
            id="an AppArmor profile too much",
        ),
        pytest.param(
            {"appArmorProfile": {"type": "Localhost"}},
            [f"{S}.appArmorProfile.localhostProfile: Required value: {ARMOR}"],
            id="no AppArmor profile",
        ),
        pytest.param(
            {"appArmorProfile": {"type": "Localhost", "localhostProfile": ""}},
            [f"{S}.appArmorProfile.localhostProfile: Required value: {ARMOR}"],
            id="an empty AppArmor profile",
        ),
        pytest.param(
            {"appArmorProfile": {"type": "Localhost", "localhostProfile": " a"}},
            [f'{S}.appArmorProfile.localhostProfile: Invalid value: " a": must not be padded with whitespace'],
            id="an AppArmor profile with blanks around",
        ),
        pytest.param(
            {"appArmorProfile": {"type": "Localhost", "localhostProfile": "a" * 4096}},
            [f"{S}.appArmorProfile.localhostProfile: Too long: may not be more than 4095 bytes"],
            id="a long AppArmor profile",
        ),
    ],
)
def test_container_security_context(container_errors, context, expected):
    assert container_errors({"securityContext": context}) == expected


def test_privileged_containers_can_be_ruled_out(container_errors):
    assert container_errors({"securityContext": {"privileged": True}}, allow_privileged=False) == [
        f"{S}.privileged: Forbidden: disallowed by cluster policy"
    ]


def test_a_pod_with_its_own_users_may_unmask_proc(container_errors):
    assert container_errors({"securityContext": {"procMount": "Unmasked"}}, {"hostUsers": False}) == []


SYSCTL = (
    "must have at most 253 characters and match regex "
    r"^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$"
)


def sysctls(*names):
    return {"sysctls": [{"name": name, "value": "1"} for name in names]}


@pytest.mark.parametrize(
    ("context", "spec", "expected"),
    [
        pytest.param(
            {
                "fsGroup": 1,
                "fsGroupChangePolicy": "Always",
                "supplementalGroupsPolicy": "Strict",
                **sysctls("a.b", "c/d"),
            },
            {},
            [],
            id="good",
        ),
        pytest.param(
            {"fsGroup": -1, "runAsUser": -1, "runAsGroup": -1, "supplementalGroups": [1, -1]},
            {},
            [
                f"{P}.fsGroup: Invalid value: -1: {IDS}",
                f"{P}.runAsUser: Invalid value: -1: {IDS}",
                f"{P}.runAsGroup: Invalid value: -1: {IDS}",
                f"{P}.supplementalGroups[1]: Invalid value: -1: {IDS}",
            ],
            id="identities out of range",
        ),
        pytest.param(
            {},
            {"hostPID": True, "shareProcessNamespace": True},
            [
                (
                    f"{P}.shareProcessNamespace: Invalid value: true: ShareProcessNamespace and "
                    "HostPID cannot both be enabled"
                )
            ],
            id="two process namespaces",
        ),
        pytest.param(
            sysctls("", "A", "a", "a"),
            {},
            [
                f"{P}.sysctls[0].name: Required value",
                f'{P}.sysctls[1].name: Invalid value: "A": {SYSCTL}',
                f'{P}.sysctls[3].name: Duplicate value: "a"',
            ],
            id="sysctl names",
        ),
        pytest.param(
            sysctls("net.x", "net/y", "kernel.sem"),
            {"hostNetwork": True},
            [
                f"{P}.sysctls[0].name: Invalid value: \"net.x\": may not be specified when 'hostNetwork' is true",
                f"{P}.sysctls[1].name: Invalid value: \"net/y\": may not be specified when 'hostNetwork' is true",
            ],
            id="sysctls of the host's network",
        ),
        pytest.param(
            sysctls("net.x", "kernel.shmmax"),
            {"hostIPC": True},
            [f"{P}.sysctls[1].name: Invalid value: \"kernel.shmmax\": may not be specified when 'hostIPC' is true"],
            id="sysctls of the host's messages",
        ),
        pytest.param(
            {"fsGroupChangePolicy": "x", "supplementalGroupsPolicy": "y", "seLinuxChangePolicy": "z"},
            {},
            [
                f'{P}.fsGroupChangePolicy: Unsupported value: "x": supported values: "Always", "OnRootMismatch"',
                f'{P}.supplementalGroupsPolicy: Unsupported value: "y": supported values: "Merge", "Strict"',
                f'{P}.seLinuxChangePolicy: Unsupported value: "z": supported values: "MountOption", "Recursive"',
            ],
            id="unknown policies",
        ),
        pytest.param(
            {"seccompProfile": {"type": "x"}, "appArmorProfile": {"type": "x"}},
            {},
            [
                f'{P}.seccompProfile.type: Unsupported value: "x": supported values: {TYPES}',
                f'{P}.appArmorProfile.type: Unsupported value: "x": supported values: {TYPES}',
            ],
            id="profiles of a pod",
        ),
    ],
)
def test_pod_security_context(errors_of, context, spec, expected):
    assert errors_of({"spec": {"securityContext": context, **spec}}) == expected


@pytest.mark.parametrize(
    ("name", "namespace"),
    [
        pytest.param("net.ipv4.ip_forward", "net", id="network"),
        pytest.param("net/ipv4/conf/eth0.100/forwarding", "net", id="slashes first turn the dots around"),
        pytest.param("kernel.sem", "ipc", id="semaphores"),
        pytest.param("kernel.semaphore", "", id="not everything like a semaphore"),
        pytest.param("kernel.msgmax", "ipc", id="messages"),
        pytest.param("fs.mqueue.msg_max", "ipc", id="message queues"),
        pytest.param("vm.swappiness", "", id="the whole node"),
    ],
)
def test_sysctl_namespace(name, namespace):
    assert sysctl_namespace(name) == namespace
