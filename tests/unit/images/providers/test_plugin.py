"""One provider: for which images it is asked, how its program is called, what becomes of its answers."""

import asyncio
import json
from datetime import timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from klet.config.credential_provider import CredentialProvider, ExecEnvVar, ServiceAccountTokenAttributes
from klet.host.errors import ProcessFailed, ProcessTimeout
from klet.host.processes import Completed
from klet.images.docker_config import RegistryLogin
from klet.images.providers.accounts import PodAccount
from klet.images.providers.metrics import register_providers
from klet.images.providers.plugin import LONGEST_ANSWER, ProviderFailed, ProviderPlugin, ProviderPorts
from klet.metrics import MetricRegistry
from klet.testing.clock import ManualClock

V1 = "credentialprovider.kubelet.k8s.io/v1"
APP, OTHER = "r.example.com/team/app", "r.example.com/team/other"
TOKEN = "t0ken"
PROVIDER = CredentialProvider(
    name="ecr",
    match_images=("*.example.com/team",),
    default_cache_duration=timedelta(minutes=10),
    api_version=V1,
    args=("get", "--quiet"),
    env=(ExecEnvVar(name="REGION", value="a"), ExecEnvVar(name="REGION", value="b")),
)
ATTRIBUTES = ServiceAccountTokenAttributes(
    service_account_token_audience="registry", cache_type="ServiceAccount", require_service_account=True
)
ACCOUNT = PodAccount(namespace="ns", name="puller", uid="u", annotations={"a": "1"}, token=TOKEN)
LOGINS = {"r.example.com": RegistryLogin("u", "p")}


def answer(*, kind="Image", duration=None, password="p", **more):
    fields = {"kind": "CredentialProviderResponse", "apiVersion": V1, "cacheKeyType": kind, **more}
    fields |= {} if duration is None else {"cacheDuration": duration}
    return json.dumps({**fields, "auth": {"r.example.com": {"username": "u", "password": password}}}).encode()


class Programs:
    """Programs that answer as the test says."""

    def __init__(self, *, stdout=b"", stderr=b"", code=0, error=None):
        self.stdout, self.stderr, self.code, self.error = stdout, stderr, code, error
        self.runs = []

    async def run(self, argv, *, stdin, env, timeout, output_limit):
        self.runs.append((argv, json.loads(stdin), env, timeout))
        await asyncio.sleep(0)
        if self.error is not None:
            raise self.error
        cut = len(self.stdout) > output_limit
        return Completed(
            argv=tuple(argv),
            returncode=self.code,
            stdout=self.stdout[:output_limit],
            stderr=self.stderr,
            truncated=cut,
        )


class Bench:
    def __init__(self, programs, provider=PROVIDER):
        self.programs, self.clock, self.registry = programs, ManualClock(), MetricRegistry()
        metrics = register_providers(self.registry, names=["ecr"], config_hash="sha256:00")
        ports = ProviderPorts(runner=programs, metrics=metrics, clock=self.clock)
        self.plugin = ProviderPlugin(provider=provider, directory=Path("/plugins"), ports=ports)

    async def find(self, repository=APP, account=None):
        return await self.plugin.find(repository, account)

    async def fails(self, account=None):
        with pytest.raises(ProviderFailed) as failed:
            await self.find(account=account)
        return failed.value

    def metric(self, name):
        lines = self.registry.write().decode().splitlines()
        return next((line.rpartition(" ")[2] for line in lines if line.startswith(name)), None)


@pytest.mark.parametrize(
    ("pattern", "repository", "expected"),
    [
        pytest.param("*.example.com", APP, True, id="a glob for one part of the host"),
        pytest.param("*.*.com/team/a", APP, True, id="globs for two parts, and the beginning of a path"),
        pytest.param("r.example.com/other", APP, False, id="another path"),
        pytest.param("*.com", APP, False, id="a glob never stands for two parts"),
        pytest.param("r.example.com:5000", APP, False, id="a port that the image does not have"),
        pytest.param("r.example.com", "r.example.com:5000/team/app", False, id="no port where the image has one"),
        pytest.param("*.example.com:5000", "r.example.com:5000/team/app", True, id="the same port"),
        pytest.param("r.example.com/", APP, True, id="a slash behind the host"),
        pytest.param("r.example.com/v1/team", APP, False, id="the version of a registry's API is part of the path"),
        pytest.param("r.example.com/v1/team", "r.example.com/v1/team/app", True, id="as it is in the image"),
        pytest.param("r.example.com/te%61m", APP, True, id="an escape in the path"),
        pytest.param("https://r.example.com", APP, False, id="a scheme is not for it"),
        pytest.param("docker.io", "docker.io/library/nginx", True, id="the default registry"),
        pytest.param("index.docker.io", "docker.io/library/nginx", False, id="its old name"),
    ],
)
def test_images(pattern, repository, expected):
    provider = replace(PROVIDER, match_images=("nothing.example.org", pattern))
    assert Bench(Programs(), provider).plugin.is_for(repository) is expected


async def test_the_program_is_called_as_configured():
    bench = Bench(Programs(stdout=answer()))
    assert await bench.find() == LOGINS
    [(argv, request, env, limit)] = bench.programs.runs
    assert argv == ["/plugins/ecr", "get", "--quiet"]
    assert env == {"REGION": "b"}
    assert limit == timedelta(minutes=1)
    assert request == {"kind": "CredentialProviderRequest", "apiVersion": V1, "image": APP}
    assert bench.metric("kubelet_credential_provider_plugin_duration_count") == "1"
    assert bench.metric("kubelet_credential_provider_plugin_errors_total") in (None, "0")
    assert bench.metric('kubelet_credential_provider_config_info{hash="sha256:00"}') == "1"


async def test_the_account_is_told():
    bench = Bench(Programs(stdout=answer()), replace(PROVIDER, token_attributes=ATTRIBUTES))
    await bench.find(account=ACCOUNT)
    [(_, request, _, _)] = bench.programs.runs
    assert (request["serviceAccountToken"], request["serviceAccountAnnotations"]) == (TOKEN, {"a": "1"})


@pytest.mark.parametrize(
    ("programs", "message"),
    [
        pytest.param(Programs(code=3), "exit status 3", id="an exit code"),
        pytest.param(Programs(code=-9), "signal: SIGKILL", id="a signal"),
        pytest.param(
            Programs(error=ProcessTimeout("")), "context deadline exceeded: no answer within 1m", id="the time limit"
        ),
        pytest.param(
            Programs(stdout=b"x" * LONGEST_ANSWER), f"its answer is longer than {LONGEST_ANSWER} bytes", id="too long"
        ),
        pytest.param(
            Programs(error=ProcessFailed("cannot start /plugins/ecr get s3cr3t", returncode=None)),
            "it cannot be started",
            id="no program",
        ),
    ],
)
async def test_runs_that_fail(programs, message):
    bench = Bench(programs)
    failed = await bench.fails()
    assert str(failed) == f"error execing credential provider plugin ecr for image {APP}: {message}"
    assert bench.metric("kubelet_credential_provider_plugin_errors_total") == "1"
    assert bench.metric("kubelet_credential_provider_plugin_duration_count") == "1"


async def test_a_name_that_leads_elsewhere_is_never_run():
    for name in ("../ecr", "/bin/true", "..", "", "a\0b"):
        bench = Bench(Programs(stdout=answer()), replace(PROVIDER, name=name))
        assert "is not that of a file in the directory of plugins" in str(await bench.fails())
        assert bench.programs.runs == []


async def test_what_a_program_says_of_its_failure_is_short_and_without_the_token():
    said = f"no\nrole for {TOKEN} \x1b[31m".encode() + b"x" * 5000
    bench = Bench(Programs(code=1, stderr=said), replace(PROVIDER, token_attributes=ATTRIBUTES))
    failed = await bench.fails(ACCOUNT)
    assert failed.said.startswith(r"no role for <token> \u001b[31m")
    assert len(failed.said) < 1100
    assert TOKEN not in str(failed) + failed.said


async def test_a_refused_answer_is_no_failed_run():
    bench = Bench(Programs(stdout=b"{}"))
    assert "did not match expected apiVersion" in str(await bench.fails())
    assert bench.metric("kubelet_credential_provider_plugin_errors_total") in (None, "0")


@pytest.mark.parametrize(
    ("stdout", "default", "runs"),
    [
        pytest.param(answer(duration="5m"), timedelta(), [1, 1, 2], id="as long as the answer says"),
        pytest.param(answer(duration="0s"), timedelta(hours=1), [1, 2, 3], id="not at all, if it says so"),
        pytest.param(answer(), timedelta(minutes=5), [1, 1, 2], id="else as the configuration says"),
        pytest.param(answer(), timedelta(), [1, 2, 3], id="not at all by configuration"),
    ],
)
async def test_how_long_an_answer_is_kept(stdout, default, runs):
    bench = Bench(Programs(stdout=stdout), replace(PROVIDER, default_cache_duration=default))
    seen = []
    for later in (0, 299, 2):
        bench.clock.advance(timedelta(seconds=later))
        assert await bench.find() == LOGINS
        seen.append(len(bench.programs.runs))
    assert seen == runs


async def test_a_failure_is_not_kept():
    bench = Bench(Programs(code=1))
    await bench.fails()
    bench.programs.code, bench.programs.stdout = 0, answer()
    assert await bench.find() == LOGINS


async def test_the_same_question_is_asked_once_at_a_time():
    bench = Bench(Programs(stdout=answer(duration="0s")))
    async with asyncio.TaskGroup() as group:
        for repository in (APP, APP, OTHER, APP):
            group.create_task(bench.find(repository))
    assert sorted(request["image"] for _, request, _, _ in bench.programs.runs) == [APP, OTHER]


async def test_answers_of_one_account_are_not_for_another():
    bench = Bench(Programs(stdout=answer(kind="Global", duration="1h")), replace(PROVIDER, token_attributes=ATTRIBUTES))
    for account in (ACCOUNT, replace(ACCOUNT, token="of another pod"), replace(ACCOUNT, uid="u-2"), None, None):
        assert await bench.find(account=account) == LOGINS
    assert [request.get("serviceAccountToken") for _, request, _, _ in bench.programs.runs] == [TOKEN, TOKEN, None]


@pytest.mark.parametrize(("cache_type", "is_refused"), [("ServiceAccount", True), ("Token", False)])
async def test_a_token_as_password_must_not_be_kept_for_other_pods(cache_type, is_refused):
    provider = replace(PROVIDER, token_attributes=replace(ATTRIBUTES, cache_type=cache_type))
    bench = Bench(Programs(stdout=answer(password=TOKEN)), provider)
    if is_refused:
        failed = await bench.fails(ACCOUNT)
        assert "returned the service account token as the password" in str(failed)
        assert TOKEN not in str(failed)
    else:
        assert await bench.find(account=ACCOUNT) == {"r.example.com": RegistryLogin("u", TOKEN)}
