"""`klet image pull` and `klet image rm`: through the CRI, so that they work with every runtime."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from os import environ
from pathlib import Path
from typing import Final

from klet.aio.clock import Clock
from klet.api.klet_v1_images import NodeImage
from klet.cli.client import AgentClient, AgentError, AgentUnavailable
from klet.cli.image_table import users_of
from klet.cli.node_runtime import NodeRuntime
from klet.cli.progress import CommandProgress
from klet.cri.client import CriClient, connect
from klet.cri.connection import open_connection
from klet.cri.content import NAMESPACE, ContainerdContent
from klet.cri.errors import CriError, CriNotFound, wants_login
from klet.errors import KletError
from klet.images.docker_config import RegistryLogin
from klet.images.keyring import Keyring
from klet.images.names import ImageNameError, repository_of, with_default_tag
from klet.images.node_logins import find_login_files, read_first
from klet.images.pull_meter import PullMeter
from klet.images.running_pulls import NotedImages, RunningPulls
from klet.images.sandbox_image import parse_sandbox_image
from klet.model.foreign_text import as_terminal_text
from klet.model.pull_progress import describe_bytes, describe_pull
from klet.wire import cri_v1_pb2 as pb

CALL_DEADLINE: Final = timedelta(seconds=30)
LOOK_EVERY: Final = timedelta(milliseconds=500)


class CannotPull(KletError):
    """An image that was not pulled."""


class ImageInUse(KletError):
    """An image that is not removed, since something needs it."""


async def pull_images(names: Sequence[str], runtime: NodeRuntime, *, progress: CommandProgress, clock: Clock) -> None:
    """Pull one after the other, with the registry logins of the node. Raises KletError."""
    keyring = Keyring([await asyncio.to_thread(_read_logins, runtime.logins, progress)])
    async with (
        connect(runtime_endpoint=runtime.endpoint, image_endpoint=runtime.image_endpoint, timeout=CALL_DEADLINE) as cri,
        open_connection(runtime.images, metadata=NAMESPACE) as own,
    ):
        board = RunningPulls()
        meter = PullMeter(pulls=board, content=ContainerdContent(connection=own), clock=clock)
        images = NotedImages(inner=cri, board=board, clock=clock)
        for name in names:
            with progress.step(f"Pull {name}") as step:
                step.note(await _pull(name, images, meter, keyring.find, progress, clock))


async def _pull(
    name: str,
    images: NotedImages,
    meter: PullMeter,
    find_logins: Callable[[str], Sequence[RegistryLogin]],
    progress: CommandProgress,
    clock: Clock,
) -> str:
    """Return a note on what was pulled."""
    try:
        spec = pb.ImageSpec(image=with_default_tag(name))
        logins = find_logins(repository_of(name))
    except ImageNameError as error:
        raise CannotPull(str(error)) from error
    done = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(_show(name, meter, progress, clock, done), name="progress")
        try:
            failure = await _pull_with_any(images, spec, logins)
        finally:
            done.set()
    if failure is not None:
        hint = "; the node has no login for it (docs/images.md)" if not logins and wants_login(failure) else ""
        raise CannotPull(f"{name}: {failure.message}{hint}")
    found = (await images.image_status(pb.ImageStatusRequest(image=spec))).image
    return f"{describe_bytes(found.size)}" if found.id else "done"


async def _pull_with_any(images: NotedImages, spec: pb.ImageSpec, logins: Sequence[RegistryLogin]) -> CriError | None:
    """Pull with each login until one is accepted; return the last failure.

    As for pods, never without a login if there is one.
    """
    failure = None
    for login in logins or (None,):
        auth = None if login is None else pb.AuthConfig(username=login.username, password=login.password)
        try:
            await images.pull_image(pb.PullImageRequest(image=spec, auth=auth))
        except CriError as error:
            failure = error
        else:
            return None
    return failure


async def _show(name: str, meter: PullMeter, progress: CommandProgress, clock: Clock, done: asyncio.Event) -> None:
    while not done.is_set():
        for pull in await meter.look():
            progress.waiting(f"Pull {name}: {describe_pull(pull)}")
        await clock.wait(done.wait(), at_most=LOOK_EVERY)


def _read_logins(root: Path, progress: CommandProgress) -> dict[str, RegistryLogin]:
    home = environ.get("HOME")

    def report(path: Path, error: KletError) -> None:
        progress.warn(f"the registry logins in {path} cannot be read: {error}")

    return dict(read_first(find_login_files(root, Path(home) if home else None), report=report))


async def remove_images(
    names: Sequence[str],
    runtime: NodeRuntime,
    client: AgentClient,
    *,
    is_forced: bool,
    progress: CommandProgress,
) -> int:
    """Remove images that nothing uses, also after one that cannot go; return the exit code."""
    known = _known_images(client)
    code = 0
    async with connect(
        runtime_endpoint=runtime.endpoint, image_endpoint=runtime.image_endpoint, timeout=CALL_DEADLINE
    ) as cri:
        for name in names:
            try:
                progress.show(await _remove(name, cri, known, is_forced=is_forced))
            except KletError as error:
                progress.error(as_terminal_text(str(error)))
                code = 1
    return code


async def _remove(name: str, cri: CriClient, known: Iterable[NodeImage], *, is_forced: bool) -> str:
    found = await _find(name, cri)
    if not found.id:
        raise KletError(f"{name}: no such image; `klet images` lists those that there are")
    if not is_forced:
        problem = await _find_use(found, cri, known)
        if problem:
            raise ImageInUse(f"{name} {problem}; --force removes it nevertheless")
    await cri.remove_image(pb.RemoveImageRequest(image=pb.ImageSpec(image=found.id)))
    names = ", ".join((*found.repo_tags, *found.repo_digests)) or found.id
    return f"Removed {names} ({describe_bytes(found.size)})."


async def _find_use(image: pb.Image, cri: CriClient, known: Iterable[NodeImage]) -> str:
    """Return what keeps an image; the agent knows best, and without one the runtime shows it."""
    if image.pinned:
        return "is pinned by the runtime"
    mine = next((each for each in known if each.id == image.id), None)
    if mine is not None and mine.users:
        return f"is used by {users_of(mine.users, is_wide=True)}"
    # Runtimes do not agree which name of its image a container shows.
    names = {image.id, *image.repo_tags, *image.repo_digests}
    sandboxes = parse_sandbox_image(await cri.status(pb.StatusRequest(verbose=True)))
    if sandboxes and (await _find(sandboxes, cri)).id == image.id:
        return "is used by sandboxes"
    for each in (await cri.list_containers(pb.ListContainersRequest())).containers:
        if names & {each.image_id, each.image_ref, each.image.image}:
            return f"is used by the container {each.metadata.name}"
        if names & await _mounted_by(each.id, cri):
            return f"is used by a volume of the container {each.metadata.name}"
    return ""


async def _mounted_by(container: str, cri: CriClient) -> set[str]:
    try:
        answer = await cri.container_status(pb.ContainerStatusRequest(container_id=container))
    except CriNotFound:
        return set()  # removed since it was listed
    return {mount.image.image for mount in answer.status.mounts if mount.image.image}


async def _find(name: str, cri: CriClient) -> pb.Image:
    return (await cri.image_status(pb.ImageStatusRequest(image=pb.ImageSpec(image=name)))).image


def _known_images(client: AgentClient) -> tuple[NodeImage, ...]:
    try:
        return client.images().images
    except (AgentUnavailable, AgentError):
        # Images can be removed without an agent, too.
        return ()
