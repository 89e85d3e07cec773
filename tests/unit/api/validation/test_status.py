import pytest

from klet.api.validation import formats
from klet.api.validation.options import PodValidationOptions
from klet.api.validation.status import validate_pod_status_update

[SUBDOMAIN] = formats.dns_subdomain("A")
[NAME_PART] = formats.label_key("-a")
[IP] = formats.ip_address("x")
BACK = "Forbidden: may not be transitioned to non-terminated state"
IDS = "must be between 0 and 2147483647, inclusive"
FAMILY = "may specify no more than one IP for each IP family"
DEAD = {"state": {"terminated": {"exitCode": 0}}}
FAILED = {"state": {"terminated": {"exitCode": 1}}}
ALIVE = {"state": {"running": {}}}


@pytest.mark.parametrize(
    ("new", "expected"),
    [
        pytest.param(
            {"phase": "Running", "podIP": "1.1.1.1", "podIPs": [{"ip": "1.1.1.1"}, {"ip": "::1"}]}, [], id="good"
        ),
        pytest.param(
            {"conditions": [{"type": "Ready", "status": "True"}, {"type": "-a", "status": "True"}]},
            [f'metadata.conditions[1].Type: Invalid value: "-a": {NAME_PART}'],
            id="condition types are qualified names",
        ),
        pytest.param(
            {"conditions": [{"type": "a", "status": "True", "observedGeneration": -1}], "observedGeneration": -1},
            [
                "status.conditions[0].observedGeneration: Invalid value: -1: must be greater than or equal to 0",
                "status.observedGeneration: Invalid value: -1: must be greater than or equal to 0",
            ],
            id="generations are not negative",
        ),
        pytest.param(
            {"nominatedNodeName": "A"},
            [f'status.nominatedNodeName: Invalid value: "A": {SUBDOMAIN}'],
            id="a nominated node",
        ),
        pytest.param(
            {"qosClass": "Burstable"},
            ['status.qosClass: Invalid value: "Burstable": field is immutable'],
            id="the class",
        ),
        pytest.param(
            {"podIP": "x", "podIPs": [{"ip": "x"}, {"ip": "x"}]},
            [
                f'status.podIPs[0]: Invalid value: "x": {IP}',
                f'status.podIPs[1]: Invalid value: "x": {IP}',
                f'status.podIPs: Invalid value: [{{"IP":"x"}},{{"IP":"x"}}]: {FAMILY}',
                'status.podIPs[1]: Duplicate value: {"IP":"x"}',
            ],
            id="addresses of the pod",
        ),
        pytest.param(
            {"podIP": "1.1.1.1", "podIPs": [{"ip": "1.1.1.1"}, {"ip": "1.1.1.2"}]},
            [f'status.podIPs: Invalid value: [{{"IP":"1.1.1.1"}},{{"IP":"1.1.1.2"}}]: {FAMILY}'],
            id="one address a family",
        ),
        pytest.param(
            {"hostIP": "1.1.1.1", "hostIPs": [{"ip": "1.1.1.2"}, {"ip": "1.1.1.2"}]},
            [
                'status.hostIPs[0].ip: Invalid value: "1.1.1.2": must be equal to `hostIP`',
                'status.hostIPs[1]: Duplicate value: {"IP":"1.1.1.2"}',
                f'status.hostIPs: Invalid value: [{{"IP":"1.1.1.2"}},{{"IP":"1.1.1.2"}}]: {FAMILY}',
            ],
            id="addresses of the node",
        ),
        pytest.param(
            {"hostIP": "x", "hostIPs": [{"ip": "x"}]}, [f'status.hostIPs[0]: Invalid value: "x": {IP}'], id="no address"
        ),
        pytest.param(
            {
                "containerStatuses": [
                    {"name": "c", "user": {"linux": {"uid": -1, "gid": -1, "supplementalGroups": [-1]}}}
                ]
            },
            [
                f"status.containerStatuses[0].linux.uid: Invalid value: -1: {IDS}",
                f"status.containerStatuses[0].linux.gid: Invalid value: -1: {IDS}",
                f"status.containerStatuses[0].linux.supplementalGroups[0]: Invalid value: -1: {IDS}",
            ],
            id="users of containers",
        ),
        pytest.param(
            {"resourceClaimStatuses": [{"name": "x", "resourceClaimName": "A"}, {"name": "x"}]},
            [
                (
                    'status.resourceClaimStatuses[0].name: Invalid value: "x": must match the name of an entry in '
                    "`spec.resourceClaims`"
                ),
                f'status.resourceClaimStatuses[0].name: Invalid value: "A": {SUBDOMAIN}',
                (
                    'status.resourceClaimStatuses[1].name: Invalid value: "x": must match the name of an entry in '
                    "`spec.resourceClaims`"
                ),
                'status.resourceClaimStatuses[1].name: Duplicate value: "x"',
            ],
            id="claims",
        ),
        pytest.param(
            {
                "containerStatuses": [
                    {
                        "name": "c",
                        "allocatedResourcesStatus": [
                            {"name": "x/y"},
                            {"name": "claim:z"},
                            {"name": "claim:a/r"},
                            {
                                "name": "cpu",
                                "resources": [
                                    {"resourceID": "1", "health": "x"},
                                    {"resourceID": "1", "health": "Healthy"},
                                ],
                            },
                        ],
                    },
                    {"name": "gone", "allocatedResourcesStatus": [{"name": "x/y"}]},
                ],
                "ephemeralContainerStatuses": [{"name": "e", "allocatedResourcesStatus": [{"name": "x"}]}],
            },
            [
                (
                    'status.containerStatuses[0].allocatedResourcesStatus[0].name: Invalid value: "x/y": '
                    "must match one of the container's resource requests"
                ),
                (
                    'status.containerStatuses[0].allocatedResourcesStatus[1].name: Invalid value: "claim:z": '
                    "must match one of the container's resource claims in a format 'claim:<claimName>/<request>' or "
                    "'claim:<claimName>' if request is empty"
                ),
                (
                    "status.containerStatuses[0].allocatedResourcesStatus[3].resources[0].health: "
                    'Unsupported value: "x": '
                    'supported values: "Healthy", "Unhealthy", "Unknown"'
                ),
                'status.containerStatuses[0].allocatedResourcesStatus[3].resources[1].resourceID: Duplicate value: "1"',
                (
                    "status.ephemeralContainerStatuses[0].allocatedResourcesStatus: Forbidden: "
                    "must not be specified in "
                    "container status"
                ),
            ],
            id="health of devices",
        ),
    ],
)
def test_status_update(make_pod, new, expected):
    spec = {
        "containers": [
            {
                "name": "c",
                "image": "i",
                "resources": {"requests": {"cpu": "1"}, "claims": [{"name": "a", "request": "r"}]},
            }
        ],
        "resourceClaims": [{"name": "a", "resourceClaimName": "a"}],
    }
    found = validate_pod_status_update(make_pod({"spec": spec, "status": new}), make_pod({"spec": spec}))
    assert [str(error) for error in found] == expected


def test_a_bound_pod_is_not_nominated(make_pod):
    spec = {"nodeName": "n"}
    new = make_pod({"spec": spec, "status": {"nominatedNodeName": "m"}})
    assert [str(error) for error in validate_pod_status_update(new, make_pod({"spec": spec}))] == [
        "status.nominatedNodeName: Forbidden: may not be set on pods that are already bound to a node"
    ]


def test_the_node_is_set_by_binding_only(make_pod):
    found = validate_pod_status_update(make_pod({"spec": {"nodeName": "n"}}), make_pod({}))
    assert [str(error) for error in found] == ["status.nodeName: Forbidden: may not be changed directly"]


def test_windows_containers_have_no_linux_user(make_pod):
    spec = {"os": {"name": "windows"}}
    statuses = [{"name": "c", "user": {"linux": {"uid": 1, "gid": 1}}}]
    new = make_pod({"spec": spec, "status": {"containerStatuses": statuses}})
    assert [str(error) for error in validate_pod_status_update(new, make_pod({"spec": spec}))] == [
        "status.containerStatuses[0].linux: Forbidden: cannot be set for a windows pod"
    ]


CS, IS, ES = ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")


@pytest.mark.parametrize(
    ("spec", "kind", "old", "new", "expected"),
    [
        pytest.param({"restartPolicy": "Always"}, CS, DEAD, ALIVE, [], id="always restarted"),
        pytest.param(
            {"restartPolicy": "Never"}, CS, FAILED, ALIVE, [f"status.{CS}[0].state: {BACK}"], id="never restarted"
        ),
        pytest.param({"restartPolicy": "Never"}, CS, DEAD, FAILED, [], id="still terminated"),
        pytest.param({"restartPolicy": "Never"}, CS, ALIVE, DEAD, [], id="terminated now"),
        pytest.param({"restartPolicy": "OnFailure"}, CS, FAILED, ALIVE, [], id="restarted after a failure"),
        pytest.param(
            {"restartPolicy": "OnFailure"},
            CS,
            DEAD,
            ALIVE,
            [f"status.{CS}[0].state: {BACK}"],
            id="restarted after success",
        ),
        pytest.param(
            {"restartPolicy": "Never", "containers": [{"name": "x", "image": "i", "restartPolicy": "Always"}]},
            CS,
            DEAD,
            ALIVE,
            [],
            id="the container's own policy wins",
        ),
        pytest.param(
            {
                "restartPolicy": "Never",
                "containers": [
                    {
                        "name": "x",
                        "image": "i",
                        "restartPolicy": "Never",
                        "restartPolicyRules": [{"action": "Restart", "exitCodes": {"operator": "In", "values": [1]}}],
                    }
                ],
            },
            CS,
            FAILED,
            ALIVE,
            [],
            id="rules may restart it",
        ),
        pytest.param(
            {"restartPolicy": "Never", "initContainers": [{"name": "x", "image": "i", "restartPolicy": "Always"}]},
            IS,
            FAILED,
            ALIVE,
            [],
            id="a sidecar comes back",
        ),
        pytest.param(
            {"restartPolicy": "Never", "initContainers": [{"name": "x", "image": "i"}]},
            IS,
            DEAD,
            ALIVE,
            [f"status.{IS}[0].state: {BACK}"],
            id="an init container does not come back",
        ),
        pytest.param(
            {"restartPolicy": "Always"},
            ES,
            DEAD,
            ALIVE,
            [f"status.{ES}[0].state: {BACK}"],
            id="debuggers never restart",
        ),
    ],
)
def test_terminated_containers_stay_terminated(make_pod, spec, kind, old, new, expected):
    before = make_pod({"spec": spec, "status": {kind: [{"name": "x", **old}]}})
    after = make_pod({"spec": spec, "status": {kind: [{"name": "x", **new}]}})
    assert [str(error) for error in validate_pod_status_update(after, before)] == expected


@pytest.mark.parametrize(
    ("is_on", "expected"),
    [
        pytest.param(True, [], id="all may come back"),
        pytest.param(
            False, [f"status.{CS}[0].state: {BACK}", f"status.{IS}[0].state: {BACK}"], id="not without its gate"
        ),
    ],
)
def test_where_one_exit_may_restart_all(make_pod, is_on, expected):
    rules = [{"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [42]}}]
    asks = {"name": "asks", "image": "i", "restartPolicy": "Never", "restartPolicyRules": rules}
    spec = {
        "restartPolicy": "Never",
        "containers": [{"name": "x", "image": "i"}, asks],
        "initContainers": [{"name": "y", "image": "i"}],
    }
    before, after = (
        make_pod({"spec": spec, "status": {CS: [{"name": "x", **state}], IS: [{"name": "y", **state}]}})
        for state in (DEAD, ALIVE)
    )
    options = PodValidationOptions(restart_all_containers=is_on)
    assert [str(error) for error in validate_pod_status_update(after, before, options)] == expected
