"""Programs that print credentials (client-go's exec plugins), as real processes."""

import asyncio
import json
import os
import select
import sys
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest
import uvloop
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from klet.aio.clock import SystemClock
from klet.kube.access import ExecPlugin, Login
from klet.kube.credential_plugin import OUTPUT_LIMIT, run_plugin
from klet.kube.credentials import Credentials, CredentialSet
from klet.kube.errors import CredentialError
from klet.kube.metrics import CredentialPluginMetrics
from klet.metrics import MetricRegistry
from klet.testing.clock import ManualClock

LONG = timedelta(seconds=20)
VERSION = "client.authentication.k8s.io/v1"
HEAD = f'{{"apiVersion":"{VERSION}","kind":"ExecCredential",'


def plugin(script, *arguments, **options):
    return ExecPlugin(api_version=VERSION, command="sh", args=("-c", script, "sh", *arguments), **options)


def shown_by(script, *, clock=None, **options):
    return Credentials(login=Login(plugin=plugin(script, **options)), clock=clock or SystemClock()).current()


async def fails(script, *, timeout=LONG, **options):
    with pytest.raises(CredentialError) as caught:
        await run_plugin(plugin(script, **options), {}, timeout=timeout)
    return str(caught.value)


def ends(pid):
    """Whether a process ends, at the latest soon; we are not its parent and cannot wait for it."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([descriptor], [], [], 10)[0])
    finally:
        os.close(descriptor)


TWICE = """
import array, fcntl, sys, termios

unread = array.array("i", [1])
sys.stdout.write(sys.argv[1])
sys.stdout.flush()
while unread[0]:  # so that one read can never get both
    fcntl.ioctl(1, termios.FIONREAD, unread)
sys.stdout.write(sys.argv[2])
"""


async def test_an_answer_may_come_in_pieces():
    pieces = (HEAD, '"status":{"token":"a-token"}}')
    login = Login(plugin=ExecPlugin(api_version=VERSION, command=sys.executable, args=("-c", TWICE, *pieces)))
    assert await Credentials(login=login, clock=SystemClock()).current() == CredentialSet(token="a-token")


def test_so_it_is_on_the_loop_of_the_agent():
    uvloop.run(test_an_answer_may_come_in_pieces())


async def test_a_long_answer_is_read_to_its_end():
    token = "t" * 300_000
    script = f"""printf '%s' '{HEAD}"status":{{"token":"'; head -c 300000 /dev/zero | tr '\\0' t; printf '"}}}}'"""
    assert await shown_by(script) == CredentialSet(token=token)


async def test_an_answer_without_end_is_refused_and_its_program_ended(tmp_path):
    pid = tmp_path / "pid"
    message = await fails(f"echo $$ > {pid}; exec cat /dev/zero")
    assert message == f"credential plugin sh: its answer is longer than {OUTPUT_LIMIT} bytes"
    assert ends(int(pid.read_text()))


async def test_a_program_that_does_not_end_is_ended_with_its_descendants(tmp_path):
    pid = tmp_path / "pid"
    script = f"sleep 1000 & echo $! > {pid}; wait"
    message = await fails(script, timeout=timedelta(milliseconds=500))
    assert message == "credential plugin sh: no answer within 0:00:00.500000"
    assert ends(int(pid.read_text()))


async def test_a_program_ends_with_the_request_that_it_runs_for(tmp_path):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    asking = asyncio.ensure_future(run_plugin(plugin(f"echo $$ > {fifo}; exec sleep 1000"), {}, timeout=LONG))
    pid = int(await asyncio.to_thread(fifo.read_text))
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert ends(pid)


async def test_what_a_program_leaves_running_is_ended(tmp_path):
    pid = tmp_path / "pid"
    # It also keeps standard error open: that must not hold up the answer.
    script = f"""sleep 1000 > /dev/null & echo $! > {pid}; printf '%s' '{HEAD}"status":{{"token":"a"}}}}'"""
    async with asyncio.timeout(10):
        assert await shown_by(script) == CredentialSet(token="a")
    assert ends(int(pid.read_text()))


async def test_a_failure_shows_the_end_of_what_the_program_said():
    message = await fails(
        "head -c 3000000 /dev/zero | tr '\\0' x >&2; echo; echo 'no \033[1mlogin' >&2; exit 3", install_hint=" get it "
    )
    assert message.startswith("credential plugin sh: exit code 3: xxx")
    assert message.endswith("no ?[1mlogin (get it)")
    assert len(message) < 1000


async def test_a_program_that_is_not_there():
    missing = ExecPlugin(api_version=VERSION, command="/no/such/program", install_hint="get it")
    with pytest.raises(CredentialError, match=r"^credential plugin /no/such/program not started: .* \(get it\)$"):
        await run_plugin(missing, {}, timeout=LONG)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        pytest.param("", "its answer: ", id="nothing"),
        pytest.param(HEAD, "its answer: ", id="half of it"),
        pytest.param('{"apiVersion":"v1","kind":"Pod"}', "answered with v1 Pod, not ", id="another kind"),
        pytest.param(HEAD + '"status":{}}', "its answer has neither a token nor", id="no credentials"),
        pytest.param(HEAD + '"status":{"clientKeyData":"k"}}', "its answer has neither a token nor", id="half a pair"),
    ],
)
async def test_answers_that_are_of_no_use(answer, says):
    with pytest.raises(CredentialError, match=f"^credential plugin sh: {says}"):
        await shown_by(f"printf '%s' '{answer}'")


async def test_a_program_runs_again_when_its_answer_runs_out_or_is_refused(tmp_path):
    clock = ManualClock(start=datetime(2030, 1, 1, tzinfo=UTC))
    runs = tmp_path / "runs"
    status = '"status":{"token":"a","expirationTimestamp":"2030-01-01T01:00:00Z"}}'
    script = f"echo run >> {runs}; printf '%s' '{HEAD}{status}'"
    credentials = Credentials(login=Login(plugin=plugin(script)), clock=clock)
    counts = []
    for change in (lambda: None, lambda: clock.advance(timedelta(minutes=59)), credentials.refuse):
        change()
        assert await credentials.current() == CredentialSet(token="a")
        counts.append(len(runs.read_text().splitlines()))
    clock.advance(timedelta(minutes=1))
    await credentials.current()
    assert [*counts, len(runs.read_text().splitlines())] == [1, 1, 2, 3]


async def test_an_answer_of_another_kind_is_not_quoted_whole():
    script = """printf '{"kind":"'; head -c 300000 /dev/zero | tr '\\0' k; printf '"}'"""
    with pytest.raises(CredentialError, match="answered with") as caught:
        await shown_by(script)
    assert len(str(caught.value)) < 3000


CALLS = "rest_client_exec_plugin_call_total"


def counting(script, *, clock=None, plugin_of=plugin):
    """Credentials of a program, and the lines of the metrics of programs."""
    registry, clock = MetricRegistry(), clock or SystemClock()
    metrics = CredentialPluginMetrics(registry=registry, clock=clock)
    credentials = Credentials(login=Login(plugin=plugin_of(script)), clock=clock, plugins=metrics)
    return credentials, lambda: {line for line in registry.write().decode().splitlines() if not line.startswith("#")}


@pytest.mark.parametrize(
    ("script", "counted"),
    [
        pytest.param(
            f"""printf '%s' '{HEAD}"status":{{"token":"a"}}}}'""", 'call_status="no_error",code="0"', id="an answer"
        ),
        pytest.param("echo nonsense", 'call_status="no_error",code="0"', id="an answer of no use"),
        pytest.param("exit 3", 'call_status="plugin_execution_error",code="3"', id="an exit code"),
        pytest.param("kill -KILL $$", 'call_status="plugin_execution_error",code="-1"', id="ended by a signal"),
        pytest.param(
            "exec cat /dev/zero", 'call_status="plugin_execution_error",code="-1"', id="an answer without end"
        ),
    ],
)
async def test_calls_are_counted_as_upstream_counts_them(script, counted):
    credentials, lines = counting(script)
    for _ in range(2):
        with suppress(CredentialError):
            await credentials.current()
        credentials.refuse()
    assert {line for line in lines() if line.startswith(CALLS)} == {f"{CALLS}{{{counted}}} 2"}


async def test_a_program_that_is_not_there_is_counted():
    def missing(command):
        return ExecPlugin(api_version=VERSION, command=command)

    credentials, lines = counting("/no/such/program", plugin_of=missing)
    with pytest.raises(CredentialError):
        await credentials.current()
    assert f'{CALLS}{{call_status="plugin_not_found_error",code="1"}} 1' in lines()


def certificate(begins, ends):
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "node")])
    made = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), begins, ends)
    return made.sign(key, SHA256()).public_bytes(Encoding.PEM).decode()


async def test_how_long_the_certificate_of_a_program_is_valid_and_how_long_the_one_before_lived(tmp_path):
    hour, answer = timedelta(hours=1), tmp_path / "answer"
    clock = ManualClock(start=datetime(2030, 1, 1, tzinfo=UTC))
    credentials, lines = counting(f"cat {answer}", clock=clock)
    left, lived = "rest_client_exec_plugin_ttl_seconds", "rest_client_exec_plugin_certificate_rotation_age"
    assert {f"{left} +Inf", f"{lived}_count 0"} <= lines()
    for made in range(2):
        text = certificate(clock.now(), clock.now() + 2 * hour)
        head = {"apiVersion": VERSION, "kind": "ExecCredential"}
        answer.write_text(json.dumps(head | {"status": {"clientCertificateData": text, "clientKeyData": "k"}}))
        for _ in range(2):
            # The second time it returns the same certificate.
            await credentials.current()
            credentials.refuse()
        assert {f"{left} 7200", f"{lived}_count {made}", f"{lived}_sum {made * 10800}"} <= lines()
        clock.advance(3 * hour)
        assert f"{left} -3600" in lines()
