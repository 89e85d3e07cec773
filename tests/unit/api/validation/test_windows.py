import pytest

from klet.api.validation import formats

[SUBDOMAIN] = formats.dns_subdomain("A")
W = "spec.containers[0].securityContext.windowsOptions"
BAD = "runAsUserName's User cannot contain the following characters: \"/\\:;|=,+*?<>@[]"
NOT_HERE = "Forbidden: cannot be set for a windows pod"


def user(name):
    return f"{W}.runAsUserName: Invalid value: {name}: "


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        pytest.param(
            {"runAsUserName": "NT AUTHORITY\\SYSTEM", "gmsaCredentialSpecName": "a", "gmsaCredentialSpec": "x"},
            [],
            id="good",
        ),
        pytest.param(
            {"gmsaCredentialSpecName": "A", "gmsaCredentialSpec": ""},
            [
                f'{W}.gmsaCredentialSpecName: Invalid value: "A": {SUBDOMAIN}',
                f'{W}.gmsaCredentialSpec: Invalid value: "": gmsaCredentialSpec cannot be an empty string',
            ],
            id="credentials",
        ),
        pytest.param({"runAsUserName": ""}, [user('""') + "runAsUserName cannot be an empty string"], id="no user"),
        pytest.param(
            {"runAsUserName": "a\x01"},
            [user(r'"a\x01"') + "runAsUserName cannot contain control characters"],
            id="control characters",
        ),
        pytest.param(
            {"runAsUserName": "a\\b\\c"},
            [user(r'"a\\b\\c"') + "runAsUserName cannot contain more than one backslash"],
            id="two domains",
        ),
        pytest.param(
            {"runAsUserName": "\\"},
            [
                user(r'"\\"') + "runAsUserName's Domain doesn't match the NetBios nor the DNS format",
                user(r'"\\"') + "runAsUserName's User cannot be empty",
            ],
            id="neither domain nor user",
        ),
        pytest.param(
            {"runAsUserName": ". ."},
            [user('". ."') + "runAsUserName's User cannot contain only periods or spaces"],
            id="dots",
        ),
        pytest.param({"runAsUserName": "a@b"}, [user('"a@b"') + BAD], id="bad characters"),
        pytest.param(
            {"runAsUserName": "u" * 105},
            [user(f'"{"u" * 105}"') + "runAsUserName's User length must not be longer than 104 characters"],
            id="a long user",
        ),
        pytest.param(
            {"runAsUserName": "a." * 128 + "\\u"},
            [
                user('"' + "a." * 128 + '\\\\u"') + "runAsUserName's Domain length must be under 256 characters",
                user('"' + "a." * 128 + '\\\\u"')
                + "runAsUserName's Domain doesn't match the NetBios nor the DNS format",
            ],
            id="a long domain",
        ),
    ],
)
def test_windows_options(container_errors, options, expected):
    assert container_errors({"securityContext": {"windowsOptions": options}}) == expected


def test_a_credential_spec_has_a_limit(container_errors):
    spec = "x" * 65537
    assert container_errors({"securityContext": {"windowsOptions": {"gmsaCredentialSpec": spec}}}) == [
        f'{W}.gmsaCredentialSpec: Invalid value: "{spec}": gmsaCredentialSpec size must be under 64 KiB'
    ]


HOST = {"windowsOptions": {"hostProcess": True}}
NO_HOST = {"windowsOptions": {"hostProcess": False}}


@pytest.mark.parametrize(
    ("container", "spec", "options", "expected"),
    [
        pytest.param(HOST, {"hostNetwork": True}, {}, [], id="good"),
        pytest.param({}, {"hostNetwork": True, "securityContext": HOST}, {}, [], id="inherited from the pod"),
        pytest.param(
            HOST,
            {},
            {},
            [
                (
                    "spec.hostNetwork: Invalid value: false: hostNetwork must be true if pod "
                    "contains any hostProcess containers"
                )
            ],
            id="the host's network is needed",
        ),
        pytest.param(
            NO_HOST,
            {"hostNetwork": True, "securityContext": HOST},
            {},
            [
                (
                    f"{W}.hostProcess: Invalid value: false: pod hostProcess value must be "
                    "identical if both are specified, "
                    "was true"
                )
            ],
            id="pod and container agree",
        ),
        pytest.param(
            HOST,
            {"hostNetwork": True, "initContainers": [{"name": "i", "image": "i"}]},
            {},
            [
                (
                    'spec: Invalid value: "": If pod contains any hostProcess containers then all containers must be '
                    "HostProcess containers"
                )
            ],
            id="all or none",
        ),
        pytest.param(
            HOST,
            {"hostNetwork": True},
            {"allow_privileged": False},
            ["spec: Forbidden: hostProcess containers are disallowed by cluster policy"],
            id="where privileges are ruled out",
        ),
    ],
)
def test_host_process(container_errors, container, spec, options, expected):
    assert container_errors({"securityContext": container}, spec, **options) == expected


@pytest.mark.parametrize(
    ("spec", "container", "expected"),
    [
        pytest.param({"os": {"name": "linux"}}, {}, [], id="linux"),
        pytest.param({"os": {"name": ""}}, {}, ["spec.os.name: Required value: cannot be empty"], id="no name"),
        pytest.param(
            {"os": {"name": "x"}},
            {},
            ['spec.os: Unsupported value: "x": supported values: "linux", "windows"'],
            id="unknown",
        ),
        pytest.param(
            {"os": {"name": "linux"}, "securityContext": {"windowsOptions": {}}},
            {"windowsOptions": {}},
            [
                "spec.securityContext.windowsOptions: Forbidden: windows options cannot be set for a linux pod",
                f"{W}: Forbidden: windows options cannot be set for a linux pod",
            ],
            id="windows options on linux",
        ),
        pytest.param(
            {
                "os": {"name": "windows"},
                "hostUsers": True,
                "hostPID": True,
                "hostIPC": True,
                "shareProcessNamespace": False,
                "securityContext": {
                    "appArmorProfile": {"type": "Unconfined"},
                    "seLinuxOptions": {},
                    "seccompProfile": {"type": "Unconfined"},
                    "fsGroup": 1,
                    "fsGroupChangePolicy": "Always",
                    "sysctls": [{"name": "a", "value": "b"}],
                    "runAsUser": 1,
                    "runAsGroup": 1,
                    "supplementalGroups": [1],
                    "supplementalGroupsPolicy": "Merge",
                    "seLinuxChangePolicy": "Recursive",
                },
            },
            {
                "appArmorProfile": {"type": "Unconfined"},
                "seLinuxOptions": {},
                "seccompProfile": {"type": "Unconfined"},
                "capabilities": {},
                "readOnlyRootFilesystem": False,
                "privileged": False,
                "allowPrivilegeEscalation": True,
                "procMount": "Default",
                "runAsUser": 1,
                "runAsGroup": 1,
            },
            [
                f"spec.{path}: {NOT_HERE}"
                for path in (
                    "securityContext.appArmorProfile",
                    "securityContext.seLinuxOptions",
                    "hostUsers",
                    "hostPID",
                    "hostIPC",
                    "securityContext.seccompProfile",
                    "securityContext.fsGroup",
                    "securityContext.fsGroupChangePolicy",
                    "securityContext.sysctls",
                    "shareProcessNamespace",
                    "securityContext.runAsUser",
                    "securityContext.runAsGroup",
                    "securityContext.supplementalGroups",
                    "securityContext.supplementalGroupsPolicy",
                    "securityContext.seLinuxChangePolicy",
                    *(
                        f"containers[0].securityContext.{name}"
                        for name in (
                            "appArmorProfile",
                            "seLinuxOptions",
                            "seccompProfile",
                            "capabilities",
                            "readOnlyRootFilesystem",
                            "privileged",
                            "allowPrivilegeEscalation",
                            "procMount",
                            "runAsUser",
                            "runAsGroup",
                        )
                    ),
                )
            ],
            id="linux fields on windows",
        ),
    ],
)
def test_operating_system(container_errors, spec, container, expected):
    assert container_errors({"securityContext": container}, spec) == expected
