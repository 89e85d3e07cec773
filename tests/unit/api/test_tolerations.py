import pytest

from klet.api.placement import Taint, Toleration
from klet.api.tolerations import find_untolerated, tolerates

TAINT = Taint(key="k", value="5", effect="NoExecute")


@pytest.mark.parametrize(
    ("toleration", "expected"),
    [
        pytest.param(Toleration(key="k", value="5", effect="NoExecute"), True, id="no operator means equal"),
        pytest.param(Toleration(key="k", operator="Equal", value="5"), True, id="no effect covers every effect"),
        pytest.param(Toleration(key="k", operator="Equal", value="6"), False, id="another value"),
        pytest.param(Toleration(key="x", operator="Exists"), False, id="another key"),
        pytest.param(Toleration(key="k", operator="Exists", effect="NoSchedule"), False, id="another effect"),
        pytest.param(Toleration(operator="Exists"), True, id="no key and exists covers all"),
        pytest.param(Toleration(key="k", operator="Gt", value="4"), True, id="the taint is greater"),
        pytest.param(Toleration(key="k", operator="Gt", value="5"), False, id="the taint is not greater"),
        pytest.param(Toleration(key="k", operator="Lt", value="6"), True, id="the taint is less"),
        pytest.param(Toleration(key="k", operator="Lt", value="x"), False, id="not a number"),
        pytest.param(Toleration(key="k", operator="Gt", value="+4"), False, id="a number that is not canonical"),
        pytest.param(Toleration(key="k", operator="Gt", value="04"), False, id="nor with a zero before it"),
        pytest.param(Toleration(key="k", operator="Gt", value="-4"), True, id="a negative one"),
        pytest.param(Toleration(key="k", operator="Lt", value="9223372036854775807"), True, id="the largest number"),
        pytest.param(
            Toleration(key="k", operator="Lt", value="9223372036854775808"), False, id="one that is too large"
        ),
        pytest.param(Toleration(key="k", operator="Near"), False, id="an unknown operator"),
    ],
)
def test_tolerates(toleration, expected):
    assert tolerates(toleration, TAINT, comparisons=True) is expected


def test_comparisons_need_their_gate():
    assert not tolerates(Toleration(key="k", operator="Gt", value="4"), TAINT)


def test_find_untolerated_looks_only_at_the_effects_asked_for():
    taints = (Taint(key="a", effect="NoSchedule"), Taint(key="b", effect="NoExecute"), TAINT)
    only_b = (Toleration(key="b", operator="Exists"),)
    assert find_untolerated(taints, only_b, effects=("NoExecute",)) == TAINT
    assert find_untolerated(taints, (*only_b, Toleration(key="k", operator="Exists")), effects=("NoExecute",)) is None


def test_a_taint_that_is_no_number_is_compared_with_nothing():
    taint = Taint(key="k", value="05", effect="NoExecute")
    assert not tolerates(Toleration(key="k", operator="Gt", value="4"), taint, comparisons=True)
