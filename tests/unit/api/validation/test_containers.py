import pytest

from klet.api.validation import formats

[LABEL] = formats.dns_label("A")
C = "spec.containers[0]"
I = "spec.initContainers[0]"  # noqa: E741  # reads as its first letter
E = "spec.ephemeralContainers[0]"
PULL = '"Always", "IfNotPresent", "Never"'
PORT = {"containerPort": 80}
RULE = {"action": "Restart", "exitCodes": {"operator": "In", "values": [1]}}


@pytest.mark.parametrize(
    ("container", "expected"),
    [
        pytest.param({"name": ""}, [f"{C}.name: Required value"], id="a name is needed"),
        pytest.param({"name": "A"}, [f'{C}.name: Invalid value: "A": {LABEL}'], id="the name is a label"),
        pytest.param({"image": ""}, [f"{C}.image: Required value"], id="an image is needed"),
        pytest.param(
            {"image": " x"},
            [f'{C}.image: Invalid value: " x": must not have leading or trailing whitespace'],
            id="an image with blanks around",
        ),
        pytest.param(
            {"terminationMessagePolicy": "x"},
            [
                (
                    f'{C}.terminationMessagePolicy: Unsupported value: "x": supported values: '
                    '"File", "FallbackToLogsOnError"'
                )
            ],
            id="termination messages",
        ),
        pytest.param(
            {"imagePullPolicy": "x"},
            [f'{C}.imagePullPolicy: Unsupported value: "x": supported values: {PULL}'],
            id="pulls",
        ),
        pytest.param({"ports": [PORT | {"name": "http", "hostPort": 80}]}, [], id="a port"),
        pytest.param(
            {"ports": [PORT | {"name": "HTTP"}]},
            [
                (
                    f'{C}.ports[0].name: Invalid value: "HTTP": must contain only alpha-numeric '
                    "characters (a-z, 0-9), and "
                    "hyphens (-)"
                ),
                f'{C}.ports[0].name: Invalid value: "HTTP": must contain at least one letter (a-z)',
            ],
            id="a port name",
        ),
        pytest.param(
            {"ports": [PORT | {"name": "a"}, {"name": "a", "containerPort": 81}]},
            [f'{C}.ports[1].name: Duplicate value: "a"'],
            id="port names are unique",
        ),
        pytest.param(
            {"ports": [{"containerPort": 0}]},
            [f"{C}.ports[0].containerPort: Required value"],
            id="a port needs a number",
        ),
        pytest.param(
            {"ports": [{"containerPort": 65536, "hostPort": -1, "protocol": "x"}]},
            [
                f"{C}.ports[0].containerPort: Invalid value: 65536: must be between 1 and 65535, inclusive",
                f"{C}.ports[0].hostPort: Invalid value: -1: must be between 1 and 65535, inclusive",
                f'{C}.ports[0].protocol: Unsupported value: "x": supported values: "SCTP", "TCP", "UDP"',
            ],
            id="a port out of range",
        ),
        pytest.param(
            {"ports": [PORT | {"hostPort": 80}, {"containerPort": 81, "hostPort": 80}]},
            [f'{C}.ports[1].hostPort: Duplicate value: "TCP//80"'],
            id="a host port is taken once",
        ),
        pytest.param(
            {"ports": [PORT | {"hostPort": 80}, PORT | {"hostPort": 80, "hostIP": "127.0.0.1"}]},
            [],
            id="addresses keep host ports apart",
        ),
        pytest.param(
            {"resizePolicy": [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]}, [], id="a resize policy"
        ),
        pytest.param(
            {"resizePolicy": [{"resourceName": "x", "restartPolicy": "y"}, {"resourceName": "", "restartPolicy": ""}]},
            [
                f'{C}.resizePolicy: Unsupported value: "x": supported values: "cpu", "memory"',
                f'{C}.resizePolicy: Unsupported value: "y": supported values: "NotRequired", "RestartContainer"',
                f"{C}.resizePolicy: Required value",
                f"{C}.resizePolicy: Required value",
            ],
            id="unknown resize policies",
        ),
        pytest.param(
            {"resizePolicy": [{"resourceName": "cpu", "restartPolicy": "NotRequired"}] * 2},
            [f'{C}.resizePolicy[1]: Duplicate value: "cpu"'],
            id="one resize policy a resource",
        ),
        pytest.param({"restartPolicy": "Never", "restartPolicyRules": [RULE]}, [], id="restart rules"),
        pytest.param(
            {"restartPolicy": "x"},
            [f'{C}.restartPolicy: Unsupported value: "x": supported values: "Always", "Never", "OnFailure"'],
            id="an unknown restart policy",
        ),
        pytest.param(
            {"restartPolicyRules": [RULE]},
            [f"{C}.restartPolicy: Required value: must specify restartPolicy when restart rules are used"],
            id="rules need a policy",
        ),
        pytest.param(
            {"restartPolicy": "Never", "restartPolicyRules": [RULE] * 21},
            [f"{C}.restartPolicyRules: Too many: 21: must have at most 20 items"],
            id="too many rules",
        ),
        pytest.param(
            {"restartPolicy": "Never", "restartPolicyRules": [{"action": "RestartAllContainers"}]},
            [
                (
                    f'{C}.restartPolicyRules[0].action: Unsupported value: "RestartAllContainers": '
                    'supported values: "Restart"'
                ),
                f"{C}.restartPolicyRules[0].exitCodes: Required value: must be specified",
            ],
            id="a rule needs a known action and exit codes",
        ),
        pytest.param(
            {
                "restartPolicy": "Never",
                "restartPolicyRules": [{"action": "Restart", "exitCodes": {"operator": "x", "values": [1] * 256}}],
            },
            [
                (
                    f'{C}.restartPolicyRules[0].exitCodes.operator: Unsupported value: "x": '
                    'supported values: "In", "NotIn"'
                ),
                f"{C}.restartPolicyRules[0].exitCodes.values: Too many: 256: must have at most 255 items",
            ],
            id="exit codes of a rule",
        ),
    ],
)
def test_container(container_errors, container, expected):
    assert container_errors(container) == expected


def test_what_defaults_would_have_filled_in_is_required(container_errors):
    found = container_errors({"ports": [PORT]}, defaults=False)
    assert found == [
        "spec.terminationGracePeriodSeconds: Required value",
        f"{C}.terminationMessagePolicy: Required value",
        f"{C}.ports[0].protocol: Required value",
        f"{C}.imagePullPolicy: Required value",
        "spec.restartPolicy: Required value",
        "spec.dnsPolicy: Required value",
    ]


def test_a_pod_needs_a_container(errors_of):
    assert errors_of({"spec": {"containers": []}}) == ["spec.containers: Required value"]


def test_container_names_are_unique(errors_of):
    containers = [{"name": "a", "image": "i"}] * 2
    assert errors_of({"spec": {"containers": containers}}) == ['spec.containers[1].name: Duplicate value: "a"']


def test_host_ports_conflict_across_containers(errors_of):
    port = {"containerPort": 80, "hostPort": 80, "protocol": "UDP", "hostIP": "1.1.1.1"}
    containers = [{"name": name, "image": "i", "ports": [port]} for name in "ab"]
    assert errors_of({"spec": {"containers": containers}}) == [
        'spec.containers[1].ports[0].hostPort: Duplicate value: "UDP/1.1.1.1/80"'
    ]


def test_a_pod_that_never_restarts_resizes_without_restart(container_errors):
    policies = [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]
    assert container_errors({"resizePolicy": policies}, {"restartPolicy": "Never"}) == [
        f"{C}.resizePolicy: Invalid value: \"RestartContainer\": must be 'NotRequired' when `restartPolicy` is 'Never'"
    ]


@pytest.mark.parametrize(
    ("port", "options", "expected"),
    [
        pytest.param(
            {"containerPort": 80, "hostPort": 81},
            {},
            [f"{C}.ports[0].hostPort: Invalid value: 81: must match `containerPort` when `hostNetwork` is true"],
            id="another port of the host",
        ),
        pytest.param({"containerPort": 80}, {}, [], id="defaults make them match"),
        pytest.param(
            {"containerPort": 80},
            {"defaults": False},
            [f"{C}.ports[0].hostPort: Invalid value: 0: must match `containerPort` when `hostNetwork` is true"],
            id="no port of the host in a pod",
        ),
        pytest.param({"containerPort": 80}, {"defaults": False, "resource_is_pod": False}, [], id="no port elsewhere"),
    ],
)
def test_ports_in_the_host_network(container_errors, port, options, expected):
    found = container_errors({"ports": [port]}, {"hostNetwork": True}, **options)
    assert [error for error in found if "hostPort" in error] == expected


PROBE = {"tcpSocket": {"port": 1}}
PLAIN = "Forbidden: may not be set for init containers without restartPolicy=Always"


@pytest.mark.parametrize(
    ("container", "expected"),
    [
        pytest.param({"restartPolicy": "Always", "livenessProbe": PROBE, "lifecycle": {}}, [], id="a sidecar"),
        pytest.param(
            {"restartPolicy": "OnFailure", "restartPolicyRules": [RULE]}, [], id="a rule for an init container"
        ),
        pytest.param({"name": "c"}, [f'{I}.name: Duplicate value: "c"'], id="names are unique among all"),
        pytest.param(
            {"lifecycle": {}, "livenessProbe": PROBE, "readinessProbe": PROBE, "startupProbe": PROBE},
            [f"{I}.{field}: {PLAIN}" for field in ("lifecycle", "livenessProbe", "readinessProbe", "startupProbe")],
            id="only sidecars are probed",
        ),
        pytest.param(
            {"restartPolicy": "Always", "restartPolicyRules": [RULE]},
            [
                (
                    f"{I}.restartPolicyRules: Forbidden: restartPolicyRules are not allowed for "
                    "init containers with restart "
                    "policy Always"
                )
            ],
            id="no rules for sidecars",
        ),
        pytest.param(
            {"restartPolicy": "Always", "livenessProbe": PROBE | {"successThreshold": 2}},
            [f"{I}.livenessProbe.successThreshold: Invalid value: 2: must be 1"],
            id="probes of sidecars are checked",
        ),
        pytest.param(
            {"ports": [PORT | {"hostPort": 80}] * 2},
            [f'{I}.ports[1].hostPort: Duplicate value: "TCP//80"'],
            id="host ports within one init container",
        ),
        pytest.param(
            {"image": "x "},
            [f'{I}.image: Invalid value: "x ": must not have leading or trailing whitespace'],
            id="an image with blanks around",
        ),
    ],
)
def test_init_container(errors_of, container, expected):
    assert errors_of({"spec": {"initContainers": [{"name": "i", "image": "i", **container}]}}) == expected


NOT_HERE = "Forbidden: cannot be set for an Ephemeral Container"


@pytest.mark.parametrize(
    ("container", "expected"),
    [
        pytest.param({"targetContainerName": "c"}, [], id="a debugger"),
        pytest.param({"targetContainerName": "x"}, [f'{E}.targetContainerName: Not found: "x"'], id="no such target"),
        pytest.param({"name": "c"}, [f'{E}.name: Duplicate value: "c"'], id="names are unique among all"),
        pytest.param(
            {"image": " x"},
            [f'{E}.image: Invalid value: " x": must not have leading or trailing whitespace'],
            id="an image with blanks around",
        ),
        pytest.param(
            {
                "ports": [PORT],
                "resources": {"limits": {"cpu": "1"}},
                "resizePolicy": [{"resourceName": "cpu", "restartPolicy": "NotRequired"}],
                "restartPolicy": "Always",
                "restartPolicyRules": [RULE],
                "livenessProbe": PROBE,
                "readinessProbe": PROBE,
                "startupProbe": PROBE,
                "lifecycle": {},
            },
            [
                f"{E}.{field}: {NOT_HERE}"
                for field in (
                    "ports",
                    "resources",
                    "resizePolicy",
                    "restartPolicy",
                    "restartPolicyRules",
                    "livenessProbe",
                    "readinessProbe",
                    "startupProbe",
                    "lifecycle",
                )
            ],
            id="what a debugger does not need",
        ),
        pytest.param(
            {
                "volumeMounts": [
                    {"name": "v", "mountPath": "/a", "subPath": "x"},
                    {"name": "v", "mountPath": "/b", "subPathExpr": "x"},
                ]
            },
            [f"{E}.volumeMounts[0].subPath: {NOT_HERE}", f"{E}.volumeMounts[1].subPathExpr: {NOT_HERE}"],
            id="no sub-paths",
        ),
    ],
)
def test_ephemeral_container(errors_of, container, expected):
    spec = {"volumes": [{"name": "v"}], "ephemeralContainers": [{"name": "e", "image": "i", **container}]}
    assert errors_of({"spec": spec}) == [*expected, "spec.ephemeralContainers: Forbidden: cannot be set on create"]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param(
            {"containers": [{"name": "c", "image": "i:1", "restartPolicy": "Never"}]},
            [f"{C}.restartPolicy: Forbidden: may not be set for non-init containers"],
            id="a container has none",
        ),
        pytest.param(
            {"containers": [{"name": "c", "image": "i:1", "restartPolicyRules": [RULE]}]}, [], id="rules alone"
        ),
        pytest.param(
            {"initContainers": [{"name": "i", "image": "i:1", "restartPolicy": "Never"}]},
            [f'{I}.restartPolicy: Unsupported value: "Never": supported values: "Always"'],
            id="an init container can only be a sidecar",
        ),
        pytest.param(
            {
                "initContainers": [
                    {"name": "i", "image": "i:1", "restartPolicy": "Always", "restartPolicyRules": [RULE]}
                ]
            },
            [],
            id="as which nobody looks at its rules",
        ),
        pytest.param(
            {"initContainers": [{"name": "i", "image": "i:1", "restartPolicyRules": [RULE]}]},
            [f"{I}.restartPolicy: Required value: must specify restartPolicy when restart rules are used"],
            id="rules without a policy",
        ),
    ],
)
def test_restart_policies_of_containers_while_their_gate_is_off(errors_of, spec, expected):
    assert errors_of({"spec": spec}, container_restart_rules=False) == expected


ALL_RULE = {**RULE, "action": "RestartAllContainers"}
ONLY_RESTART = 'Unsupported value: "x": supported values: "Restart"'


@pytest.mark.parametrize(
    ("spec", "is_on", "expected"),
    [
        pytest.param(
            {"containers": [{"name": "c", "image": "i", "restartPolicy": "Never", "restartPolicyRules": [ALL_RULE]}]},
            True,
            [],
            id="a regular container",
        ),
        pytest.param(
            {
                "initContainers": [
                    {"name": "i", "image": "i", "restartPolicy": "Never", "restartPolicyRules": [ALL_RULE]}
                ]
            },
            True,
            [],
            id="an init container",
        ),
        pytest.param(
            {
                "initContainers": [
                    {"name": "i", "image": "i", "restartPolicy": "Always", "restartPolicyRules": [ALL_RULE]}
                ]
            },
            True,
            [],
            id="also a sidecar",
        ),
        pytest.param(
            {"initContainers": [{"name": "i", "image": "i", "restartPolicy": "Always", "restartPolicyRules": [{}]}]},
            False,
            [
                (
                    f"{I}.restartPolicyRules: Forbidden: restartPolicyRules are not allowed for init containers with "
                    "restart policy Always"
                )
            ],
            id="a sidecar without the gate has no rules at all",
        ),
        pytest.param(
            {"initContainers": [{"name": "i", "image": "i", "restartPolicyRules": [{}]}]},
            True,
            [f"{I}.restartPolicy: Required value: must specify restartPolicy when restart rules are used"],
            id="rules of an init container without a policy are not looked at",
        ),
        pytest.param(
            {
                "containers": [
                    {
                        "name": "c",
                        "image": "i",
                        "restartPolicy": "Never",
                        "restartPolicyRules": [{**RULE, "action": "x"}],
                    }
                ]
            },
            True,
            [f"{C}.restartPolicyRules[0].action: {ONLY_RESTART}"],
            id="the text is the same with the gate",
        ),
    ],
)
def test_rules_that_restart_all_containers(errors_of, spec, is_on, expected):
    assert errors_of({"spec": {"restartPolicy": "Never", **spec}}, restart_all_containers=is_on) == expected
