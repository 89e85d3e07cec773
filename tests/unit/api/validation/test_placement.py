import pytest

from klet.api.validation import formats

[LABEL] = formats.dns_label("A")
[SUBDOMAIN] = formats.dns_subdomain("A")
[NAME_PART] = formats.label_key("-a")
[VALUE] = formats.label_value("a b")
EMPTY_KEY = formats.label_key("")
A = "spec.affinity"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
TERM = f"{A}.nodeAffinity.{REQUIRED}.nodeSelectorTerms"
VALUES = "must be specified when `operator` is 'In' or 'NotIn'"
NO_VALUES = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"


def node_terms(*terms):
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": list(terms)}}}


def labels(operator, *values, key="a"):
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


def fields(operator, *values, key="metadata.name"):
    return {"matchFields": [{"key": key, "operator": operator, "values": list(values)}]}


@pytest.mark.parametrize(
    ("affinity", "expected"),
    [
        pytest.param(node_terms(labels("In", "b"), labels("Gt", "1"), fields("In", "n")), [], id="good"),
        pytest.param(
            node_terms(), [f"{TERM}: Required value: must have at least one node selector term"], id="a term is needed"
        ),
        pytest.param(
            node_terms(labels("NotIn")),
            [f"{TERM}[0].matchExpressions[0].values: Required value: {VALUES}"],
            id="in nothing",
        ),
        pytest.param(
            node_terms(labels("Exists", "b")),
            [f"{TERM}[0].matchExpressions[0].values: Forbidden: {NO_VALUES}"],
            id="existing with a value",
        ),
        pytest.param(
            node_terms(labels("Lt", "1", "2")),
            [
                (
                    f"{TERM}[0].matchExpressions[0].values: Required value: must be specified "
                    "single value when `operator` is "
                    "'Lt' or 'Gt'"
                )
            ],
            id="less than two values",
        ),
        pytest.param(
            node_terms(labels("x", "a b", key="-a")),
            [
                f'{TERM}[0].matchExpressions[0].operator: Invalid value: "x": not a valid selector operator',
                f'{TERM}[0].matchExpressions[0].key: Invalid value: "-a": {NAME_PART}',
                f'{TERM}[0].matchExpressions[0].values[0]: Invalid value: "a b": {VALUE}',
            ],
            id="unknown operator, bad key, bad value",
        ),
        pytest.param(
            node_terms(fields("Exists"), fields("In", "a", "A"), fields("In", "x", key="y")),
            [
                f'{TERM}[0].matchFields[0].operator: Invalid value: "Exists": not a valid selector operator',
                (
                    f"{TERM}[1].matchFields[0].values: Required value: must be only one value "
                    "when `operator` is 'In' or "
                    "'NotIn' for node field selector"
                ),
                f'{TERM}[1].matchFields[0].values[1]: Invalid value: "A": {SUBDOMAIN}',
                f'{TERM}[2].matchFields[0].key: Invalid value: "y": not a valid field selector key',
            ],
            id="fields of nodes",
        ),
        pytest.param(
            {"nodeAffinity": {PREFERRED: [{"weight": 0, "preference": labels("In", "a b")}]}},
            [f"{A}.nodeAffinity.{PREFERRED}[0].weight: Invalid value: 0: must be in the range 1-100"],
            id="preferences may name impossible values",
        ),
        pytest.param(
            {"podAffinity": {REQUIRED: [{"topologyKey": "", "namespaces": ["A"]}]}},
            [
                f'{A}.podAffinity.{REQUIRED}[0].namespace: Invalid value: "A": {LABEL}',
                f"{A}.podAffinity.{REQUIRED}[0].topologyKey: Required value: can not be empty",
                *(f'{A}.podAffinity.{REQUIRED}[0].topologyKey: Invalid value: "": {text}' for text in EMPTY_KEY),
            ],
            id="a pod term needs a topology key",
        ),
        pytest.param(
            {"podAntiAffinity": {PREFERRED: [{"weight": 101, "podAffinityTerm": {"topologyKey": "-a"}}]}},
            [
                f"{A}.podAntiAffinity.{PREFERRED}[0].weight: Invalid value: 101: must be in the range 1-100",
                f'{A}.podAntiAffinity.{PREFERRED}[0].podAffinityTerm.topologyKey: Invalid value: "-a": {NAME_PART}',
            ],
            id="weights of pod terms",
        ),
        pytest.param(
            {
                "podAffinity": {
                    REQUIRED: [
                        {
                            "topologyKey": "k",
                            "labelSelector": {"matchLabels": {"-a": "b"}},
                            "namespaceSelector": {
                                "matchExpressions": [
                                    {"key": "a", "operator": "In"},
                                    {"key": "a", "operator": "Exists", "values": ["x"]},
                                    {"key": "-a", "operator": "Gt", "values": ["a b"]},
                                ]
                            },
                        }
                    ]
                }
            },
            [
                f'{A}.podAffinity.{REQUIRED}[0].labelSelector.matchLabels: Invalid value: "-a": {NAME_PART}',
                f"{A}.podAffinity.{REQUIRED}[0].namespaceSelector.matchExpressions[0].values: Required value: {VALUES}",
                f"{A}.podAffinity.{REQUIRED}[0].namespaceSelector.matchExpressions[1].values: Forbidden: {NO_VALUES}",
                (
                    f"{A}.podAffinity.{REQUIRED}[0].namespaceSelector.matchExpressions[2].operator: Invalid value: "
                    '"Gt": not a valid selector operator'
                ),
                (
                    f"{A}.podAffinity.{REQUIRED}[0].namespaceSelector.matchExpressions[2].key: "
                    f'Invalid value: "-a": {NAME_PART}'
                ),
                (
                    f"{A}.podAffinity.{REQUIRED}[0].namespaceSelector.matchExpressions[2].values[0]: Invalid value: "
                    f'"a b": {VALUE}'
                ),
            ],
            id="selectors of pod terms",
        ),
        pytest.param(
            {"podAffinity": {REQUIRED: [{"topologyKey": "k", "matchLabelKeys": ["a"], "mismatchLabelKeys": ["b"]}]}},
            [
                f"{A}.podAffinity.{REQUIRED}[0].{name}: Forbidden: must not be specified when labelSelector is not set"
                for name in ("matchLabelKeys", "mismatchLabelKeys")
            ],
            id="label keys without a selector",
        ),
        pytest.param(
            {
                "podAffinity": {
                    REQUIRED: [
                        {
                            "topologyKey": "k",
                            "labelSelector": {
                                "matchLabels": {"a": "b"},
                                "matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}],
                            },
                            "matchLabelKeys": ["-a", "a"],
                            "mismatchLabelKeys": ["a"],
                        }
                    ]
                }
            },
            [
                f'{A}.podAffinity.{REQUIRED}[0].matchLabelKeys[0]: Invalid value: "-a": {NAME_PART}',
                (
                    f'{A}.podAffinity.{REQUIRED}[0][1]: Invalid value: "a": exists in both '
                    "matchLabelKeys and labelSelector"
                ),
                (
                    f'{A}.podAffinity.{REQUIRED}[0].matchLabelKeys[1]: Invalid value: "a": '
                    "exists in both matchLabelKeys and mismatchLabelKeys"
                ),
            ],
            id="label keys that are there already",
        ),
    ],
)
def test_affinity(errors_of, affinity, expected):
    assert errors_of({"spec": {"affinity": affinity}}) == expected


T = "spec.tolerations[0]"


@pytest.mark.parametrize(
    ("toleration", "expected"),
    [
        pytest.param({"operator": "Exists"}, [], id="everything"),
        pytest.param({"key": "a", "value": "b", "effect": "NoExecute", "tolerationSeconds": 3}, [], id="for a while"),
        pytest.param({"key": "-a"}, [f'{T}.key: Invalid value: "-a": {NAME_PART}'], id="a bad key"),
        pytest.param(
            {"operator": "Equal"},
            [
                (
                    f'{T}.operator: Invalid value: "Equal": operator must be Exists when `key` '
                    'is empty, which means "match all '
                    'values and all keys"'
                )
            ],
            id="equal to nothing",
        ),
        pytest.param(
            {"key": "a", "effect": "NoSchedule", "tolerationSeconds": 3},
            [f"{T}.effect: Invalid value: \"NoSchedule\": effect must be 'NoExecute' when `tolerationSeconds` is set"],
            id="seconds need NoExecute",
        ),
        pytest.param(
            {"key": "a", "operator": "Exists", "value": "v"},
            [f"{T}.operator: Invalid value: \"v\": value must be empty when `operator` is 'Exists'"],
            id="existing with a value",
        ),
        pytest.param(
            {"key": "a", "value": "A b" + "c" * 63},
            [
                f'{T}.operator: Invalid value: "A b{"c" * 63}": must be no more than 63 bytes;{VALUE}',
            ],
            id="a bad value",
        ),
        pytest.param(
            {"key": "a", "operator": "Near"},
            [f'{T}.operator: Unsupported value: "Near": supported values: "Equal", "Exists"'],
            id="an unknown operator",
        ),
        pytest.param(
            {"key": "a", "operator": "Gt", "value": "x"},
            [f'{T}.operator: Unsupported value: "Gt": supported values: "Equal", "Exists", "Lt", "Gt"'],
            id="a comparison without its gate, whatever it compares with",
        ),
        pytest.param(
            {"key": "a", "effect": "x"},
            [f'{T}.effect: Unsupported value: "x": supported values: "NoSchedule", "PreferNoSchedule", "NoExecute"'],
            id="an unknown effect",
        ),
    ],
)
def test_tolerations(errors_of, toleration, expected):
    assert errors_of({"spec": {"tolerations": [toleration]}}) == expected


CANONICAL = "must be a valid decimal integer in canonical form"


@pytest.mark.parametrize("operator", ["Lt", "Gt"])
@pytest.mark.parametrize(
    ("value", "expected"),
    [
        pytest.param("-950", [], id="a number"),
        pytest.param("0", [], id="zero"),
        pytest.param(
            "", ["must be non-empty", 'strconv.ParseInt: parsing "": invalid syntax'], id="nothing to compare with"
        ),
        pytest.param("x", [CANONICAL, 'strconv.ParseInt: parsing "x": invalid syntax'], id="no number"),
        pytest.param("+5", [CANONICAL], id="a plus sign"),
        pytest.param("-0", [CANONICAL], id="a negative zero"),
        pytest.param(
            "9223372036854775808",
            ['strconv.ParseInt: parsing "9223372036854775808": value out of range'],
            id="more than 64 bits",
        ),
    ],
)
def test_tolerations_that_compare(errors_of, operator, value, expected):
    toleration = {"key": "a", "operator": operator, "value": value}
    found = errors_of({"spec": {"tolerations": [toleration]}}, taint_comparisons=True)
    assert found == [f'{T}.value: Invalid value: "{value}": {message}' for message in expected]


S = "spec.topologySpreadConstraints[0]"
SPREAD = {"maxSkew": 1, "topologyKey": "k", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}


@pytest.mark.parametrize(
    ("constraint", "expected"),
    [
        pytest.param({"minDomains": 1, "nodeTaintsPolicy": "Honor"}, [], id="good"),
        pytest.param(
            {"maxSkew": 0, "topologyKey": "", "whenUnsatisfiable": "x"},
            [
                f"{S}.maxSkew: Invalid value: 0: must be greater than zero",
                f"{S}.topologyKey: Required value: can not be empty",
                f'{S}.whenUnsatisfiable: Unsupported value: "x": supported values: "DoNotSchedule", "ScheduleAnyway"',
            ],
            id="what every constraint needs",
        ),
        pytest.param(
            {"minDomains": 0, "whenUnsatisfiable": "ScheduleAnyway"},
            [
                f"{S}.minDomains: Invalid value: 0: must be greater than zero",
                (
                    f"{S}.minDomains: Invalid value: 0: can only use minDomains if "
                    "whenUnsatisfiable=DoNotSchedule, not "
                    "ScheduleAnyway"
                ),
            ],
            id="domains",
        ),
        pytest.param(
            {"nodeAffinityPolicy": "x", "nodeTaintsPolicy": "y"},
            [
                f'{S}.nodeAffinityPolicy: Unsupported value: "x": supported values: "Honor", "Ignore"',
                f'{S}.nodeTaintsPolicy: Unsupported value: "y": supported values: "Honor", "Ignore"',
            ],
            id="policies",
        ),
        pytest.param(
            {"matchLabelKeys": ["a"], "labelSelector": None},
            [f"{S}.matchLabelKeys: Forbidden: must not be specified when labelSelector is not set"],
            id="label keys without a selector",
        ),
        pytest.param(
            {"matchLabelKeys": ["-a", "a"], "labelSelector": {"matchLabels": {"a": "a b"}}},
            [
                f'{S}.matchLabelKeys[0]: Invalid value: "-a": {NAME_PART}',
                f'{S}.matchLabelKeys[1]: Invalid value: "a": exists in both matchLabelKeys and labelSelector',
                f'{S}.labelSelector.matchLabels: Invalid value: "a b": {VALUE}',
            ],
            id="label keys that are there already",
        ),
    ],
)
def test_topology_spread(errors_of, constraint, expected):
    assert errors_of({"spec": {"topologySpreadConstraints": [SPREAD | constraint]}}) == expected


def test_a_topology_is_spread_once_an_action(errors_of):
    assert errors_of({"spec": {"topologySpreadConstraints": [SPREAD, SPREAD]}}) == [
        f'{S}.{{topologyKey, whenUnsatisfiable}}: Duplicate value: "{{k, DoNotSchedule}}"'
    ]


def test_readiness_gates_are_qualified_names(errors_of):
    assert errors_of({"spec": {"readinessGates": [{"conditionType": "-a"}]}}) == [
        f'spec.readinessGates[0].conditionType: Invalid value: "-a": {NAME_PART}'
    ]


def test_scheduling_gates_are_unique_qualified_names(errors_of):
    assert errors_of({"spec": {"schedulingGates": [{"name": "-a"}, {"name": "-a"}]}}) == [
        f'spec.schedulingGates[0]: Invalid value: "-a": {NAME_PART}',
        f'spec.schedulingGates[1]: Invalid value: "-a": {NAME_PART}',
        'spec.schedulingGates[1]: Duplicate value: "-a"',
    ]
