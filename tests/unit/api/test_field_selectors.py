import pytest

from klet.api.config import ConfigMap, Secret
from klet.api.event import Event
from klet.api.field_selectors import FieldTerm, check_fields, parse_field_selector, selectable_fields
from klet.api.kinds import kind_of
from klet.api.node import Node
from klet.api.pod import Pod
from klet.api.selectors import SelectorError

POD = {
    "metadata": {"name": "p", "namespace": "ns"},
    "spec": {"nodeName": "n1", "hostNetwork": True},
    "status": {"phase": "Running", "podIPs": [{"ip": "10.0.0.1"}]},
}


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("", True),
        ("spec.nodeName=n1", True),
        ("spec.nodeName==n1,status.phase!=Failed", True),
        ("spec.nodeName=n1,status.phase=Failed", False),
        ("spec.host=n1", True),
        ("spec.hostNetwork=true", True),
        ("spec.schedulerName=", True),
        ("status.podIPs=10.0.0.1", False),
        ("status.podIPs=", True),
        ("metadata.namespace!=ns", False),
        (",metadata.name=p,", True),
    ],
)
def test_pods_are_selected_by_their_fields(text, matches):
    kind = kind_of(Pod)
    selector = check_fields(parse_field_selector(text), kind)
    assert selector.matches(selectable_fields(kind, POD)) is matches


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        (r"a=b\,c\=d\\e", (FieldTerm("a", r"b,c=d\e"),)),
        ("a!=b", (FieldTerm("a", "b", negated=True),)),
        ("a=", (FieldTerm("a", ""),)),
        (r"a=1\,2,b=3", (FieldTerm("a", "1,2"), FieldTerm("b", "3"))),
    ],
)
def test_parse_field_selector(text, terms):
    selector = parse_field_selector(text)
    assert selector.terms == terms
    assert parse_field_selector(str(selector)) == selector


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x", "invalid selector: 'x'; can't understand 'x'"),
        ("a=b,x", "invalid selector: 'a=b,x'; can't understand 'x'"),
        ("a=b=c", "invalid field selector: unescaped character in value: 61"),
        (r"a=\x", r"invalid field selector: invalid escape sequence: \x"),
        ("a=b\\", "invalid field selector: invalid escape sequence: \\"),
    ],
)
def test_a_malformed_selector_is_refused(text, message):
    with pytest.raises(SelectorError) as caught:
        parse_field_selector(text)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("struct", "text", "message"),
    [
        (Pod, "spec.x=1", "field label not supported: spec.x"),
        (Node, "metadata.namespace=x", "field label not supported: metadata.namespace"),
        (ConfigMap, "data=1", '"data" is not a known field selector: only "metadata.name", "metadata.namespace"'),
    ],
)
def test_fields_that_a_kind_does_not_offer_are_refused(struct, text, message):
    with pytest.raises(SelectorError) as caught:
        check_fields(parse_field_selector(text), kind_of(struct))
    assert str(caught.value) == message


def test_other_kinds_have_fields_of_their_own():
    assert selectable_fields(kind_of(Secret), {"type": "Opaque"})["type"] == "Opaque"
    assert selectable_fields(kind_of(Node), {"spec": {}})["spec.unschedulable"] == "false"
    event = {"involvedObject": {"uid": "u"}, "reportingComponent": "kubelet"}
    fields = selectable_fields(kind_of(Event), event)
    assert (fields["involvedObject.uid"], fields["source"], fields["involvedObject.namespace"]) == ("u", "kubelet", "")


def test_the_value_that_a_field_must_have_can_be_asked_for():
    selector = parse_field_selector("metadata.name=x,spec.nodeName!=y")
    assert (selector.exact("metadata.name"), selector.exact("spec.nodeName")) == ("x", None)
