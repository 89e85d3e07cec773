"""User namespaces of pods: support, allocation, what survives a restart."""
# ruff: noqa: ARG002 - the fakes keep the signatures of the protocols

import random

import pytest
from msgspec.structs import replace

from klet.api.pod import Pod
from klet.errors import KletError
from klet.host.errors import HostError
from klet.model.pods import PodUID
from klet.runtime.config.id_blocks import UNIT, IdBlock, IdBlocks, IdRange, UserNamespaceError, encode_block
from klet.runtime.config.user_namespaces import UserNamespaceManager
from klet.runtime.errors import SandboxConfigError
from klet.runtime.runtime_class import HandlerFeatures
from klet.simulation.fake_host import MemoryMappings
from klet.testing.builders import make_pod
from klet.wire import cri_v1_pb2 as cri

IDS = IdRange(first=UNIT, length=2 * UNIT, per_pod=UNIT)
ABLE = HandlerFeatures(user_namespaces=True)


class Handlers:
    def __init__(self, answer: HandlerFeatures | KletError) -> None:
        self._answer = answer

    async def features_of(self, handler: str) -> HandlerFeatures:
        if isinstance(self._answer, KletError):
            raise self._answer
        return self._answer


class FullDisk(MemoryMappings):
    async def write(self, uid: PodUID, data: bytes) -> None:
        raise HostError("cannot write userns: No space left on device")


def users(
    files: MemoryMappings | None = None, answer: HandlerFeatures | KletError = ABLE, *, is_enabled: bool = True
) -> UserNamespaceManager:
    return UserNamespaceManager(
        blocks=IdBlocks(ids=IDS),
        files=files or MemoryMappings(),
        handlers=Handlers(answer),
        randomness=random.Random(1),
        is_enabled=is_enabled,
    )


def pod_of(host_users: bool | None, uid: str = "uid-1") -> Pod:
    pod = make_pod(uid=uid)
    return replace(pod, spec=replace(pod.spec, host_users=host_users))


@pytest.mark.parametrize("host_users", [None, True])
async def test_most_pods_have_the_users_of_the_host(host_users):
    files = MemoryMappings()
    option = await users(files, KletError("never asked")).option_for(pod_of(host_users), "")
    assert option == cri.UserNamespace(mode=cri.NODE)
    assert not files.written


async def test_a_pod_with_users_of_its_own():
    files = MemoryMappings()
    namespaces = users(files)
    option = await namespaces.option_for(pod_of(False), "")
    assert option is not None
    [mapping] = option.uids
    assert (option.mode, mapping.container_id, mapping.length, list(option.gids)) == (cri.POD, 0, UNIT, [mapping])
    assert mapping.host_id in {UNIT, 2 * UNIT}
    assert files.written == {"uid-1": encode_block(IdBlock(mapping.host_id, UNIT))}
    assert await namespaces.option_for(pod_of(False), "") == option


@pytest.mark.parametrize(
    ("handler", "answer", "message"),
    [
        pytest.param("", HandlerFeatures(), "runtime does not support user namespaces", id="an old runtime"),
        pytest.param(
            "crun",
            HandlerFeatures(),
            'RuntimeClass handler "crun" does not support user namespaces',
            id="an old handler",
        ),
        pytest.param(
            "kata",
            HandlerFeatures(is_known=False),
            'RuntimeClass handler "kata" does not support user namespaces: the handler "kata" is not known',
            id="an unknown handler",
        ),
        pytest.param(
            "",
            KletError("the runtime is down"),
            "runtime does not support user namespaces: the runtime is down",
            id="nobody knows",
        ),
    ],
)
async def test_runtimes_without_user_namespaces(handler, answer, message):
    with pytest.raises(SandboxConfigError) as caught:
        await users(answer=answer).option_for(pod_of(False), handler)
    assert str(caught.value) == f"can't set `spec.hostUsers: false`, {message}"


async def test_switched_off():
    namespaces = users(is_enabled=False)
    assert await namespaces.option_for(pod_of(None), "") is None
    for wanted in (True, False):
        with pytest.raises(SandboxConfigError) as caught:
            await namespaces.option_for(pod_of(wanted), "")
        text = 'the feature gate "UserNamespacesSupport" is disabled: can\'t set spec.HostUsers'
        assert str(caught.value) == text


@pytest.mark.parametrize("is_restored", [True, False], ids=["restored at start", "read when it is needed"])
async def test_a_pod_keeps_its_ids_when_the_agent_starts_again(is_restored):
    files = MemoryMappings()
    files.written[PodUID("uid-1")] = encode_block(IdBlock(2 * UNIT, UNIT))
    namespaces = users(files)
    if is_restored:
        namespaces.restore(files.written)
    option = await namespaces.option_for(pod_of(False), "")
    assert option is not None
    assert option.uids[0].host_id == 2 * UNIT


@pytest.mark.parametrize(
    ("written", "message"),
    [
        pytest.param(b"{", "user namespace: invalid user namespace mappings file: ", id="a damaged file"),
        pytest.param(
            encode_block(IdBlock(UNIT, 5)), "user namespace: wrong user namespace length 5", id="another length"
        ),
    ],
)
async def test_a_bad_file(written, message):
    files = MemoryMappings()
    files.written[PodUID("uid-1")] = written
    with pytest.raises(SandboxConfigError, match=message):
        await users(files).option_for(pod_of(False), "")
    with pytest.raises(UserNamespaceError, match=message):
        users(files).restore(files.written)


async def test_an_empty_file_counts_as_none():
    files = MemoryMappings()
    files.written[PodUID("uid-1")] = b""
    namespaces = users(files)
    namespaces.restore(files.written)
    await namespaces.option_for(pod_of(False), "")
    assert files.written[PodUID("uid-1")]


async def test_when_all_ids_are_taken():
    namespaces = users()
    for uid in ("a", "b"):
        await namespaces.option_for(pod_of(False, uid), "")
    with pytest.raises(SandboxConfigError, match="create user namespace: could not find an empty slot"):
        await namespaces.option_for(pod_of(False, "c"), "")
    await namespaces.release(PodUID("a"))
    assert await namespaces.option_for(pod_of(False, "c"), "") is not None


async def test_what_is_released_is_forgotten_on_disk_too():
    files = MemoryMappings()
    namespaces = users(files)
    await namespaces.option_for(pod_of(False), "")
    await namespaces.release(PodUID("uid-1"))
    await namespaces.release(PodUID("unknown"))
    assert not files.written


async def test_ids_that_could_not_be_written_down_are_not_given_out():
    namespaces = users(FullDisk())
    for _ in range(3):
        with pytest.raises(HostError):
            await namespaces.option_for(pod_of(False), "")
