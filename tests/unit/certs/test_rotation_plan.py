from datetime import UTC, datetime, timedelta
from itertools import islice

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from klet.certs.messages import CertificateFacts, KeyAlgorithm, Template
from klet.certs.rotation_plan import (
    BeginEmpty,
    CheckAgain,
    HeldCertificate,
    KeepStored,
    Rotate,
    TakeInline,
    decide_beginning,
    decide_rotation,
    find_shortfall,
    hold,
    is_expired,
    is_interrupted,
    retry_delays,
)

START = datetime(2030, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)
YEAR = timedelta(days=365)
END = START + YEAR
DEADLINE = START + timedelta(days=300)

FACTS = CertificateFacts(
    common_name="system:node:edge-1",
    organizations=("system:nodes",),
    not_before=START,
    not_after=END,
    chain_not_after=END,
    dns_names=("edge-1",),
    ips=("10.0.0.2",),
    key_algorithm=KeyAlgorithm.ECDSA,
)
HELD = HeldCertificate(facts=FACTS, deadline=DEADLINE)
TEMPLATE = Template(
    common_name="system:node:edge-1", organizations=("system:nodes",), dns_names=("edge-1",), ips=("10.0.0.2",)
)


def template(**changes):
    return msgspec.structs.replace(TEMPLATE, **changes)


@pytest.mark.parametrize(
    ("fraction", "share"),
    [
        pytest.param(0.0, 0.7, id="not before 70 percent"),
        pytest.param(0.5, 0.8, id="80 percent in the middle"),
        pytest.param(1.0, 0.9, id="not after 90 percent"),
    ],
)
def test_the_deadline_lies_between_70_and_90_percent(fraction, share):
    assert abs(hold(FACTS, fraction=fraction).deadline - (START + YEAR * share)) < SECOND


@given(
    age=st.timedeltas(timedelta(days=-36500), timedelta(days=36500)),
    life=st.timedeltas(timedelta(minutes=10), timedelta(days=36500)),
    fraction=st.floats(0, 1),
)
def test_every_deadline_lies_within_the_certificates_life(age, life, fraction):
    begin = START - age
    facts = msgspec.structs.replace(FACTS, not_before=begin, not_after=begin + life)
    deadline = hold(facts, fraction=fraction).deadline
    assert begin + life * 0.7 - SECOND <= deadline <= begin + life * 0.9 + SECOND


@pytest.mark.parametrize(
    ("facts", "wanted", "expected"),
    [
        pytest.param(FACTS, TEMPLATE, "", id="the certificate of the template fits"),
        pytest.param(None, TEMPLATE, "there is no certificate", id="none does not fit"),
        pytest.param(None, None, "there is no certificate", id="none does not fit even without a template"),
        pytest.param(FACTS, None, "", id="without a template any fits"),
        pytest.param(
            FACTS,
            template(common_name="system:node:b"),
            "its name is 'system:node:edge-1', not 'system:node:b'",
            id="another name",
        ),
        pytest.param(FACTS, template(dns_names=("edge-1", "b", "a")), "it lacks the DNS name a, b", id="new DNS names"),
        pytest.param(FACTS, template(dns_names=()), "", id="a DNS name too many is fine"),
        pytest.param(FACTS, template(ips=("10.0.0.3",)), "it lacks the IP address 10.0.0.3", id="a new address"),
        pytest.param(FACTS, template(ips=()), "", id="an address too many is fine"),
        pytest.param(FACTS, template(ips=("::ffff:10.0.0.2",)), "", id="the same address written differently"),
        pytest.param(
            FACTS, template(organizations=("system:nodes", "x")), "it lacks the organization x", id="an organization"
        ),
        pytest.param(FACTS, template(organizations=()), "", id="an organization too many is fine"),
    ],
)
def test_what_a_certificate_lacks(facts, wanted, expected):
    assert find_shortfall(facts, wanted) == expected


NO_ADDRESS = CheckAgain(until=START + SECOND, reason="the node has no address for a certificate yet")


@pytest.mark.parametrize(
    ("held", "wanted", "now", "is_provisional", "expected"),
    [
        pytest.param(None, TEMPLATE, START, False, Rotate("there is no certificate"), id="none: at once"),
        pytest.param(None, None, START, False, NO_ADDRESS, id="none, and nothing to ask for: look again in a second"),
        pytest.param(
            HELD,
            TEMPLATE,
            START,
            False,
            CheckAgain(DEADLINE, "the certificate is good"),
            id="a good one: at its deadline",
        ),
        pytest.param(
            HELD,
            None,
            START,
            False,
            CheckAgain(DEADLINE, "the certificate is good"),
            id="a good one without a template",
        ),
        pytest.param(
            HELD,
            TEMPLATE,
            DEADLINE,
            False,
            Rotate("the certificate ends at 2031-01-01T00:00:00Z"),
            id="the deadline has come",
        ),
        pytest.param(
            HELD,
            None,
            DEADLINE,
            False,
            CheckAgain(DEADLINE + SECOND, "the node has no address for a certificate yet"),
            id="the deadline has come but there is nothing to ask for",
        ),
        pytest.param(
            HELD,
            TEMPLATE,
            END + YEAR,
            False,
            Rotate("the certificate ends at 2031-01-01T00:00:00Z"),
            id="an expired one: at once",
        ),
        pytest.param(
            HELD,
            template(ips=("10.0.0.3",)),
            START,
            False,
            Rotate("the certificate does not fit: it lacks the IP address 10.0.0.3"),
            id="one that does not fit: at once",
        ),
        pytest.param(
            HELD, TEMPLATE, START, True, Rotate("the certificate came with the kubeconfig"), id="inline: at once"
        ),
    ],
)
def test_decide_rotation(held, wanted, now, is_provisional, expected):
    assert decide_rotation(held, wanted, now=now, is_provisional=is_provisional) == expected


OTHER = template(ips=("10.0.0.3",))


@pytest.mark.parametrize(
    ("held", "requested", "wanted", "expected"),
    [
        pytest.param(HELD, None, TEMPLATE, False, id="a fitting certificate waits undisturbed"),
        pytest.param(HELD, None, OTHER, True, id="a new address, nothing requested for it"),
        pytest.param(HELD, OTHER, OTHER, False, id="a new address that is requested already"),
        pytest.param(None, TEMPLATE, OTHER, True, id="the pending request is for an older template"),
        pytest.param(None, TEMPLATE, TEMPLATE, False, id="the pending request is the right one"),
        pytest.param(None, None, None, False, id="nothing to ask for"),
    ],
)
def test_a_changed_template_interrupts(held, requested, wanted, expected):
    assert is_interrupted(held, requested, wanted) is expected


@pytest.mark.parametrize(
    ("stored", "inline", "now", "expected"),
    [
        pytest.param(FACTS, FACTS, START, KeepStored(), id="the store wins"),
        pytest.param(FACTS, None, END - SECOND, KeepStored(), id="it wins until its last second"),
        pytest.param(FACTS, FACTS, END, TakeInline(), id="an expired one gives way to the inline one"),
        pytest.param(
            FACTS,
            FACTS,
            START - timedelta(days=365),
            KeepStored(),
            id="one that is not valid yet: the node's time is behind",
        ),
        pytest.param(None, FACTS, START, TakeInline(), id="an inline one is better than none"),
        pytest.param(FACTS, None, END, BeginEmpty(), id="an expired one counts as none"),
        pytest.param(None, None, START, BeginEmpty(), id="nothing at all"),
    ],
)
def test_decide_beginning(stored, inline, now, expected):
    assert decide_beginning(stored, inline, now=now) == expected


@pytest.mark.parametrize(
    ("now", "expected"), [(END - SECOND, False), (END, False), (END + SECOND, True)], ids=["before", "at", "after"]
)
def test_is_expired(now, expected):
    assert is_expired(FACTS, now=now) is expected


@pytest.mark.parametrize(
    ("fraction", "expected"),
    [
        pytest.param(0.0, [2, 4, 8, 16, 32, 32, 32], id="without jitter"),
        pytest.param(1.0, [2.2, 4.4, 8.8, 17.6, 32, 32, 32], id="a tenth more, except for the endless ones"),
    ],
)
def test_waits_between_attempts(fraction, expected):
    assert [each.total_seconds() for each in islice(retry_delays(lambda: fraction), 7)] == pytest.approx(expected)
