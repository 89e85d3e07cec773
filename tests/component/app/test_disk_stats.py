"""What the wired agent reports of its disks, in virtual time."""

from datetime import timedelta

from klet.aio.clock import LoopClock
from klet.host.disk_usage import DiskUsage
from klet.model.pods import PodUID
from klet.simulation import DrivenPodSource, SimulatedNode
from klet.simulation.fake_host import DISK, MemoryFiles
from klet.testing.builders import IMAGE, make_pod
from klet.testing.fake_runtime import FakeImage, FakeRuntime
from klet.testing.loop import EPOCH, run_virtual

UID = PodUID("uid-0")


def test_pods_images_and_the_node_have_disk_stats():
    files = MemoryFiles()
    runtime = FakeRuntime(start=EPOCH, images=(FakeImage(name=IMAGE),), sink=files.sink)
    node = SimulatedNode(clock=LoopClock(epoch=EPOCH), runtime=runtime, files=files)

    async def story():
        wanted = DrivenPodSource()
        async with node.run_agent(wanted) as running:
            disk = running.agent.disk
            wanted.add(make_pod("main", uid=UID, name="web", source="file"))
            while (s := running.agent.statuses.get(UID)) is None or s.phase != "Running":
                await node.clock.sleep(timedelta(seconds=0.01))
            (container,) = runtime.containers()
            node.disk.trees[f"/var/lib/kubelet/pods/{UID}/etc-hosts"] = DiskUsage(used=4096, inodes=1)
            node.disk.trees[container.log_path.rpartition("/")[0]] = DiskUsage(used=8192, inodes=2)
            found = (await disk.pods())[UID]
            own = found.containers[container.id]
            assert (own.rootfs.used_bytes, own.rootfs.capacity_bytes) == (4096, DISK.capacity)
            assert (own.logs.used_bytes, own.logs.inodes_used) == (8192, 2)
            # The writable layer, the log, the hosts file, and an empty directory of the pod's own logs.
            assert found.ephemeral_storage.used_bytes == 4096 + 8192 + 4096
            assert (await disk.node_fs()).used_bytes == DISK.used
            images = await disk.image_fs()
            assert images.image_fs == images.container_fs
            assert images.image_fs.capacity_bytes == DISK.capacity

    run_virtual(story())
