"""The floor: the CRI calls that a pod cannot do without, with the concurrency that suits this containerd best.

A sandbox, a container and its start, asked for in klet's own words, so that the runtime has the same work: the image,
command, network, log directory, pod cgroup, seccomp profile of the sandbox, hosts file and termination log of klet's
pods. A bare floor leaves out what only a kubelet asks for.
"""

import asyncio
import statistics
import time
from collections.abc import Sequence

from bench.manifests import SCRIPT
from bench.node import remove_all
from bench.rows import Round
from klet.cri.client import CriClient
from klet.runtime.config.security import MASKED_PATHS, READONLY_PATHS
from klet.testing.containerd import PrivateContainerd
from klet.testing.cri_configs import build_container_config, build_sandbox_config
from klet.wire import cri_v1_pb2 as cri

CANDIDATES = (4, 6, 8, 12, 16)
SEARCHED = 30
"""How many pods the best concurrency is searched with."""
TRIES = 3
"""How often each is tried: a single try says more about the machine than about the concurrency."""
LEAST_GRACE = 2
"""Seconds that every kubelet gives a container to end."""


class Floor:
    """Starts pods with no kubelet."""

    def __init__(self, *, client: CriClient, containerd: PrivateContainerd, is_bare: bool = False) -> None:
        self._client = client
        self._containerd = containerd
        self._is_bare = is_bare
        self._rounds = 0
        self._files = containerd.directory.parent / "floor"

    async def start(self, count: int, *, at_once: int, volumes: int = 0) -> Round:
        """Start so many pods, each with so many directories mounted, so many at a time, and remove them again."""
        self._rounds += 1
        turn = asyncio.Semaphore(at_once)
        began = time.perf_counter()

        async def start(number: int) -> float:
            async with turn:
                await self.start_one(f"floor-{self._rounds}-{number}", SCRIPT, volumes=volumes)
                return time.perf_counter() - began

        times = await asyncio.gather(*(start(number) for number in range(count)))
        await remove_all(self._client)
        return Round(tuple(times))

    async def start_one(self, name: str, script: str, *, volumes: int = 0) -> str:
        """Run one pod; returns its container."""
        sandbox, container = self._configs(name, script)
        return await self._run(sandbox, container, volumes=volumes)

    async def pull_and_start_one(self, name: str, script: str, *, image: str, turn: asyncio.Semaphore) -> str:
        """Run one pod whose image has to be pulled; its sandbox waits for a turn, the pull does not."""
        sandbox, container = self._configs(name, script)
        container.image.image = image
        async with turn:
            made = await self._client.run_pod_sandbox(cri.RunPodSandboxRequest(config=sandbox))
        await self._client.pull_image(cri.PullImageRequest(image=container.image, sandbox_config=sandbox))
        return await self._start_in(made.pod_sandbox_id, sandbox, container)

    async def _run(self, sandbox: cri.PodSandboxConfig, container: cri.ContainerConfig, *, volumes: int) -> str:
        for number in range(volumes):
            directory = self._files / f"{sandbox.metadata.uid}-volumes" / str(number)
            directory.mkdir(parents=True)
            container.mounts.append(cri.Mount(container_path=f"/volumes/{number}", host_path=str(directory)))
        made = await self._client.run_pod_sandbox(cri.RunPodSandboxRequest(config=sandbox))
        return await self._start_in(made.pod_sandbox_id, sandbox, container)

    async def _start_in(self, made: str, sandbox: cri.PodSandboxConfig, container: cri.ContainerConfig) -> str:
        request = cri.CreateContainerRequest(pod_sandbox_id=made, config=container, sandbox_config=sandbox)
        created = await self._client.create_container(request)
        await self._client.start_container(cri.StartContainerRequest(container_id=created.container_id))
        return created.container_id

    def _configs(self, name: str, script: str) -> tuple[cri.PodSandboxConfig, cri.ContainerConfig]:
        parent = self._containerd.cgroup_parent
        sandbox = build_sandbox_config(
            name=name,
            log_directory=self._containerd.directory.parent / "logs" / f"default_{name}_{name}-uid",
            cgroup_parent=parent if self._is_bare else f"{parent}/kubepods/besteffort/pod{name}",
        )
        container = build_container_config(name="main", command=["sh", "-c", script])
        container.log_path = "main/0.log"
        if not self._is_bare:
            self._ask_as_klet(sandbox, container)
        return sandbox, container

    def _ask_as_klet(self, sandbox: cri.PodSandboxConfig, container: cri.ContainerConfig) -> None:
        """All that has a share in the runtime's work; labels and annotations have none."""
        sandbox.dns_config.servers.append("10.255.255.53")
        sandbox.linux.security_context.seccomp.profile_type = cri.SecurityProfile.RuntimeDefault
        sandbox.linux.resources.CopyFrom(cri.LinuxContainerResources(cpu_period=100_000, cpu_shares=2))
        pod = self._files / sandbox.metadata.uid
        pod.mkdir(parents=True)
        for file, path in (("etc-hosts", "/etc/hosts"), ("termination-log", "/dev/termination-log")):
            (pod / file).touch()
            container.mounts.append(cri.Mount(container_path=path, host_path=str(pod / file)))
        container.linux.resources.CopyFrom(
            cri.LinuxContainerResources(cpu_period=100_000, cpu_shares=2, oom_score_adj=1000)
        )
        security = container.linux.security_context
        security.masked_paths.extend(MASKED_PATHS)
        security.readonly_paths.extend(READONLY_PATHS)
        security.seccomp.profile_type = cri.SecurityProfile.Unconfined

    async def find_best(self, count: int, candidates: Sequence[int] = CANDIDATES) -> int:
        """The concurrency with which the last of so many pods runs soonest."""
        taken: dict[int, list[float]] = {at_once: [] for at_once in candidates}
        for _ in range(TRIES):
            for at_once, each in taken.items():
                each.append((await self.start(count, at_once=at_once)).last)
        return min(taken, key=lambda at_once: statistics.median(taken[at_once]))

    async def stop_one(self, script: str) -> float:
        """From the request that a pod's container end to the moment nothing of the pod is left."""
        self._rounds += 1
        container = await self.start_one(f"floor-{self._rounds}", script)
        began = time.perf_counter()
        await self._client.stop_container(cri.StopContainerRequest(container_id=container, timeout=LEAST_GRACE))
        await remove_all(self._client)
        return time.perf_counter() - began

    async def exit_delays(self, scripts: Sequence[str]) -> Round:
        """From the end of each container to the moment the runtime shows it, asked all the time."""
        self._rounds += 1
        names = [f"floor-{self._rounds}-{number}" for number in range(len(scripts))]
        made = await asyncio.gather(*map(self.start_one, names, scripts))
        delays = await asyncio.gather(*map(self._exit_delay, made))
        await remove_all(self._client)
        return Round(tuple(delays))

    async def _exit_delay(self, container: str) -> float:
        request = cri.ContainerStatusRequest(container_id=container)
        while True:
            status = (await self._client.container_status(request)).status
            if status.state == cri.CONTAINER_EXITED:
                return time.time() - status.finished_at / 1e9
            await asyncio.sleep(0.005)
