import asyncio
import os
import select
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from klet.certs.errors import CertificateRefused, MakerFailed
from klet.certs.maker import CHILD_COMMAND, AuthorityFiles, CertificateMaker
from klet.certs.messages import ANSWER_LIMIT, KeyAlgorithm, Purpose, RefusalReason, Template
from klet.certs.templates import build_client_template
from klet.testing.clock import START, ManualClock

DAY = timedelta(days=1)
LONG = timedelta(seconds=60)
SHORT = timedelta(milliseconds=200)


@pytest.fixture
def maker():
    return CertificateMaker(clock=ManualClock())


def shell(script, *, deadline=LONG):
    """A maker whose child is a shell script."""
    return CertificateMaker(clock=ManualClock(), command=("sh", "-c", script), deadline=deadline)


def descriptors():
    return sorted(str(each.readlink()) for each in Path("/proc/self/fd").iterdir() if each.is_symlink())


def children():
    return Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()


async def test_a_self_signed_pair_for_a_name(maker):
    pair = await maker.self_signed("edge-1", dns_names=("b",), ips=("10.0.0.2",))
    facts = await maker.describe(pair.certificate, key=pair.key)
    assert facts.common_name == f"edge-1@{int(START.timestamp())}"
    assert (facts.dns_names, facts.ips) == (("edge-1", "b"), ("10.0.0.2",))
    assert (facts.key_algorithm, facts.key_matches) == (KeyAlgorithm.RSA, True)
    assert (facts.not_before, facts.not_after) == (START - timedelta(hours=1), START - timedelta(hours=1) + 365 * DAY)


async def test_a_self_signed_pair_for_an_address(maker):
    facts = await maker.describe((await maker.self_signed("2001:DB8::1")).certificate)
    assert (facts.dns_names, facts.ips) == ((), ("2001:db8::1",))


async def test_an_authority_signs_for_server_and_client(maker, tmp_path):
    authority = await maker.authority("klet-ca", lifetime=3650 * DAY)
    files = AuthorityFiles(certificate_file=tmp_path / "ca.crt", key_file=tmp_path / "ca.key")
    files.certificate_file.write_text(authority.certificate)
    files.key_file.write_text(authority.key)
    for purpose in Purpose:
        template = Template(common_name="c", organizations=("system:masters",), ips=("127.0.0.1",))
        pair = await maker.leaf(template, authority=files, purpose=purpose, lifetime=DAY)
        facts = await maker.describe(pair.certificate, key=pair.key)
        assert (facts.common_name, facts.organizations, facts.issuer) == ("c", ("system:masters",), "klet-ca")
        assert facts.key_matches


async def test_a_signing_request_uses_the_key_it_is_given(maker):
    template = build_client_template("edge-1")
    first = await maker.signing_request(template)
    second = await maker.signing_request(template, key=first.key)
    assert first.request.startswith("-----BEGIN CERTIFICATE REQUEST-----\n")
    assert (second.key, second.public_key) == (first.key, first.public_key)


async def test_a_refusal_names_the_rule(maker, tmp_path):
    files = AuthorityFiles(certificate_file=tmp_path / "ca.crt", key_file=tmp_path / "ca.key")
    with pytest.raises(CertificateRefused, match=f"cannot read {tmp_path}/ca.crt: No such file") as caught:
        await maker.leaf(Template(common_name="c"), authority=files, purpose=Purpose.SERVER, lifetime=DAY)
    assert caught.value.reason is RefusalReason.UNREADABLE_FILE


async def test_the_agent_stays_without_cryptography(tmp_path):
    """Asked in a process of its own: this one has loaded it for other tests."""
    program = """
import asyncio, sys
from klet.aio.clock import SystemClock
from klet.certs.maker import CertificateMaker
from klet.certs.templates import build_client_template
asyncio.run(CertificateMaker(clock=SystemClock()).signing_request(build_client_template("n")))
print("cryptography" in sys.modules)
"""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-P", "-c", program, stdout=asyncio.subprocess.PIPE, cwd=tmp_path
    )
    assert await process.communicate() == (b"False\n", None)


async def test_secrets_are_on_the_pipe_only(maker, tmp_path):
    key = (await maker.signing_request(build_client_template("n"))).key
    seen = tmp_path / "seen"
    script = f'tr "\\0" "\\n" < /proc/$$/cmdline > {seen}; env >> {seen}; exec "$@"'
    spy = CertificateMaker(clock=ManualClock(), command=("sh", "-c", script, "sh", *CHILD_COMMAND))
    assert (await spy.signing_request(build_client_template("n"), key=key)).key == key
    text = seen.read_text()
    assert "klet.certs.child" in text
    assert not [line for line in key.splitlines() if line in text]


@pytest.mark.parametrize(
    ("script", "message"),
    [
        pytest.param("exit 0", "ended with code 0 and no answer: nothing on standard error", id="no answer"),
        pytest.param(
            "echo; echo first >&2; echo last >&2; exit 3", "ended with code 3 and no answer: last", id="an error"
        ),
        pytest.param("kill -9 $$", "ended with code -9 and no answer", id="a killed child"),
        pytest.param("echo '{}'", "ended with code 0 and no answer", id="another document"),
        pytest.param(
            """echo '{"kind":"pair","certificate":"c","key":"SECRET"}'""",
            "ended with code 0 and answered Pair, not CertificateFacts",
            id="the answer to another question",
        ),
        pytest.param(
            f"head -c {2 * ANSWER_LIMIT} /dev/zero", f"said more than {ANSWER_LIMIT} bytes", id="endless talk"
        ),
    ],
)
async def test_a_child_that_misbehaves(script, message):
    with pytest.raises(MakerFailed, match=message) as caught:
        await shell(script).describe("c")
    assert "SECRET" not in str(caught.value)


async def test_a_crash_of_the_child_is_reported_in_one_line():
    maker = CertificateMaker(clock=ManualClock(), command=(sys.executable, "-c", "raise ValueError('oh no')"))
    with pytest.raises(MakerFailed, match="ended with code 1 and no answer: ValueError: oh no"):
        await maker.describe("c")


async def test_a_child_that_cannot_start():
    maker = CertificateMaker(clock=ManualClock(), command=("/no/such/python",))
    with pytest.raises(MakerFailed, match="cannot start /no/such/python: No such file"):
        await maker.describe("c")


async def test_a_child_that_hangs_is_killed():
    with pytest.raises(MakerFailed, match="did not end within"):
        await shell("exec sleep 600", deadline=SHORT).describe("c")
    assert children() == []


async def test_a_cancelled_caller_leaves_no_child(tmp_path):
    fifo = tmp_path / "pid"
    os.mkfifo(fifo)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(shell(f"echo $$ > {fifo}; exec sleep 600").describe("c"))
        pid = int(await asyncio.to_thread(fifo.read_text))
        watch = os.pidfd_open(pid)
        task.cancel()
    try:
        assert task.cancelled()
        assert select.select([watch], [], [], 10)[0]
        assert children() == []
    finally:
        os.close(watch)


async def test_no_descriptor_is_left_open(tmp_path):
    async def trouble():
        with pytest.raises(MakerFailed):
            await shell("exec sleep 600", deadline=SHORT).describe("c")
        with pytest.raises(MakerFailed):
            await shell("exit 1").describe("c")
        async with asyncio.TaskGroup() as group:
            task = group.create_task(shell("exec sleep 600").describe("c"))
            await asyncio.to_thread(lambda: None)
            task.cancel()

    await trouble()  # what a first child opens for good is open now
    before = descriptors()
    for _ in range(3):
        await trouble()
    assert descriptors() == before
    assert children() == []
