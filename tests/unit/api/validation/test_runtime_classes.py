"""The rules for runtime classes."""

import pytest

from klet.api.codec import convert
from klet.api.node import RuntimeClass
from klet.api.validation.runtime_classes import validate_runtime_class


def problems(**fields):
    given = {"metadata": {"name": "crun"}, "handler": "crun"} | fields
    return [str(error) for error in validate_runtime_class(convert(RuntimeClass, given))]


LABEL = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end "
    "with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        pytest.param({}, [], id="a class"),
        pytest.param(
            {
                "overhead": {"podFixed": {"cpu": "10m", "memory": "4Mi"}},
                "scheduling": {"nodeSelector": {"a": "b"}, "tolerations": [{"key": "k", "operator": "Exists"}]},
            },
            [],
            id="a class with everything",
        ),
        pytest.param(
            {"metadata": {}}, ["metadata.name: Required value: name or generateName is required"], id="no name"
        ),
        pytest.param(
            {"metadata": {"name": "crun", "namespace": "default"}},
            ["metadata.namespace: Forbidden: not allowed on this type"],
            id="classes are of no namespace",
        ),
        pytest.param({"handler": ""}, [f'handler: Invalid value: "": {LABEL}'], id="no handler"),
        pytest.param({"handler": "a.b"}, ['handler: Invalid value: "a.b": must not contain dots'], id="a bad handler"),
        pytest.param(
            {"overhead": {"podFixed": {"cpu": "-1"}}},
            ['overhead.podFixed.limits[cpu]: Invalid value: "-1": must be greater than or equal to 0'],
            id="an overhead below nothing",
        ),
        pytest.param(
            {"scheduling": {"tolerations": [{"operator": "Equal"}]}},
            [
                (
                    'scheduling.tolerations[0].operator: Invalid value: "Equal": '
                    'operator must be Exists when `key` is empty, which means "match all values and all keys"'
                )
            ],
            id="a toleration of nothing",
        ),
    ],
)
def test_validate_runtime_class(fields, expected):
    assert problems(**fields) == expected
