"""What the runtime gets of sandboxes and containers, from the pod down to the call."""

import pytest
from msgspec.structs import replace

from klet.api.container import (
    ConfigMapKeySelector,
    Container,
    EnvFromSource,
    EnvVar,
    EnvVarSource,
    EphemeralContainer,
    ObjectFieldSelector,
    ResourceFieldSelector,
    SecretEnvSource,
    VolumeDevice,
    VolumeMount,
)
from klet.api.pod import Pod
from klet.api.volume import ImageVolumeSource, Volume
from klet.model.images import MissingImage
from klet.model.runtime import StartFailure
from klet.model.volumes import HostVolume
from klet.testing.builders import IMAGE, make_container, make_pod
from klet.testing.fake_runtime.world import Features
from klet.wire import cri_v1_pb2 as cri

MODERN = Features(user_namespaces=True, recursive_read_only_mounts=True, runtime_handlers=("", "runc", "crun"))
POD_NAME = "pod_default(uid-1)"


def pod_with(*containers: str | Container, **spec) -> Pod:
    pod = make_pod(*containers)
    return replace(pod, spec=replace(pod.spec, **spec))


def created(bench) -> list[cri.ContainerConfig]:
    return [call.request.config for call in bench.calls("CreateContainer")]


def test_a_debugger_shares_the_processes_of_its_target(on_bench):
    async def test(bench) -> None:
        await bench.sync(make_pod("a"))
        target = (await bench.status(make_pod("a"))).newest("a").id
        debugger = EphemeralContainer(name="debug", image=IMAGE, target_container_name="a")
        await bench.sync(pod_with("a", ephemeral_containers=(debugger,)))
        options = created(bench)[-1].linux.security_context.namespace_options
        assert (options.pid, options.target_id) == (cri.TARGET, target)

    on_bench(test)


def test_a_debugger_without_its_target(on_bench):
    async def test(bench) -> None:
        await bench.sync(make_pod("a"))
        debugger = EphemeralContainer(name="debug", image=IMAGE, target_container_name="b")
        outcome = await bench.sync(pod_with("a", ephemeral_containers=(debugger,)))
        text = "unable to find target container b"
        assert outcome.failures == {"debug": StartFailure("CreateContainerConfigError", text)}
        assert ("Failed", f"Error: {text}") in await bench.events()

    on_bench(test)


def test_a_pod_with_a_runtime_class_runs_with_its_handler(on_bench):
    async def test(bench) -> None:
        await bench.sync(pod_with("a", runtime_class_name="quick"))
        assert bench.calls("RunPodSandbox")[0].request.runtime_handler == "crun"

    on_bench(test, features=MODERN)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        pytest.param(
            {"runtime_class_name": "kata"}, 'runtimeclass.node.k8s.io "kata" not found', id="an unknown runtime class"
        ),
        pytest.param(
            {"host_users": False},
            "can't set `spec.hostUsers: false`, runtime does not support user namespaces",
            id="users of its own on an old runtime",
        ),
        pytest.param(
            {"host_users": False, "runtime_class_name": "quick"},
            'can\'t set `spec.hostUsers: false`, RuntimeClass handler "crun" does not support user namespaces',
            id="users of its own on an old handler",
        ),
    ],
)
def test_isolation_that_is_not_there_is_refused(on_bench, spec, message):
    async def test(bench) -> None:
        outcome = await bench.sync(pod_with("a", **spec))
        text = f'Failed to generate sandbox config for pod "{POD_NAME}": {message}'
        assert outcome.errors == (
            f'failed to "CreatePodSandbox" for "{POD_NAME}" with CreatePodSandboxError: "{text}"',
        )
        assert ("FailedCreatePodSandBox", f"Failed to create pod sandbox: {message}") in await bench.events()
        assert bench.calls("RunPodSandbox") == []

    on_bench(test)


def test_bandwidth_that_is_none_is_refused_for_a_new_sandbox_alone(on_bench):
    def limited(bits: str) -> Pod:
        pod = make_pod("a")
        return replace(pod, metadata=replace(pod.metadata, annotations={"kubernetes.io/egress-bandwidth": bits}))

    async def test(bench) -> None:
        outcome = await bench.sync(limited("10"))
        message = (
            'reading pod bandwidth annotations: kubernetes.io/egress-bandwidth "10": '
            "resource is unreasonably small (< 1kbit)"
        )
        assert message in outcome.errors[0]
        assert ("FailedCreatePodSandBox", f"Failed to create pod sandbox: {message}") in await bench.events()
        assert bench.calls("RunPodSandbox") == []

    on_bench(test)

    async def later(bench) -> None:
        await bench.sync(limited("10M"))
        [call] = bench.calls("RunPodSandbox")
        assert call.request.config.annotations["kubernetes.io/egress-bandwidth"] == "10M"
        outcome = await bench.sync(limited("10"))
        assert outcome.errors == ()

    on_bench(later)


def test_a_handler_that_the_runtime_does_not_have(on_bench):
    async def test(bench) -> None:
        outcome = await bench.sync(pod_with("a", host_users=False, runtime_class_name="quick"))
        assert 'does not support user namespaces: the handler "crun" is not known' in outcome.errors[0]

    on_bench(test, features=Features(user_namespaces=True))


def test_users_of_its_own_are_the_same_for_sandbox_container_and_mounts(on_bench):
    async def test(bench) -> None:
        await bench.sync(pod_with("a", host_users=False))
        sandbox = bench.calls("RunPodSandbox")[0].request.config.linux.security_context.namespace_options
        [container] = created(bench)
        assert sandbox.userns_options.mode == cri.POD
        [mapping] = sandbox.userns_options.uids
        assert container.linux.security_context.namespace_options.userns_options == sandbox.userns_options
        assert [list(mount.uidMappings) for mount in container.mounts] == [[mapping]] * len(container.mounts)
        assert set(bench.mappings.written) == {"uid-1"}

    on_bench(test, features=MODERN)


def test_pods_with_the_hosts_users_say_so(on_bench):
    async def test(bench) -> None:
        await bench.sync(make_pod("a"))
        [container] = created(bench)
        assert container.linux.security_context.namespace_options.userns_options == cri.UserNamespace(mode=cri.NODE)
        assert bench.calls("Status") == []

    on_bench(test)


MODELS = Volume(name="models", image=ImageVolumeSource(reference="klet.local/models:1", pull_policy="IfNotPresent"))
READER = replace(make_container("a"), volume_mounts=(VolumeMount(name="models", mount_path="/models"),))


def test_an_image_that_is_mounted_is_had_first(on_bench):
    async def test(bench) -> None:
        await bench.sync(pod_with(READER, "b", volumes=(MODELS,)))
        assert bench.images.asked == [("", "klet.local/models:1"), ("a", IMAGE), ("b", IMAGE)]
        mount = created(bench)[0].mounts[0]
        assert (mount.container_path, mount.host_path, mount.image.image) == ("/models", "", "klet.local/models:1")

    on_bench(test)


def test_an_image_that_no_container_mounts_is_pulled_too_and_stops_none_if_it_is_missing(on_bench):
    async def test(bench) -> None:
        bench.images.missing_volume = MissingImage("ErrImagePull", "no such host")
        outcome = await bench.sync(pod_with("b", volumes=(MODELS,)))
        assert bench.images.asked == [("", "klet.local/models:1"), ("b", IMAGE)]
        assert outcome.failures == {}
        assert [config.metadata.name for config in created(bench)] == ["b"]

    on_bench(test)


def test_a_mounted_image_that_is_missing_fails_only_who_mounts_it(on_bench):
    async def test(bench) -> None:
        bench.images.missing_volume = MissingImage("ErrImagePull", "no such host")
        outcome = await bench.sync(pod_with(READER, "b", volumes=(MODELS,)))
        assert outcome.failures == {"a": StartFailure("ErrImagePull", "ErrImagePull")}
        assert ("Failed", "Error: ErrImagePull") in await bench.events()
        assert [config.metadata.name for config in created(bench)] == ["b"]

    on_bench(test)


def mounting(**options) -> Container:
    wanted = VolumeMount(name="data", mount_path="/data", **options)
    variables = (EnvVar(name="WHO", value="ada"),)
    return replace(make_container("a"), volume_mounts=(wanted,), env=variables)


def test_a_part_of_a_volume(on_bench):
    async def test(bench) -> None:
        bench.volumes.paths = {"data": "/host/data"}
        await bench.sync(pod_with(mounting(sub_path_expr="home/$(WHO)")))
        assert created(bench)[0].mounts[0].host_path == "/pods/uid-1/volume-subpaths/data/a/0"

    on_bench(test)


@pytest.mark.parametrize(("read_only", "permissions"), [(False, "mrw"), (True, "r")])
def test_a_block_volume_is_a_device(on_bench, read_only, permissions):
    async def test(bench) -> None:
        link = "/pods/uid-1/volumeDevices/kubernetes.io~csi/pv"
        bench.volumes.devices = {"disk": HostVolume("", device=link, read_only=read_only)}
        wanted = VolumeDevice(name="disk", device_path="/dev/xvda")
        await bench.sync(pod_with(replace(make_container("a"), volume_devices=(wanted,))))
        [device] = created(bench)[0].devices
        assert (device.host_path, device.container_path, device.permissions) == (link, "/dev/xvda", permissions)

    on_bench(test)


@pytest.mark.parametrize(
    ("features", "mode", "expected"),
    [
        pytest.param(MODERN, "Enabled", True, id="a new runtime"),
        pytest.param(MODERN, "IfPossible", True, id="a new runtime, if possible"),
        pytest.param(None, "IfPossible", False, id="an old runtime, if possible"),
    ],
)
def test_recursive_read_only(on_bench, features, mode, expected):
    async def test(bench) -> None:
        bench.volumes.paths = {"data": "/host/data"}
        await bench.sync(pod_with(mounting(read_only=True, recursive_read_only=mode)))
        assert created(bench)[0].mounts[0].recursive_read_only is expected

    on_bench(test, features=features)


def env(**source) -> Container:
    return replace(make_container("a"), env=(EnvVar(name="V", value_from=EnvVarSource(**source)),))


@pytest.mark.parametrize(
    ("container", "message"),
    [
        pytest.param(
            env(config_map_key_ref=ConfigMapKeySelector(name="app", key="x", optional=True)),
            "couldn't get configMap default/app, no kubeClient defined",
            id="a config map without an API server",
        ),
        pytest.param(
            replace(make_container("a"), env_from=(EnvFromSource(secret_ref=SecretEnvSource(name="key")),)),
            "couldn't get secret default/key, no kubeClient defined",
            id="a secret without an API server",
        ),
        pytest.param(
            mounting(read_only=True, recursive_read_only="Enabled"),
            'failed to resolve recursive read-only mode: volume "data" requested recursive read-only mode, '
            "but it is not supported by the runtime",
            id="recursive read-only on an old runtime",
        ),
        pytest.param(mounting(sub_path_expr="$(NOBODY)"), "missing value for NOBODY", id="a part without a name"),
    ],
)
def test_values_that_cannot_be_resolved_fail_the_container(on_bench, container, message):
    async def test(bench) -> None:
        bench.volumes.paths = {"data": "/host/data"}
        outcome = await bench.sync(make_pod(container, "b"))
        assert outcome.failures == {"a": StartFailure("CreateContainerConfigError", message)}
        assert ("Failed", f"Error: {message}") in await bench.events()
        assert [config.metadata.name for config in created(bench)] == ["b"]

    on_bench(test)


def test_a_limit_that_is_missing_is_what_the_node_has(on_bench):
    async def test(bench) -> None:
        await bench.sync(make_pod(env(resource_field_ref=ResourceFieldSelector(resource="limits.cpu"))))
        assert [(pair.key, pair.value) for pair in created(bench)[0].envs] == [("V", b"4")]

    on_bench(test)


@pytest.mark.parametrize("path", ["status.podIP", "status.podIPs", "status.hostIP", "status.hostIPs"])
def test_a_pod_on_the_network_of_the_node_has_its_addresses_from_its_first_start_on(on_bench, path):
    async def test(bench) -> None:
        await bench.sync(pod_with(env(field_ref=ObjectFieldSelector(field_path=path)), host_network=True))
        assert [(pair.key, pair.value) for pair in created(bench)[0].envs] == [("V", b"192.168.0.1")]

    on_bench(test)
