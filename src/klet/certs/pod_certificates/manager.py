"""Requests certificates for pods and follows the requests until they are decided (podcertificate manager).

One podCertificate source is handled at a time: making keys takes a CPU, and starting pods need them too.
"""

import asyncio
import logging
import random
from datetime import datetime, timedelta
from typing import Final, Protocol

from msgspec import Struct

from klet.aio.backoff import Backoff
from klet.aio.broadcast import Lagged, Subscription
from klet.aio.clock import Clock
from klet.aio.workqueue import WorkQueue
from klet.api.certificates import PodCertificateRequest, PodCertificateRequestSpec
from klet.api.config import ServiceAccount
from klet.api.meta import ObjectMeta, OwnerReference
from klet.api.node import Node
from klet.api.pod import Pod
from klet.api.times import add_length
from klet.api.volume import PodCertificateProjection
from klet.certs.errors import CertificateError, PodCertificateNotRequested
from klet.certs.messages import PodCertificateKey
from klet.certs.pod_certificates.board import PodCertificates
from klet.certs.pod_certificates.states import (
    ASSUME_DELETED_AFTER,
    LONGEST_JITTER,
    CertificateDenied,
    CertificateFailed,
    CertificateInitial,
    CertificateReport,
    OpenRequest,
    ProjectionKey,
    decide_step,
    open_request_of,
    projections_of,
    with_request,
)
from klet.errors import KletError, level_for
from klet.kube.client import KubeClient
from klet.kube.errors import KubeError
from klet.kube.informer import Informer, ObjectKey
from klet.model.causes import CauseRecorder
from klet.model.pods import PodUID
from klet.model.reasons import Reason
from klet.model.recording import DecisionRecorder

logger = logging.getLogger(__name__)

DECIDER: Final = "certs.pod_certificates"
FIRST_DELAY: Final = timedelta(milliseconds=5)
LONGEST_DELAY: Final = timedelta(seconds=1000)
LOOK_PERIOD: Final = timedelta(minutes=1)
"""Everything is looked at again after this time, or up to twice as long: the wall clock may have been set."""
GENERATED: Final = "req-"
OWNER: Final = "core/v1"
"""Upstream's spelling, with which garbage collectors find no owner: requests end by their own age."""


class CertifiedPods(Protocol):
    """The pods of the node: pods' PodStore."""

    def get(self, uid: PodUID) -> Pod | None: ...

    def all(self) -> tuple[Pod, ...]: ...

    def changes(self) -> Subscription[str]: ...


class KeyMaker(Protocol):
    """Makes keys, outside of the agent: certs' CertificateMaker."""

    async def pod_key(self, key_type: str, *, proof_of: bytes) -> PodCertificateKey:
        """Raises CertificateError."""
        ...


class CertificateApi(Struct, frozen=True, kw_only=True):
    """What is asked of the API server, and followed there."""

    node_name: str
    client: KubeClient
    requests: Informer[PodCertificateRequest]
    """Those of this node alone: a node may not see others."""
    nodes: Informer[Node]


class PodCertificateManager:
    """Keeps the certificates of the node's pods fresh."""

    def __init__(
        self,
        *,
        api: CertificateApi,
        pods: CertifiedPods,
        keys: KeyMaker,
        board: PodCertificates,
        recorder: CauseRecorder,
        clock: Clock,
        randomness: random.Random,
    ) -> None:
        self._node_name = api.node_name
        self._client = api.client
        self._requests = api.requests
        self._nodes = api.nodes
        self._pods = pods
        self._keys = keys
        self._board = board
        self._decisions = DecisionRecorder(recorder, decider=DECIDER)
        self._clock = clock
        self._random = randomness
        self._queue = WorkQueue[ProjectionKey](clock=clock)
        self._backoff = Backoff[ProjectionKey](first=FIRST_DELAY, longest=LONGEST_DELAY)
        self._recorded_errors: dict[ProjectionKey, str] = {}
        self._spare_keys: dict[ProjectionKey, PodCertificateKey] = {}
        """Keys that no request has been made for yet."""

    async def run(self) -> None:
        await self._requests.until_synced()
        await self._nodes.until_synced()
        with self._pods.changes() as pods, self._requests.changes() as requests:
            self._look_at_all()
            async with asyncio.TaskGroup() as group:
                group.create_task(self._follow_pods(pods), name="pod certificates: pods")
                group.create_task(self._follow_requests(requests), name="pod certificates: requests")
                group.create_task(self._work(), name="pod certificates: work")

    async def _follow_pods(self, changes: Subscription[str]) -> None:
        async for _ in changes:
            changes.drain()
            self._forget_gone()
            for pod in self._pods.all():
                for key in projections_of(pod):
                    if self._board.get(key) is None:
                        self._queue.add(key)

    async def _follow_requests(self, changes: Subscription[ObjectKey]) -> None:
        async for change in changes:
            if isinstance(change, Lagged):
                self._look_at_all()
                continue
            request = self._requests.get(change.name, change.namespace)
            for key in self._keys_of(request, change):
                self._queue.add(key)

    def _keys_of(self, request: PodCertificateRequest | None, change: ObjectKey) -> list[ProjectionKey]:
        """Return what a request may be for. A request that is gone does not say so: then only those who wait for it."""
        if request is not None:
            pod = self._pods.get(PodUID(request.spec.pod_uid))
            return list(projections_of(pod)) if pod is not None else []
        return [
            key for key in self._board.known() if key.namespace == change.namespace and self._waits(key, change.name)
        ]

    def _waits(self, key: ProjectionKey, name: str) -> bool:
        state = self._board.get(key)
        request = open_request_of(state) if state is not None else None
        return request is not None and request.name == name

    def _look_at_all(self) -> None:
        for pod in self._pods.all():
            for key in projections_of(pod):
                self._queue.add(key)

    def _forget_gone(self) -> None:
        for uid in {key.uid for key in self._board.known()}:
            if self._pods.get(uid) is None:
                self._board.forget(uid)
        for key in (*self._recorded_errors, *self._spare_keys, *self._backoff.known()):
            if self._pods.get(key.uid) is None:
                self._recorded_errors.pop(key, None)
                self._spare_keys.pop(key, None)
                self._backoff.reset(key)

    async def _work(self) -> None:
        while True:
            key = await self._queue.get()
            try:
                delay = await self._handle(key)
                self._backoff.reset(key)
                self._recorded_errors.pop(key, None)
            except KletError as error:
                delay = min(self._backoff.next(key, now=self._clock.now()), self._next_look())
                self._note_failure(key, error, retry_at=self._clock.now() + delay)
            finally:
                self._queue.done(key)
            if delay is not None:
                self._queue.add_after(key, delay)

    async def _handle(self, key: ProjectionKey) -> timedelta | None:
        """Take the next step; return when to look again, None if never. Raises KletError for what is tried again."""
        pod = self._pods.get(key.uid)
        source = projections_of(pod).get(key) if pod is not None else None
        if pod is None or source is None:
            return None
        state = self._board.get(key) or CertificateInitial()
        request = open_request_of(state)
        seen = self._requests.get(request.name, key.namespace) if request is not None else None
        step = decide_step(key, state, seen, now=self._clock.now(), jitter=self._jitter())
        self._board.put(key, step.state)
        for report in step.reports:
            self._record(pod, key, source, report)
        if step.error:
            raise PodCertificateNotRequested(step.error)
        if step.must_request:
            made = await self._request(key, pod, source, is_first=isinstance(step.state, CertificateInitial))
            if self._pods.get(key.uid) is None:
                return None  # the pod was removed in the meantime: no volume needs the certificate
            self._board.put(key, with_request(step.state, made))
            message = f"PodCertificateRequest {key.namespace}/{made.name} is made"
            self._record(
                pod, key, source, CertificateReport(Reason.CERTIFICATE_REQUESTED, message, "wait for the signer")
            )
        return (
            self._delay_until(step.look_at)
            if not isinstance(step.state, CertificateDenied | CertificateFailed)
            else None
        )

    async def _request(
        self, key: ProjectionKey, pod: Pod, source: PodCertificateProjection, *, is_first: bool
    ) -> OpenRequest:
        """Make a request for a new key, which is kept for the next try if the API server does not take it."""
        what = f"while creating {'initial' if is_first else 'refresh'} PodCertificateRequest"
        namespace = pod.metadata.namespace
        # First the key: meanwhile the API server learns that the pod is bound here. Before it does, the node may not
        # read the pod's service account.
        own = await self._make_key(key, source, what)
        try:
            account = await self._client.get(ServiceAccount, pod.spec.service_account_name, namespace)
        except KubeError as error:
            raise PodCertificateNotRequested(f"while fetching service account: {error}") from error
        node = self._nodes.get(self._node_name)
        if node is None:
            missing = f'node "{self._node_name}" not found'
            raise PodCertificateNotRequested(f"while getting node object from local cache: {missing}")
        try:
            made = await self._client.create(_build_request(pod, source, own, account, node), namespace)
        except KubeError as error:
            raise PodCertificateNotRequested(f"{what}: while creating on API: {error}") from error
        self._spare_keys.pop(key, None)
        created = made.metadata.creation_timestamp or self._clock.now()
        abandon_at = add_length(created, ASSUME_DELETED_AFTER + self._jitter())
        return OpenRequest(name=made.metadata.name, key=own.key.encode(), abandon_at=abandon_at)

    async def _make_key(self, key: ProjectionKey, source: PodCertificateProjection, what: str) -> PodCertificateKey:
        if key not in self._spare_keys:
            try:
                made = await self._keys.pod_key(source.key_type, proof_of=key.uid.encode())
            except CertificateError as error:
                raise PodCertificateNotRequested(f"{what}: while generating keypair: {error}") from error
            self._spare_keys[key] = made
        return self._spare_keys[key]

    def _record(
        self, pod: Pod, key: ProjectionKey, source: PodCertificateProjection, report: CertificateReport
    ) -> None:
        self._decisions.for_pod(pod).record(
            report.reason,
            report.message,
            measurements={"volume": key.volume, "source": key.source_index, "signer": source.signer_name},
            next_step=report.next_step,
            next_at=report.next_at,
        )

    def _note_failure(self, key: ProjectionKey, error: KletError, *, retry_at: datetime) -> None:
        where = {"pod": f"{key.namespace}/{key.pod}", "uid": key.uid, "volume": key.volume, "source": key.source_index}
        logger.log(level_for(error), "Pod certificate not requested", extra={**where, "error": str(error)})
        pod = self._pods.get(key.uid)
        if pod is None or self._recorded_errors.get(key) == str(error):
            return
        self._recorded_errors[key] = str(error)
        self._decisions.for_pod(pod).record(
            Reason.CERTIFICATE_NOT_RENEWED,
            str(error),
            measurements={"volume": key.volume, "source": key.source_index},
            next_step="try again",
            next_at=retry_at,
        )

    def _delay_until(self, at: datetime | None) -> timedelta:
        return self._next_look() if at is None else min(self._next_look(), max(at - self._clock.now(), timedelta(0)))

    def _next_look(self) -> timedelta:
        return LOOK_PERIOD * (1 + self._random.random())

    def _jitter(self) -> timedelta:
        return LONGEST_JITTER * self._random.random()


def _build_request(
    pod: Pod, source: PodCertificateProjection, key: PodCertificateKey, account: ServiceAccount, node: Node
) -> PodCertificateRequest:
    meta = pod.metadata
    owner = OwnerReference(api_version=OWNER, kind="Pod", name=meta.name, uid=meta.uid)
    return PodCertificateRequest(
        metadata=ObjectMeta(namespace=meta.namespace, generate_name=GENERATED, owner_references=(owner,)),
        spec=PodCertificateRequestSpec(
            signer_name=source.signer_name,
            pod_name=meta.name,
            pod_uid=meta.uid,
            service_account_name=pod.spec.service_account_name,
            service_account_uid=account.metadata.uid,
            node_name=node.metadata.name,
            node_uid=node.metadata.uid,
            max_expiration_seconds=source.max_expiration_seconds,
            pkix_public_key=key.public_key,
            proof_of_possession=key.proof,
            unverified_user_annotations=source.user_annotations,
        ),
    )
