"""What is shown to the API server; token files and plugins are shown by tests/component/kube."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from klet.kube.access import KeyPair, Login, PemSource
from klet.kube.credentials import PAIR_PATIENCE, Credentials, CredentialSet
from klet.kube.errors import CredentialError
from klet.testing.loop import LoopClock, run_virtual

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def file(tmp_path):
    return tmp_path / "kubelet-client-current.pem"


def of_file(file) -> Login:
    return Login(pair=KeyPair(PemSource(path=file), PemSource(path=file)))


async def ask(login: Login) -> tuple[CredentialSet | str, timedelta]:
    """What is shown, or why nothing is, and how long that took."""
    clock = LoopClock(epoch=EPOCH)
    try:
        answer: CredentialSet | str = await Credentials(login=login, clock=clock).current()
    except CredentialError as error:
        answer = str(error)
    return answer, clock.now() - EPOCH


def test_a_certificate_that_is_to_come_is_waited_for(file):
    async def come() -> None:
        await LoopClock(epoch=EPOCH).sleep(timedelta(seconds=3))
        file.write_bytes(b"pair")

    async def story() -> tuple[CredentialSet | str, timedelta]:
        async with asyncio.TaskGroup() as group:
            group.create_task(come())
            return await ask(of_file(file))

    answer, took = run_virtual(story())
    assert answer == CredentialSet(certificate=b"pair", key=b"pair")
    assert timedelta(seconds=3) <= took < timedelta(seconds=3.2)


def test_but_not_for_ever(file):
    answer, took = run_virtual(ask(of_file(file)))
    assert answer == f"client certificate not read: [Errno 2] No such file or directory: '{file}'"
    assert PAIR_PATIENCE <= took < PAIR_PATIENCE + timedelta(seconds=0.2)


def test_a_file_that_cannot_be_read_is_reported_at_once(tmp_path):
    answer, took = run_virtual(ask(of_file(tmp_path)))
    assert answer.startswith("client certificate not read")
    assert took == timedelta()
