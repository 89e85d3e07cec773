import pytest

from klet.api.validation import formats

[LABEL] = formats.dns_label("A")
[SUBDOMAIN] = formats.dns_subdomain("A")
[UNDERSCORED] = formats.dns_subdomain_with_underscore("A")
[IP] = formats.ip_address("x")
[NAME_PART] = formats.label_key("-a")
[VALUE] = formats.label_value("a b")
D = "spec.dnsConfig"
FOUR = ["1.1.1.1"] * 4
SEARCHES = [f"a{number}" for number in range(33)]
LONG = ["a" * 200 for _ in range(11)]
SHOWN_SEARCHES = "[" + ",".join(f'"{search}"' for search in SEARCHES) + "]"
SHOWN_LONG = "[" + ",".join(f'"{search}"' for search in LONG) + "]"
DEVICE = {"name": "c", "image": "i", "volumeDevices": [{"name": "v", "devicePath": "/x"}]}
CLAIM = [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param(
            {"restartPolicy": "x"},
            ['spec.restartPolicy: Unsupported value: "x": supported values: "Always", "OnFailure", "Never"'],
            id="an unknown restart policy",
        ),
        pytest.param(
            {"dnsPolicy": "x"},
            [
                (
                    'spec.dnsPolicy: Unsupported value: "x": supported values: '
                    '"ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"'
                )
            ],
            id="an unknown DNS policy",
        ),
        pytest.param(
            {"nodeSelector": {"-a": "a b"}},
            [
                f'spec.nodeSelector: Invalid value: "-a": {NAME_PART}',
                f'spec.nodeSelector: Invalid value: "a b": {VALUE}',
            ],
            id="a node selector is made of labels",
        ),
        pytest.param(
            {"dnsPolicy": "None"},
            [f"{D}: Required value: must provide `dnsConfig` when `dnsPolicy` is None"],
            id="no DNS and no configuration",
        ),
        pytest.param(
            {"dnsPolicy": "None", "dnsConfig": {}},
            [f"{D}.nameservers: Required value: must provide at least one DNS nameserver when `dnsPolicy` is None"],
            id="no DNS and no name servers",
        ),
        pytest.param(
            {
                "dnsConfig": {
                    "nameservers": ["1.1.1.1"],
                    "searches": [".", "a.b.", "_x.a_b"],
                    "options": [{"name": "o"}],
                }
            },
            [],
            id="a DNS configuration",
        ),
        pytest.param(
            {"dnsConfig": {"nameservers": FOUR}},
            [
                (
                    f'{D}.nameservers: Invalid value: ["1.1.1.1","1.1.1.1","1.1.1.1","1.1.1.1"]: '
                    "must not have more than 3 nameservers"
                )
            ],
            id="too many name servers",
        ),
        pytest.param(
            {"dnsConfig": {"nameservers": ["x"], "searches": ["A."], "options": [{}]}},
            [
                f'{D}.nameservers[0]: Invalid value: "x": {IP}',
                f'{D}.searches[0]: Invalid value: "A": {UNDERSCORED}',
                f"{D}.options[0]: Required value: must not be empty",
            ],
            id="bad servers, searches and options",
        ),
        pytest.param(
            {"dnsConfig": {"searches": SEARCHES}},
            [f"{D}.searches: Invalid value: {SHOWN_SEARCHES}: must not have more than 32 search paths"],
            id="too many searches",
        ),
        pytest.param(
            {"dnsConfig": {"searches": LONG}},
            [
                (
                    f"{D}.searches: Invalid value: {SHOWN_LONG}: must not have more than 2048 "
                    "characters (including spaces) in "
                    "the search list"
                )
            ],
            id="too long searches",
        ),
        pytest.param(
            {"hostUsers": False, "hostNetwork": True, "hostPID": True, "hostIPC": True},
            [
                "spec.hostNetwork: Forbidden: when `hostUsers` is false",
                "spec.HostPID: Forbidden: when `hostUsers` is false",
                "spec.HostIPC: Forbidden: when `hostUsers` is false",
            ],
            id="own users and namespaces of the host",
        ),
        pytest.param(
            {"hostUsers": False, "containers": [DEVICE], "volumes": CLAIM},
            ["spec.containers[0].volumeDevices: Forbidden: when `hostUsers` is false"],
            id="own users and block devices",
        ),
        pytest.param({"hostUsers": False}, [], id="own users"),
        pytest.param({"hostnameOverride": "a.b"}, [], id="another host name"),
        pytest.param(
            {"hostnameOverride": "A" * 65, "setHostnameAsFQDN": True, "hostNetwork": True},
            [
                f'spec.hostnameOverride: Invalid value: "{"A" * 65}": {SUBDOMAIN}',
                "spec.hostnameOverride: Too long: may not be more than 64 bytes",
                "spec.hostnameOverride: Forbidden: may not be specified when setHostnameAsFQDN is true",
                "spec.hostnameOverride: Forbidden: may not be specified when hostNetwork is true",
            ],
            id="another host name that cannot be",
        ),
        pytest.param(
            {
                "serviceAccountName": "A",
                "nodeName": "A",
                "activeDeadlineSeconds": 0,
                "hostname": "A",
                "subdomain": "A",
                "hostAliases": [{"ip": "x", "hostnames": ["A"]}],
                "priorityClassName": "A",
                "runtimeClassName": "A",
                "preemptionPolicy": "x",
            },
            [
                f'spec.serviceAccountName: Invalid value: "A": {SUBDOMAIN}',
                f'spec.nodeName: Invalid value: "A": {SUBDOMAIN}',
                "spec.activeDeadlineSeconds: Invalid value: 0: must be between 1 and 2147483647, inclusive",
                f'spec.hostname: Invalid value: "A": {LABEL}',
                f'spec.subdomain: Invalid value: "A": {LABEL}',
                f'spec.hostAliases[0].ip: Invalid value: "x": {IP}',
                f'spec.hostAliases[0].hostnames[0]: Invalid value: "A": {SUBDOMAIN}',
                f'spec.priorityClassName: Invalid value: "A": {SUBDOMAIN}',
                f'spec.runtimeClassName: Invalid value: "A": {SUBDOMAIN}',
                'spec.preemptionPolicy: Unsupported value: "x": supported values: "PreemptLowerPriority", "Never"',
            ],
            id="names",
        ),
        pytest.param(
            {"preemptionPolicy": ""}, ["spec.preemptionPolicy: Required value"], id="an empty preemption policy"
        ),
        pytest.param(
            {"runtimeClassName": ""}, [f'spec.runtimeClassName: Invalid value: "": {SUBDOMAIN}'], id="no class"
        ),
    ],
)
def test_pod_spec(errors_of, spec, expected):
    assert errors_of({"spec": spec}) == expected


def test_a_gate_lets_pods_with_their_own_users_into_the_network_of_the_host(errors_of):
    assert errors_of({"spec": {"hostUsers": False, "hostNetwork": True}}, user_namespaces_host_network=True) == []
