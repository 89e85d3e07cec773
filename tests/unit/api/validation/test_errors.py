from datetime import UTC, datetime

import pytest

from klet.api.container import ContainerPort
from klet.api.meta import LabelSelector
from klet.api.pod import PodIP, PodResourceClaim
from klet.api.quantity import Quantity
from klet.api.security import Capabilities, SecurityContext
from klet.api.validation import errors
from klet.api.validation.errors import ErrorKind, FieldError, aggregate
from klet.api.validation.fieldpath import ROOT, SPEC, FieldPath
from klet.api.validation.rendering import go_quote, render_go_struct, render_value

PATH = FieldPath("spec.x")


@pytest.mark.parametrize(
    ("path", "text"),
    [
        pytest.param(SPEC.child("containers").at(0).child("name"), "spec.containers[0].name", id="lists by position"),
        pytest.param(
            FieldPath("metadata").child("annotations").key("a/b"), "metadata.annotations[a/b]", id="maps by key"
        ),
        pytest.param(SPEC.child("a", "b"), "spec.a.b", id="several steps at once"),
        pytest.param(ROOT.child("spec"), "spec", id="the root prints as nothing"),
    ],
)
def test_paths_print_as_the_api_server_prints_them(path, text):
    assert str(path) == text


@pytest.mark.parametrize(
    ("error", "reason", "text"),
    [
        pytest.param(errors.not_found(PATH, "v"), "FieldValueNotFound", 'spec.x: Not found: "v"', id="not found"),
        pytest.param(
            errors.not_found(PATH, "v", "d"), "FieldValueNotFound", 'spec.x: Not found: "v": d', id="not found, why"
        ),
        pytest.param(errors.required(PATH), "FieldValueRequired", "spec.x: Required value", id="required"),
        pytest.param(errors.required(PATH, "d"), "FieldValueRequired", "spec.x: Required value: d", id="required, why"),
        pytest.param(errors.duplicate(PATH, 3), "FieldValueDuplicate", "spec.x: Duplicate value: 3", id="duplicate"),
        pytest.param(
            errors.invalid(PATH, "v", "d"), "FieldValueInvalid", 'spec.x: Invalid value: "v": d', id="invalid"
        ),
        pytest.param(
            FieldError(ErrorKind.TYPE_INVALID, PATH, "v", "d"),
            "FieldValueTypeInvalid",
            'spec.x: Invalid value: "v": d',
            id="wrong type",
        ),
        pytest.param(
            errors.not_supported(PATH, "v", ("a", "b")),
            "FieldValueNotSupported",
            'spec.x: Unsupported value: "v": supported values: "a", "b"',
            id="not supported",
        ),
        pytest.param(errors.forbidden(PATH, "d"), "FieldValueForbidden", "spec.x: Forbidden: d", id="forbidden"),
        pytest.param(
            errors.too_long(PATH, 9),
            "FieldValueTooLong",
            "spec.x: Too long: may not be more than 9 bytes",
            id="too long",
        ),
        pytest.param(
            errors.too_long(PATH, 1),
            "FieldValueTooLong",
            "spec.x: Too long: may not be more than 1 byte",
            id="one byte is singular",
        ),
        pytest.param(
            errors.too_many(PATH, 9, 2),
            "FieldValueTooMany",
            "spec.x: Too many: 9: must have at most 2 items",
            id="too many",
        ),
        pytest.param(
            errors.too_many(PATH, 9, 1),
            "FieldValueTooMany",
            "spec.x: Too many: 9: must have at most 1 item",
            id="one item is singular",
        ),
        pytest.param(
            FieldError(ErrorKind.INTERNAL, PATH, "v", "d"), "InternalError", "spec.x: Internal error: d", id="internal"
        ),
        pytest.param(errors.forbidden(ROOT, "d"), "FieldValueForbidden", ": Forbidden: d", id="the whole object"),
    ],
)
def test_errors_print_as_the_api_server_prints_them(error, reason, text):
    assert (error.kind.value, str(error)) == (reason, text)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        pytest.param("x", '"x"', id="strings are quoted"),
        pytest.param('a"b\\c', r'"a\"b\\c"', id="quotes and backslashes are escaped"),
        pytest.param("a\n\t\x00\x7f", r'"a\n\t\x00\x7f"', id="control characters are escaped"),
        pytest.param("äλ", '"äλ"', id="letters of any script stay"),
        pytest.param("\u200b\U000e0001", r'"\u200b\U000e0001"', id="invisible characters are escaped"),
        pytest.param(5, "5", id="numbers are plain"),
        pytest.param(True, "true", id="booleans are plain"),
        pytest.param(None, "null", id="nothing is null"),
        pytest.param(("a", "b"), '["a","b"]', id="lists are compact"),
        pytest.param((), "null", id="an empty list is a nil one"),
        pytest.param({"b": "2", "a": "1"}, '{"a":"1","b":"2"}', id="maps are sorted"),
        pytest.param({}, "null", id="an empty map is a nil one"),
        pytest.param(Quantity.parse("1500m"), '"1500m"', id="quantities are their text"),
        pytest.param(datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC), '"2024-01-02T03:04:05Z"', id="times are their text"),
        pytest.param((PodIP(ip="::1"),), '[{"IP":"::1"}]', id="structs have Go field names"),
        pytest.param(
            PodResourceClaim(name="c"),
            '{"Name":"c","ResourceClaimName":null,"ResourceClaimTemplateName":null}',
            id="unset fields are null",
        ),
        pytest.param(
            LabelSelector(match_labels={"a": "b"}), '{"matchLabels":{"a":"b"}}', id="meta types as on the wire"
        ),
        pytest.param(
            SecurityContext(privileged=True, capabilities=Capabilities(add=("X",))),
            '{"Capabilities":{"Add":["X"],"Drop":null},"Privileged":true,"SELinuxOptions":null,"WindowsOptions":null,'
            '"RunAsUser":null,"RunAsGroup":null,"RunAsNonRoot":null,"ReadOnlyRootFilesystem":null,'
            '"AllowPrivilegeEscalation":null,"ProcMount":null,"SeccompProfile":null,"AppArmorProfile":null}',
            id="fields in the order of their declaration",
        ),
    ],
)
def test_values_are_rendered(value, text):
    assert render_value(value) == text


def test_a_struct_is_printed_as_go_prints_structs():
    port = ContainerPort(container_port=80, protocol="TCP", host_ip="1.2.3.4")
    assert render_go_struct(port) == "{Name: HostPort:0 ContainerPort:80 Protocol:TCP HostIP:1.2.3.4}"


def test_quoting_keeps_plain_text():
    assert go_quote("plain text") == '"plain text"'


@pytest.mark.parametrize(
    ("found", "text"),
    [
        pytest.param((), "", id="none"),
        pytest.param((errors.required(PATH),), "spec.x: Required value", id="one has no brackets"),
        pytest.param((errors.required(PATH),) * 2, "spec.x: Required value", id="equal texts count once"),
        pytest.param(
            (errors.required(PATH), errors.forbidden(PATH, "d")),
            "[spec.x: Required value, spec.x: Forbidden: d]",
            id="several are bracketed",
        ),
    ],
)
def test_aggregate(found, text):
    assert aggregate(found) == text
