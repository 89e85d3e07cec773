import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from klet.certs.board import CertificateBoard
from klet.certs.messages import CertificateFacts, KeyAlgorithm, Purpose
from klet.certs.metrics import CertificateLives, register_certificate, register_lives
from klet.certs.pairs import CertificatePair
from klet.certs.rotation_plan import HeldCertificate
from klet.metrics import MetricRegistry
from klet.testing.clock import ManualClock

HOUR = timedelta(hours=1)
PAIR = CertificatePair(certificate_file=Path("c"), key_file=Path("k"), certificate="")


def held(begin, hours):
    end = begin + hours * HOUR
    facts = CertificateFacts(not_before=begin, not_after=end, chain_not_after=end, key_algorithm=KeyAlgorithm.ECDSA)
    return HeldCertificate(facts=facts, deadline=end)


@pytest.mark.parametrize(
    ("purpose", "failures"),
    [
        pytest.param(Purpose.CLIENT, "kubelet_certificate_manager_client_expiration_renew_errors", id="of the client"),
        pytest.param(Purpose.SERVER, "kubelet_server_expiration_renew_errors", id="of the server"),
    ],
)
def test_how_long_a_certificate_is_valid_and_how_its_renewal_goes(purpose, failures):
    registry, clock, board = MetricRegistry(), ManualClock(), CertificateBoard()
    register_certificate(registry, purpose, board, clock)
    left = f"kubelet_certificate_manager_{purpose}_ttl_seconds"
    assert {f"{left} +Inf", f"{failures} 0"} <= set(registry.write().decode().splitlines())
    board.put(PAIR, held(clock.now(), 2))
    board.renewal_failures += 1
    clock.advance(HOUR / 2)
    assert {f"{left} 5400", f"{failures} 1"} <= set(registry.write().decode().splitlines())
    clock.advance(2 * HOUR)
    assert f"{left} -1800" in registry.write().decode().splitlines()


async def test_how_long_a_certificate_has_lived_is_known_when_the_next_one_comes():
    registry, clock, board = MetricRegistry(), ManualClock(), CertificateBoard()
    lives = CertificateLives(board=board, lives=register_lives(registry), clock=clock)
    name = "kubelet_certificate_manager_server_rotation_seconds"
    async with asyncio.TaskGroup() as group:
        task = group.create_task(lives.run())
        await clock.run(timedelta())
        board.put(PAIR, held(clock.now(), 2))
        await clock.run(HOUR)
        assert f"{name}_count 0" in registry.write().decode().splitlines()
        board.put(PAIR, held(clock.now(), 2))
        await clock.run(timedelta())
        task.cancel()
    assert {f"{name}_count 1", f"{name}_sum 3600"} <= set(registry.write().decode().splitlines())
