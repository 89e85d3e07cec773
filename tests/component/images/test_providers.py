"""Credential providers as real programs: what they are started with, and what they can do to the agent."""

import asyncio
import json
import os
import stat
from contextlib import aclosing
from datetime import timedelta

import pytest

from klet.api.config import ServiceAccount
from klet.config.credential_provider import load_credential_providers
from klet.host.inotify import watch_directory
from klet.host.plugin_programs import PluginPrograms
from klet.images.providers.logins import ProviderKeyring
from klet.images.providers.metrics import register_providers
from klet.images.providers.plugin import LONGEST_ANSWER, ProviderPlugin, ProviderPorts
from klet.journal.memory import MemoryJournal
from klet.metrics import MetricRegistry
from klet.model.objects import IssuedToken
from klet.testing.builders import make_pod
from klet.testing.clock import ManualClock
from klet.testing.process_ends import dies

V1 = "credentialprovider.kubelet.k8s.io/v1"
REPOSITORY = "r.example.com/team/app"


class NoAccounts:
    async def get(self, namespace: str, name: str) -> ServiceAccount:
        raise AssertionError(f"{namespace}/{name}")


class NoTokens:
    async def get(self, namespace, account, request) -> IssuedToken:
        raise AssertionError(f"{namespace}/{account} {request}")


class Bench:
    """Scripts in a directory, and the providers that are configured for them."""

    def __init__(self, directory):
        self.directory = directory
        self.clock = ManualClock()
        self.journal = MemoryJournal(clock=self.clock)

    def write(self, name, script):
        program = self.directory / name
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)

    def build(self, *names, environment=None, **fields):
        providers = [
            {"name": name, "matchImages": ["*.example.com"], "defaultCacheDuration": "1h", "apiVersion": V1, **fields}
            for name in names
        ]
        document = {"kind": "CredentialProviderConfig", "apiVersion": "kubelet.config.k8s.io/v1"}
        content = json.dumps({**document, "providers": providers}).encode()
        loaded = load_credential_providers([("config.json", content)], use_tokens=True)
        ports = ProviderPorts(
            runner=PluginPrograms(environment=os.environ if environment is None else environment),
            metrics=register_providers(MetricRegistry(), names=names, config_hash=loaded.hash),
            clock=self.clock,
        )
        return ProviderKeyring(
            plugins=[
                ProviderPlugin(provider=each, directory=self.directory, ports=ports) for each in loaded.config.providers
            ],
            accounts=NoAccounts(),
            tokens=NoTokens(),
            recorder=self.journal,
        )

    async def users(self, providers):
        found = await providers.find(make_pod(), f"{REPOSITORY}:1", REPOSITORY)
        return [(each.login.username, each.login.password) for each in found]

    def messages(self):
        return [cause.finding.message for cause in self.journal.all()]


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path)


def answering(user, *, before=""):
    head = f'{{"kind":"CredentialProviderResponse","apiVersion":"{V1}","cacheKeyType":"Image","auth":'
    login = f'{{"r.example.com":{{"username":"{user}","password":"pass"}}}}'
    return f"{before}\ncat >request\nprintf '%s' '{head}{login}}}'"


async def test_a_program_is_given_the_request_its_arguments_and_its_environment(bench, tmp_path):
    seen = tmp_path / "seen"
    bench.write("ecr", answering("u", before=f'cd {tmp_path}; echo "$@:$A:$B:$0" >seen'))
    providers = bench.build(
        "ecr",
        environment={"PATH": os.defpath, "A": "of the agent", "B": "of the agent"},
        args=["get", "$(x) y"],
        env=[{"name": "B", "value": "own"}],
    )
    assert await bench.users(providers) == [("u", "pass")]
    assert seen.read_text() == f"get $(x) y:of the agent:own:{tmp_path}/ecr\n"
    assert (tmp_path / "request").read_text() == (
        f'{{"kind":"CredentialProviderRequest","apiVersion":"{V1}","image":"{REPOSITORY}"}}\n'
    )


async def test_an_answer_is_kept(bench, tmp_path):
    bench.write("ecr", answering("u", before=f"cd {tmp_path}; echo run >>runs"))
    providers = bench.build("ecr")
    async with asyncio.TaskGroup() as group:
        for _ in range(5):
            group.create_task(bench.users(providers))
    assert await bench.users(providers) == [("u", "pass")]
    assert (tmp_path / "runs").read_text() == "run\n"
    bench.clock.advance(timedelta(hours=1))
    assert await bench.users(providers) == [("u", "pass")]
    assert (tmp_path / "runs").read_text() == "run\nrun\n"


@pytest.mark.parametrize(
    ("script", "message"),
    [
        pytest.param("echo pass >&2; exit 7", "exit status 7", id="an exit code"),
        pytest.param("kill -KILL $$", "signal: SIGKILL", id="a signal"),
        pytest.param("yes pass", f"longer than {LONGEST_ANSWER} bytes", id="an answer without end"),
        pytest.param("echo pass", "it is not JSON", id="no JSON"),
        pytest.param("true", "it is not JSON", id="nothing"),
    ],
)
async def test_a_program_that_fails_gives_no_logins(bench, script, message):
    script = f"{script} | head -c {LONGEST_ANSWER * 4}" if script.startswith("yes") else script
    bench.write("bad", script)
    bench.write("good", answering("u", before=f"cd {bench.directory}"))
    assert await bench.users(bench.build("bad", "good")) == [("u", "pass")]
    [said] = bench.messages()
    assert said.startswith("credential provider bad gave no logins: ")
    assert message in said
    assert "pass" not in said


async def test_a_program_that_is_gone_gives_no_logins(bench):
    assert await bench.users(bench.build("gone")) == []
    [said] = bench.messages()
    assert said == (
        "credential provider gone gave no logins: error execing credential provider plugin gone for image "
        f"{REPOSITORY}: No such file or directory"
    )


async def test_a_cancelled_pull_ends_the_program(bench, tmp_path):
    bench.write("slow", f"sleep 1000 & echo $! >{tmp_path}/new; mv {tmp_path}/new {tmp_path}/pid; wait")
    providers = bench.build("slow")
    async with asyncio.TaskGroup() as group:
        finding = group.create_task(bench.users(providers))
        async with aclosing(watch_directory(tmp_path)) as changes:
            while not (tmp_path / "pid").exists():
                await anext(changes)
        finding.cancel()
    assert await asyncio.to_thread(dies, int((tmp_path / "pid").read_text()))
    assert bench.messages() == []


async def test_an_argument_that_no_program_can_be_given(bench):
    bench.write("ecr", answering("u", before=f"cd {bench.directory}"))
    assert await bench.users(bench.build("ecr", args=["a\0b"])) == []
    [said] = bench.messages()
    assert said.endswith(f"plugin ecr for image {REPOSITORY}: it cannot be started")
