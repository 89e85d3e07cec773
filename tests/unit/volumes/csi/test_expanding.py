"""What a failure of NodeExpandVolume means."""

import pytest

from klet.csi.errors import CsiCallFailed, CsiRequestInvalid
from klet.volumes.csi.expanding import judge_expansion
from klet.volumes.plugins.base import ExpansionOutcome
from klet.wire.codes import Code


@pytest.mark.parametrize("code", [code for code in Code if code is not Code.OK])
def test_every_code_has_its_outcome(code):
    expected = {
        Code.FAILED_PRECONDITION: ExpansionOutcome.IN_USE,
        Code.INVALID_ARGUMENT: ExpansionOutcome.INFEASIBLE,
        Code.OUT_OF_RANGE: ExpansionOutcome.INFEASIBLE,
        Code.NOT_FOUND: ExpansionOutcome.INFEASIBLE,
    }.get(code, ExpansionOutcome.FAILED)
    found = judge_expansion(CsiCallFailed(code, "no"))
    colon = "" if expected is ExpansionOutcome.INFEASIBLE else ": "
    assert (found.outcome, found.error) == (
        expected,
        f"Expander.NodeExpand failed to expand the volume {colon}rpc error: code = {code} desc = no",
    )


def test_an_error_without_a_code_is_final():
    assert judge_expansion(CsiRequestInvalid("missing volume path")).outcome is ExpansionOutcome.FAILED
