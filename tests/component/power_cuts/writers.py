"""Programs that write each of the agent's files three times, to be run under strace: `writers.py NAME DIRECTORY`.

Each reports a write as done with `ack N` on its output, when the function has returned that does it for the agent.
"""

import asyncio
import os
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

from klet.aio.clock import SystemClock
from klet.aio.threads import Threads
from klet.api.pod import PodStatus
from klet.certs.bootstrap import write_kubeconfig
from klet.certs.store import CLIENT_PREFIX, PairStore
from klet.checkpoint import CheckpointFile
from klet.cli.node.record import NodeRecord, write_record
from klet.embedded.store import Key, Store
from klet.host.files import write_atomic
from klet.images.pulled.files import PullFileDirectories
from klet.images.pulled.format import new_record
from klet.images.pulled.store import PullRecordStore
from klet.journal.store import Journal
from klet.model.causes import Finding, FindingSubject
from klet.model.pods import PodUID
from klet.model.reasons import Reason
from klet.model.saved_state import SavedState
from klet.node.boots import BOOT_FORMAT, BootRecord
from klet.offline.snapshot import AcceptedPods, PodsFormat
from klet.offline.store import ensure_key
from klet.runtime.config.mapping_files import PodMappingFiles
from klet.status.checkpoint import SavedStateFormat
from klet.testing.clock import ManualClock

TIMES = 3
AT = datetime(2030, 1, 1, tzinfo=UTC)


def ack(number: int) -> None:
    os.write(1, f"ack {number}\n".encode())


def saved_state(number: int) -> SavedState:
    return SavedState(statuses={PodUID("uid-1"): PodStatus(phase="Running", message=str(number))})


def boot(number: int) -> BootRecord:
    return BootRecord(boot_id=f"boot-{number}", noticed_at=AT)


def accepted(number: int) -> AcceptedPods:
    return AcceptedPods(node_name=f"node-{number}", at=AT, pods=())


async def write_boot(directory: Path, threads: Threads) -> None:
    file = CheckpointFile(path=directory / "root/boot.json", form=BOOT_FORMAT, threads=threads, clock=SystemClock())
    for number in range(1, TIMES + 1):
        await file.save(boot(number))
        ack(number)


async def write_accepted_pods(directory: Path, threads: Threads) -> None:
    file = CheckpointFile(path=directory / "offline/pods.json", form=PodsFormat(), threads=threads, clock=SystemClock())
    for number in range(1, TIMES + 1):
        await file.save(accepted(number))
        ack(number)


async def write_saved_state(directory: Path, threads: Threads) -> None:
    """As SavedStateKeeper does: saved at once, and synced when it is quiet."""
    form = SavedStateFormat()
    file = CheckpointFile(path=directory / "memory.json", form=form, threads=threads, clock=SystemClock())
    for number in range(1, TIMES + 1):
        await file.save(saved_state(number), sync=False)
        await file.sync_to_disk()
        ack(number)


async def write_atomically(directory: Path, threads: Threads) -> None:
    for number in range(1, TIMES + 1):
        write_atomic(directory / "file", str(number).encode())
        ack(number)


async def write_kubeconfigs(directory: Path, threads: Threads) -> None:
    for number in range(1, TIMES + 1):
        write_kubeconfig(directory / "etc/kubeconfig", {"number": number})
        ack(number)


async def write_node_record(directory: Path, threads: Threads) -> None:
    for number in range(1, TIMES + 1):
        write_record(directory / "node.json", node_record(number))
        ack(number)


def node_record(number: int) -> NodeRecord:
    return NodeRecord(subnet="10.0.0.0/24", port=number, healthz_port=number + 1)


async def write_mappings(directory: Path, threads: Threads) -> None:
    (directory / "pods/uid-1").mkdir(parents=True)
    for path in (directory / "pods", directory):  # the agent makes it long before
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)
    files = PodMappingFiles(root=directory, threads=threads)
    for number in range(1, TIMES + 1):
        await files.write(PodUID("uid-1"), str(number).encode())
        ack(number)


async def write_key(directory: Path, threads: Threads) -> None:
    ensure_key(directory / "offline/key")
    ack(1)


async def write_certificates(directory: Path, threads: Threads) -> None:
    pairs = Path(os.environ["KLET_PAIRS"])
    clock = ManualClock()
    store = PairStore(prefix=CLIENT_PREFIX, directory=directory / "pki", configured=None, clock=clock)
    for number in range(1, TIMES + 1):
        store.update((pairs / f"{number}.crt").read_text(), (pairs / f"{number}.key").read_text())
        clock.advance(timedelta(seconds=1))
        ack(number)


async def write_store(directory: Path, threads: Threads) -> None:
    store = Store.open(directory / "store.db")
    for number in range(1, TIMES + 1):
        store.put(Key("pods", "default", f"pod-{number}"), {"metadata": {"name": f"pod-{number}"}})
        ack(number)


async def write_journal(directory: Path, threads: Threads) -> None:
    journal = Journal(path=directory / "journal.db", clock=SystemClock(), max_records=100)
    await journal.open()
    for _ in range(TIMES):
        journal.record(Finding(subject=FindingSubject(), decider="test", decision=Reason.AGENT_STARTED))
        await journal.flush()
    await journal.close()


async def write_pulled_images(directory: Path, threads: Threads) -> None:
    """A pull after the other, as the image manager does it: the intent is one step, the rest another."""
    store = PullRecordStore(files=PullFileDirectories(root=directory / "image_manager", threads=threads), most_cached=9)
    await store.open()
    for number in range(1, TIMES + 1):
        await store.add_intent(f"image:{number}")
        ack(2 * number - 1)
        await store.put(new_record(f"sha256:{number}", {}, now=AT))
        await store.drop_intent(f"image:{number}")
        ack(2 * number)


WRITERS = {
    "boot": write_boot,
    "accepted pods": write_accepted_pods,
    "saved state": write_saved_state,
    "atomic": write_atomically,
    "kubeconfig": write_kubeconfigs,
    "node record": write_node_record,
    "user namespaces": write_mappings,
    "key": write_key,
    "certificates": write_certificates,
    "store": write_store,
    "journal": write_journal,
    "pulled images": write_pulled_images,
}


async def main(name: str, directory: Path) -> None:
    threads = Threads(limit=1)
    await WRITERS[name](directory, threads)
    threads.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2])))
