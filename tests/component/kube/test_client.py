"""Requests to an API server, and what its refusals become."""

import asyncio
from datetime import timedelta

import msgspec
import pytest

from klet.agent_log.format import record_data
from klet.aio.clock import SystemClock
from klet.api.authentication import BoundObjectReference, TokenRequest, TokenRequestSpec, TokenReview, TokenReviewSpec
from klet.api.config import ConfigMap, ServiceAccount
from klet.api.coordination import Lease
from klet.api.meta import ObjectMeta, Status, StatusDetails
from klet.api.pod import Pod, PodStatus
from klet.embedded.faults import Cut, DelayAnswer, RefuseRequest
from klet.embedded.refusals import RequestRefused
from klet.kube.access import Access, Login
from klet.kube.client import KubeClient, PatchType
from klet.kube.credentials import Credentials
from klet.kube.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    Invalid,
    NotFound,
    TryLater,
    Unauthorized,
    Unreachable,
)
from klet.kube.metrics import register_rest_client
from klet.kube.throttle import Unlimited
from klet.kube.transport import HttpRequest, Transport
from klet.metrics import MetricRegistry
from klet.model.verbosity import REQUEST_STARTS, REQUESTS
from klet.testing.builders import make_pod


def busy(code: int = 429, *, seconds: int = 0) -> RequestRefused:
    details = StatusDetails(retry_after_seconds=seconds) if seconds else None
    return RequestRefused(Status(kind="Status", code=code, reason="", message="busy", details=details))


async def test_an_object_is_made_read_changed_and_deleted(cluster):
    made = await cluster.put("a", x="1")
    assert made.metadata.uid
    assert await cluster.client.get(ConfigMap, "a", "default") == made
    changed = await cluster.client.patch(ConfigMap, "a", "default", patch={"data": {"y": "2"}})
    assert changed.data == {"x": "1", "y": "2"}
    assert int(changed.metadata.resource_version) > int(made.metadata.resource_version)
    await cluster.client.delete(ConfigMap, "a", "default", uid=made.metadata.uid)
    with pytest.raises(NotFound, match='configmaps "a" not found'):
        await cluster.client.get(ConfigMap, "a", "default")


async def test_a_json_patch_and_a_merge_patch(cluster):
    await cluster.put("a", x="1")
    operations = [{"op": "replace", "path": "/data/x", "value": "2"}]
    assert (await cluster.client.patch(ConfigMap, "a", "default", patch=operations, how=PatchType.JSON)).data[
        "x"
    ] == "2"
    merge = {"data": {"x": None, "y": "3"}}
    assert (await cluster.client.patch(ConfigMap, "a", "default", patch=merge, how=PatchType.MERGE)).data == {"y": "3"}


async def test_a_list_has_a_version_and_its_items(cluster):
    for name in ("b", "a"):
        await cluster.put(name)
    listed = await cluster.client.list(ConfigMap, "default")
    assert [each.metadata.name for each in listed.items] == ["a", "b"]
    assert listed.metadata.resource_version == str(cluster.api.store.revision)


async def test_refusals_have_their_own_classes(cluster):
    made = await cluster.put("a")
    with pytest.raises(AlreadyExists):
        await cluster.put("a")
    with pytest.raises(Conflict, match="the UID in the precondition"):
        await cluster.client.delete(ConfigMap, "a", "default", uid="other")
    stale = msgspec.structs.replace(made, metadata=msgspec.structs.replace(made.metadata, resource_version="1"))
    with pytest.raises(Conflict, match="the object has been modified"):
        await cluster.client.update(stale, "a", "default")
    with pytest.raises(Invalid, match=r"metadata\.name"):
        await cluster.put("Not_A_Name")
    with pytest.raises(NotFound, match='namespaces "none" not found'):
        await cluster.client.create(Lease(metadata=ObjectMeta(name="l")), "none")


async def test_only_the_status_of_a_pod_is_written_by_its_subresource(cluster):
    pod = await cluster.client.create(make_pod(name="p"), "default")
    assert pod.status.phase == "Pending"
    patch = {"metadata": {"uid": pod.metadata.uid}, "spec": {"nodeName": "x"}, "status": {"phase": "Running"}}
    written = await cluster.client.patch(Pod, "p", "default", patch=patch, subresource="status")
    assert (written.status.phase, written.spec.node_name) == ("Running", pod.spec.node_name)
    foreign = {"metadata": {"uid": "other"}, "status": {"phase": "Failed"}}
    with pytest.raises(Conflict, match="Precondition failed: UID in precondition: other"):
        await cluster.client.patch(Pod, "p", "default", patch=foreign, subresource="status")
    assert (await cluster.client.get(Pod, "p", "default")).status == PodStatus(
        phase="Running", qos_class=written.status.qos_class
    )


async def test_an_answer_that_names_a_time_is_followed_by_another_try(cluster):
    await cluster.put("a")
    cluster.api.faults.plan(RefuseRequest(busy(seconds=1)))
    assert (await cluster.client.get(ConfigMap, "a", "default")).metadata.name == "a"


@pytest.mark.parametrize(
    ("code", "cls"), [(429, TryLater), (500, ApiError), (503, TryLater)], ids=["overload", "internal", "unavailable"]
)
async def test_an_error_without_a_time_is_reported_at_once(cluster, code, cls):
    cluster.api.faults.plan(RefuseRequest(busy(code)), times=2)
    with pytest.raises(cls) as caught:
        await cluster.client.get(ConfigMap, "a", "default")
    assert caught.value.code == code


async def test_a_cut_connection_is_unreachable(cluster):
    cluster.api.faults.plan(Cut(), times=3)
    with pytest.raises(Unreachable, match='GET "/api/v1/namespaces/default/configmaps/a": '):
        await cluster.client.get(ConfigMap, "a", "default")


async def test_a_slow_server_is_given_up_on(cluster):
    cluster.api.faults.plan(DelayAnswer(timedelta(minutes=1)))
    impatient = KubeClient(
        transport=cluster.transport, throttle=Unlimited(), timeout=timedelta(seconds=0.05), clock=SystemClock()
    )
    with pytest.raises(Unreachable, match=r"no answer within 0\.05 s"):
        await impatient.get(ConfigMap, "a", "default")


async def test_a_wrong_token_is_refused(cluster):
    login = Login(token="wrong")
    clock = SystemClock()
    transport = Transport(
        access=Access(server=f"http://127.0.0.1:{cluster.port}", login=login),
        credentials=Credentials(login=login, clock=clock),
    )
    client = KubeClient(transport=transport, throttle=Unlimited(), timeout=timedelta(seconds=5), clock=clock)
    try:
        with pytest.raises(Unauthorized):
            await client.get(ConfigMap, "a", "default")
    finally:
        await transport.close()


async def test_a_renewed_token_file_is_read_again_when_the_old_token_is_refused(cluster, tmp_path):
    await cluster.put("a")
    path = tmp_path / "token"
    path.write_text("old")
    login, clock = Login(token_file=path), SystemClock()
    credentials = Credentials(login=login, clock=clock)
    assert (await credentials.current()).token == "old"
    path.write_text("secret\n")
    transport = Transport(
        access=Access(server=f"http://127.0.0.1:{cluster.port}", login=login), credentials=credentials
    )
    client = KubeClient(transport=transport, throttle=Unlimited(), timeout=timedelta(seconds=5), clock=clock)
    try:
        assert (await client.get(ConfigMap, "a", "default")).metadata.name == "a"
    finally:
        await transport.close()


async def test_a_token_is_bound_to_its_pod(cluster):
    pod = make_pod(name="p")
    pod = msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, service_account_name="default"))
    uid = (await cluster.client.create(pod, "default")).metadata.uid
    reference = BoundObjectReference(api_version="v1", kind="Pod", name="p", uid=uid)
    request = TokenRequest(spec=TokenRequestSpec(expiration_seconds=600, bound_object_ref=reference))
    answer = await cluster.client.create_sub(ServiceAccount, "default", "default", "token", request)
    question = TokenReview(spec=TokenReviewSpec(token=answer.status.token))
    review = await cluster.client.review("/apis/authentication.k8s.io/v1/tokenreviews", question)
    assert review.status.user.username == "system:serviceaccount:default:default"
    assert review.status.user.extra["authentication.kubernetes.io/pod-uid"] == (uid,)
    await cluster.client.delete(Pod, "p", "default", grace=0)
    review = await cluster.client.review("/apis/authentication.k8s.io/v1/tokenreviews", question)
    assert not review.status.authenticated


async def test_requests_are_logged_without_what_they_carry(cluster, caplog):
    caplog.set_level(REQUEST_STARTS, logger="klet.kube.transport")
    await cluster.put("a", password="hunter2")
    with pytest.raises(NotFound):
        await cluster.client.get(ConfigMap, "none", "default")
    lines = [(each.levelno, each.message, record_data(each)) for each in caplog.records]
    made = {"verb": "POST", "url": f"http://127.0.0.1:{cluster.port}/api/v1/namespaces/default/configmaps"}
    read = {"verb": "GET", "url": f"{made['url']}/none"}
    for _, _, data in lines:
        data.pop("milliseconds", None)
    assert lines == [
        (REQUEST_STARTS, "Request", made),
        (REQUESTS, "Response", {**made, "status": "201 Created"}),
        (REQUEST_STARTS, "Request", read),
        (REQUESTS, "Response", {**read, "status": "404 Not Found"}),
    ]
    assert "hunter2" not in caplog.text
    assert "secret" not in caplog.text  # the token


async def test_a_watch_is_logged_when_it_begins(cluster, following, caplog):
    caplog.set_level(REQUESTS, logger="klet.kube.transport")
    async with asyncio.TaskGroup() as group:
        informer = cluster.informer()
        task = group.create_task(informer.run())
        await informer.until_synced()
        task.cancel()
    assert any("watch=" in each.url for each in caplog.records if each.message == "Response")


async def test_credentials_in_the_address_of_the_server_are_not_logged(cluster, caplog):
    caplog.set_level(REQUEST_STARTS, logger="klet.kube.transport")
    login = Login()
    transport = Transport(
        access=Access(server=f"http://user:hunter2@127.0.0.1:{cluster.port}", login=login),
        credentials=Credentials(login=login, clock=SystemClock()),
    )
    await transport.send(HttpRequest("GET", "/version"), timeout=timedelta(seconds=10))
    await transport.close()
    assert len(caplog.records) == 2
    assert "hunter2" not in "".join(str(record_data(each)) for each in caplog.records)


@pytest.mark.parametrize(
    ("name", "lookups"),
    [pytest.param("localhost", 1, id="a name"), pytest.param("127.0.0.1", 0, id="an address")],
)
async def test_requests_and_lookups_of_the_server_are_measured(cluster, name, lookups):
    registry, clock, login = MetricRegistry(), SystemClock(), Login(token="secret")
    transport = Transport(
        access=Access(server=f"http://{name}:{cluster.port}", login=login),
        credentials=Credentials(login=login, clock=clock),
        metrics=register_rest_client(registry, clock),
    )
    for _ in range(3):
        answer = await transport.send(HttpRequest("GET", "/version"), timeout=timedelta(seconds=10))
        assert answer.code == 200
    await transport.close()
    lines = registry.write().decode().splitlines()
    host = f"{name}:{cluster.port}"
    assert f'rest_client_requests_total{{code="200",host="{host}",method="GET"}} 3' in lines
    counted = [line for line in lines if line.startswith("rest_client_dns_resolution_duration_seconds_count")]
    assert counted == [f'rest_client_dns_resolution_duration_seconds_count{{host="{name}"}} 1'] * lookups
