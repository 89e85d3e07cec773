"""The calls about the runtime itself, and stats."""

import json

from klet.cri.errors import Code
from klet.testing.fake_runtime.calls import HandlerTable, RpcFailure
from klet.testing.fake_runtime.image_calls import MOUNTPOINT
from klet.testing.fake_runtime.lookup import find, select
from klet.testing.fake_runtime.processes import running_time
from klet.testing.fake_runtime.timeline import nanoseconds
from klet.testing.fake_runtime.world import FakeContainer, Sandbox, World
from klet.wire import cri_v1_pb2 as pb

# What a pause process uses.
_PAUSE_CPU = 10_000_000
_PAUSE_MEMORY = 512 << 10


class NodeCalls:
    """Version, status, configuration, stats."""

    def __init__(self, world: World) -> None:
        self._world = world

    def handlers(self) -> HandlerTable:
        return {
            "Version": self._version,
            "Status": self._status,
            "RuntimeConfig": self._runtime_config,
            "UpdateRuntimeConfig": self._update_runtime_config,
            "ContainerStats": self._container_stats,
            "ListContainerStats": self._list_container_stats,
            "PodSandboxStats": self._sandbox_stats,
            "ListPodSandboxStats": self._list_sandbox_stats,
            "ListMetricDescriptors": self._list_metric_descriptors,
            "ListPodSandboxMetrics": self._list_sandbox_metrics,
        }

    def _version(self, _request: pb.VersionRequest) -> pb.VersionResponse:
        return pb.VersionResponse(
            version="0.1.0", runtime_name="containerd", runtime_version="1.6.20~fake", runtime_api_version="v1"
        )

    def _status(self, request: pb.StatusRequest) -> pb.StatusResponse:
        features = self._world.features
        answer = pb.StatusResponse(status=pb.RuntimeStatus(conditions=self._world.conditions.values()))
        if request.verbose:
            configuration = {"containerd": {"snapshotter": "overlayfs"}, "sandboxImage": features.sandbox_image}
            answer.info["config"] = json.dumps(configuration)
        if features.user_namespaces or features.recursive_read_only_mounts:
            # Runtimes that can do neither do not list their handlers at all.
            can = pb.RuntimeHandlerFeatures(
                user_namespaces=features.user_namespaces,
                recursive_read_only_mounts=features.recursive_read_only_mounts,
            )
            answer.runtime_handlers.extend(
                pb.RuntimeHandler(name=name, features=can) for name in features.runtime_handlers
            )
        if features.supplemental_groups_policy:
            answer.features.supplemental_groups_policy = True
        return answer

    def _runtime_config(self, _request: pb.RuntimeConfigRequest) -> pb.RuntimeConfigResponse:
        driver = self._world.features.cgroup_driver
        return pb.RuntimeConfigResponse(linux=pb.LinuxRuntimeConfiguration(cgroup_driver=driver))

    def _update_runtime_config(self, _request: pb.UpdateRuntimeConfigRequest) -> pb.UpdateRuntimeConfigResponse:
        return pb.UpdateRuntimeConfigResponse()

    def _container_stats(self, request: pb.ContainerStatsRequest) -> pb.ContainerStatsResponse:
        container = find(self._world.containers, request.container_id, "failed to find container")
        if not container.is_running:
            raise RpcFailure(Code.UNKNOWN, "unexpected metrics response: []")
        return pb.ContainerStatsResponse(stats=self._stats_of(container))

    def _list_container_stats(self, request: pb.ListContainerStatsRequest) -> pb.ListContainerStatsResponse:
        wanted = request.filter
        stats = [
            self._stats_of(container)
            for container in select(self._world.containers.values(), wanted.label_selector)
            if container.id.startswith(wanted.id) and container.sandbox.id.startswith(wanted.pod_sandbox_id)
        ]
        return pb.ListContainerStatsResponse(stats=stats)

    def _sandbox_stats(self, request: pb.PodSandboxStatsRequest) -> pb.PodSandboxStatsResponse:
        what = f"an error occurred when trying to find sandbox {request.pod_sandbox_id}"
        sandbox = find(self._world.sandboxes, request.pod_sandbox_id, what)
        _check_ready(sandbox, f"failed to decode pod sandbox metrics {sandbox.id}")
        return pb.PodSandboxStatsResponse(stats=self._stats_of_sandbox(sandbox))

    def _list_sandbox_stats(self, request: pb.ListPodSandboxStatsRequest) -> pb.ListPodSandboxStatsResponse:
        """List the stats; one sandbox that is not ready fails the whole list, as with containerd 1.6."""
        wanted = request.filter
        sandboxes = [
            sandbox
            for sandbox in select(self._world.sandboxes.values(), wanted.label_selector)
            if sandbox.id.startswith(wanted.id)
        ]
        for sandbox in sandboxes:
            _check_ready(sandbox, f'failed to decode sandbox container metrics for sandbox "{sandbox.id}"')
        return pb.ListPodSandboxStatsResponse(stats=[self._stats_of_sandbox(sandbox) for sandbox in sandboxes])

    def _list_metric_descriptors(self, _request: pb.ListMetricDescriptorsRequest) -> pb.ListMetricDescriptorsResponse:
        return pb.ListMetricDescriptorsResponse()

    def _list_sandbox_metrics(self, _request: pb.ListPodSandboxMetricsRequest) -> pb.ListPodSandboxMetricsResponse:
        return pb.ListPodSandboxMetricsResponse()

    def _stats_of(self, container: FakeContainer) -> pb.ContainerStats:
        now = nanoseconds(self._world.timeline.now)
        stats = pb.ContainerStats(
            attributes=pb.ContainerAttributes(
                id=container.id,
                metadata=container.config.metadata,
                labels=container.config.labels,
                annotations=container.config.annotations,
            ),
        )
        if container.is_running:
            stats.cpu.CopyFrom(_cpu(now, self._cpu_used(container), container.life.cpu_cores))
            stats.memory.CopyFrom(_memory(now, container.life.memory_bytes))
        stats.writable_layer.timestamp = now
        stats.writable_layer.fs_id.mountpoint = MOUNTPOINT
        stats.writable_layer.used_bytes.value = 4096
        stats.writable_layer.inodes_used.value = 1
        return stats

    def _stats_of_sandbox(self, sandbox: Sandbox) -> pb.PodSandboxStats:
        now = nanoseconds(self._world.timeline.now)
        running = [container for container in sandbox.containers.values() if container.is_running]
        used = _PAUSE_CPU + sum(self._cpu_used(container) for container in running)
        memory = _PAUSE_MEMORY + sum(container.life.memory_bytes for container in running)
        linux = pb.LinuxPodSandboxStats(
            cpu=_cpu(now, used, sum(container.life.cpu_cores for container in running)),
            memory=_memory(now, memory),
            process=pb.ProcessUsage(timestamp=now, process_count=pb.UInt64Value(value=1 + len(running))),
            containers=[self._stats_of(container) for container in sandbox.containers.values()],
        )
        if sandbox.ips:
            zero = pb.UInt64Value(value=0)
            eth0 = pb.NetworkInterfaceUsage(name="eth0", rx_bytes=zero, rx_errors=zero, tx_bytes=zero, tx_errors=zero)
            linux.network.CopyFrom(pb.NetworkUsage(default_interface=eth0))
        attributes = pb.PodSandboxAttributes(
            id=sandbox.id,
            metadata=sandbox.config.metadata,
            labels=sandbox.config.labels,
            annotations=sandbox.config.annotations,
        )
        return pb.PodSandboxStats(attributes=attributes, linux=linux)

    def _cpu_used(self, container: FakeContainer) -> int:
        return 1_000_000 + int(running_time(container, self._world) * container.life.cpu_cores)


def _check_ready(sandbox: Sandbox, what: str) -> None:
    if not sandbox.is_ready:
        why = f'failed to get pod sandbox stats since sandbox container "{sandbox.id}" is not in ready state'
        raise RpcFailure(Code.UNKNOWN, f"{what}: {why}")


def _cpu(now: int, used: int, cores: float) -> pb.CpuUsage:
    return pb.CpuUsage(
        timestamp=now,
        usage_core_nano_seconds=pb.UInt64Value(value=used),
        usage_nano_cores=pb.UInt64Value(value=int(cores * 1_000_000_000)),
    )


def _memory(now: int, used: int) -> pb.MemoryUsage:
    return pb.MemoryUsage(
        timestamp=now,
        working_set_bytes=pb.UInt64Value(value=used),
        available_bytes=pb.UInt64Value(value=0),
        usage_bytes=pb.UInt64Value(value=used),
        rss_bytes=pb.UInt64Value(value=used // 2),
        page_faults=pb.UInt64Value(value=100),
        major_page_faults=pb.UInt64Value(value=0),
    )
