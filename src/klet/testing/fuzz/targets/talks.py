"""Plugins for the target `plugin-answers`: the container runtime, credential plugins for the API server, and plugins
that register.
"""

from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from datetime import timedelta
from pathlib import Path
from typing import Final

from google.protobuf.message import Message

from klet.aio.clock import SystemClock
from klet.cri.calls import IMAGE_SERVICE, RUNTIME_SERVICE
from klet.cri.client import CriClient
from klet.cri.connection import open_connection
from klet.cri.events import CriEvents
from klet.images.board import ImageBoard
from klet.images.holds import ImageHolds
from klet.images.watcher import ImageWatcher, ImageWatchSettings
from klet.kube.access import ExecPlugin, Login
from klet.kube.credentials import Credentials
from klet.model.pods import PodUID
from klet.node.cgroup_driver import choose_cgroup_driver
from klet.node.runtime_state import judge_status
from klet.pleg.cache import RuntimeCache
from klet.runtime import labels
from klet.runtime.reader import PodReader
from klet.testing.fuzz.target import Flaw
from klet.testing.fuzz.targets.plugin_answers import Question, Talk
from klet.testing.fuzz.targets.registrations import REGISTRATIONS
from klet.wire import cri_v1_pb2 as cri
from klet.wire.methods import methods_of

_TIMEOUT: Final = timedelta(seconds=5)
_UID: Final = PodUID("u-1")
_V1: Final = "client.authentication.k8s.io/v1"


class RuntimeAsker:
    """Everything that klet asks of a runtime without changing anything."""

    def __init__(self, endpoint: str, _directory: Path) -> None:
        self._endpoint = endpoint
        self._stack = AsyncExitStack()
        self._client: CriClient | None = None

    async def questions(self, _parts: Mapping[str, list[bytes]]) -> Sequence[Question]:
        if self._client is None:
            connection = await self._stack.enter_async_context(open_connection(self._endpoint))
            self._client = CriClient(runtime=connection, images=connection, timeout=_TIMEOUT)
        client, reader = self._client, PodReader(runtime=self._client, files=_NoFiles())
        return (
            lambda: client.version(cri.VersionRequest()),
            lambda: _judge(client),
            reader.list_pods,
            lambda: _read_pod(reader),
            lambda: reader.owner_of("container-1"),
            lambda: _cgroup_driver(client),
            lambda: client.image_status(cri.ImageStatusRequest(image=cri.ImageSpec(image="i"))),
            _image_watcher(client).look,
            lambda: client.exec(cri.ExecRequest(container_id="container-1")),
            lambda: client.exec_sync(cri.ExecSyncRequest(container_id="container-1", cmd=["true"])),
            lambda: client.image_fs_info(cri.ImageFsInfoRequest()),
            lambda: _events(client),
        )

    async def close(self) -> None:
        await self._stack.aclose()


def _image_watcher(client: CriClient) -> ImageWatcher:
    return ImageWatcher(
        images=client,
        runtime=client,
        seen=RuntimeCache(),
        board=ImageBoard(),
        holds=ImageHolds(),
        settings=ImageWatchSettings(),
        clock=SystemClock(),
    )


class CredentialAsker:
    """Runs a program that prints the first answer."""

    def __init__(self, _endpoint: str, directory: Path) -> None:
        self._file = directory / "credential.json"

    async def questions(self, parts: Mapping[str, list[bytes]]) -> Sequence[Question]:
        self._file.write_bytes(next(iter(parts.values()), [b""])[0])
        plugin = ExecPlugin(api_version=_V1, command="/bin/cat", args=(str(self._file),))
        return (lambda: _credentials(Credentials(login=Login(plugin=plugin), clock=SystemClock())),)

    async def close(self) -> None:
        """Do nothing."""


class _NoFiles:
    """No container has left anything; what a runtime names is not looked at here."""

    async def read_tail(self, path: str, *, limit: int) -> bytes | None:  # noqa: ARG002 - the role's arguments
        return None

    async def read_log_tail(self, path: str, *, lines: int, limit: int) -> bytes:  # noqa: ARG002 - the role's arguments
        return b""


async def _judge(client: CriClient) -> None:
    report = judge_status(await client.status(cri.StatusRequest()))
    if any(len(text or "") > 16 << 10 for text in (report.runtime_error, report.network_error)):
        raise Flaw("quotes too much of the runtime's status")


async def _read_pod(reader: PodReader) -> None:
    pod = await reader.read(_UID)
    labels.legacy_log_names(pod)
    for record in pod.containers:
        labels.restore_pod(record, uid=_UID, name=pod.name, namespace=pod.namespace)
        if len(record.message) > 32 << 10 or len(record.reason) > 4 << 10:
            raise Flaw("keeps too much of what the runtime says of an end")


async def _cgroup_driver(client: CriClient) -> None:
    choose_cgroup_driver(await client.runtime_config(cri.RuntimeConfigRequest()), configured="cgroupfs")


async def _events(client: CriClient) -> None:
    async with aclosing(CriEvents(runtime=client).subscribe()) as events:
        async for _ in events:
            pass


async def _credentials(credentials: Credentials) -> None:
    shown = await credentials.current()
    if not shown.token and not (shown.certificate and shown.key):
        raise Flaw("shows nothing although a plugin answered")


def _responses() -> dict[str, type[Message]]:
    services = (RUNTIME_SERVICE, IMAGE_SERVICE)
    return {name: method.response for service in services for name, method in methods_of(service).items()}


def _examples() -> list[dict[str, bytes]]:
    meta = cri.PodSandboxMetadata(name="p", namespace="default", uid="u-1", attempt=1)
    names = {labels.POD_UID: "u-1", labels.POD_NAME: "p", labels.POD_NAMESPACE: "default", labels.CONTAINER_NAME: "c"}
    annotations = {
        labels.HASH: "1f",
        labels.RESTART_COUNT: "2",
        labels.TERMINATION_MESSAGE_PATH: "/dev/termination-log",
        labels.TERMINATION_MESSAGE_POLICY: "FallbackToLogsOnError",
        labels.TERMINATION_GRACE_PERIOD: "30",
        labels.PRE_STOP_HANDLER: '{"exec":{"command":["true"]}}',
        labels.PORTS: '[{"containerPort":80}]',
    }
    at = 1_700_000_000_000_000_000
    container = cri.ContainerMetadata(name="c", attempt=2)
    status = cri.ContainerStatus(
        id="container-1",
        metadata=container,
        state=cri.CONTAINER_EXITED,
        created_at=at,
        started_at=at,
        finished_at=at,
        exit_code=1,
        image=cri.ImageSpec(image="i"),
        image_ref="r",
        reason="Error",
        message="m",
        labels=names,
        annotations=annotations,
        log_path="/var/log/pods/x/c/0.log",
        mounts=[cri.Mount(container_path="/dev/termination-log", host_path="/x")],
        resources=cri.ContainerResources(
            linux=cri.LinuxContainerResources(cpu_quota=1, cpu_period=100000, cpu_shares=2, memory_limit_in_bytes=3)
        ),
        user=cri.ContainerUser(linux=cri.LinuxContainerUser(uid=1, gid=1)),
    )
    sandbox = cri.PodSandboxStatus(
        id="sandbox-1",
        metadata=meta,
        state=cri.SANDBOX_READY,
        created_at=at,
        labels=names,
        network=cri.PodSandboxNetworkStatus(ip="10.0.0.1", additional_ips=[cri.PodIP(ip="fd00::1")]),
    )
    listed = cri.Container(
        id="container-1", pod_sandbox_id="sandbox-1", metadata=container, created_at=at, labels=names
    )
    conditions = [cri.RuntimeCondition(type=kind, status=True) for kind in ("RuntimeReady", "NetworkReady")]
    answers: dict[str, Message] = {
        "Version": cri.VersionResponse(version="1", runtime_name="r", runtime_version="1", runtime_api_version="v1"),
        "Status": cri.StatusResponse(
            status=cri.RuntimeStatus(conditions=conditions), runtime_handlers=[cri.RuntimeHandler(name="runc")]
        ),
        "ListPodSandbox": cri.ListPodSandboxResponse(
            items=[cri.PodSandbox(id="sandbox-1", metadata=meta, state=cri.SANDBOX_READY, created_at=at, labels=names)]
        ),
        "ListContainers": cri.ListContainersResponse(containers=[listed]),
        "PodSandboxStatus": cri.PodSandboxStatusResponse(status=sandbox),
        "ContainerStatus": cri.ContainerStatusResponse(status=status),
        "RuntimeConfig": cri.RuntimeConfigResponse(linux=cri.LinuxRuntimeConfiguration(cgroup_driver=cri.CGROUPFS)),
        "ImageStatus": cri.ImageStatusResponse(image=cri.Image(id="i", size=1)),
        "ListImages": cri.ListImagesResponse(images=[cri.Image(id="i", repo_tags=["a:b"], size=1)]),
        "Exec": cri.ExecResponse(url="http://127.0.0.1:1/exec/x"),
        "ExecSync": cri.ExecSyncResponse(stdout=b"out", exit_code=0),
        "ImageFsInfo": cri.ImageFsInfoResponse(image_filesystems=[cri.FilesystemUsage(timestamp=at)]),
        "GetContainerEvents": cri.ContainerEventResponse(
            container_id="container-1", created_at=at, pod_sandbox_status=sandbox
        ),
    }
    return [{name: message.SerializeToString() for name, message in answers.items()}]


RUNTIME: Final = Talk(name="runtime", methods=_responses(), examples=_examples(), asker=RuntimeAsker)
_HEAD: Final = b'{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":'
CREDENTIALS: Final = Talk(
    name="credentials",
    methods={},
    examples=[
        {"output": _HEAD + b'{"token":"t","expirationTimestamp":"2030-01-01T00:00:00Z"}}'},
        {"output": _HEAD + b'{"clientCertificateData":"c","clientKeyData":"k"}}'},
    ],
    asker=CredentialAsker,
)
TALKS: Final = (RUNTIME, CREDENTIALS, REGISTRATIONS)
