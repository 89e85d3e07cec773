"""Names in the directories that the agent looks through and clears: others may put anything there.

An input is a list of things to make, each `<kind><path>` behind a zero byte, below one directory of this target's own.
The agent's housekeeping then goes through them. Nothing outside of the roots may change, nothing may be removed that is
not named like a pod's, and what is said about strange names can be written. Everything happens below a directory in
/tmp that this target made; links lead to another part of that directory and nowhere else.
"""

import asyncio
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Final, ParamSpec, TypeAlias, TypeVar

from msgspec import Struct

from klet.aio.clock import SystemClock
from klet.aio.threads import Threads
from klet.api.codec import encode
from klet.api.config import ConfigMap
from klet.api.meta import ObjectMeta
from klet.api.pod import Pod
from klet.errors import KletError
from klet.logs.tail import read_end
from klet.model.pods import PodUID
from klet.offline.object_files import ObjectFiles
from klet.offline.object_formats import PlainFormat
from klet.runtime import labels
from klet.runtime.log_files import LogFiles
from klet.runtime.pod_files import PodFiles
from klet.sources.manifests import ManifestReader
from klet.testing.fuzz.mutators import choose_of
from klet.testing.fuzz.target import Flaw, FuzzTarget, Limits, Recipe, Run
from klet.volumes.directories import PodDirectories
from klet.volumes.names import Layout

P = ParamSpec("P")
T = TypeVar("T")

NAMES: Final = (
    b"pods",
    b"logs",
    b"links",
    b"manifests",
    b"kept",
    b"u-1",
    b"u-2",
    b"U.3",
    b"volumes",
    b"volume-subpaths",
    b"plugins",
    b"containers",
    b"etc-hosts",
    b"kubernetes.io~empty-dir",
    b"kubernetes.io~csi",
    b"~",
    b"mount",
    b"v",
    b"c",
    b"0.log",
    b"1.log.gz",
    b"999999999.log",
    b"9999999999.log",
    b"a.log",
    b"a.log.20240101-000000",
    b"ns_pod_u-1",
    b"ns_pod_u-2",
    b"a_b_c_d",
    b"__",
    b"ns_pod_",
    b"..a",
    b"...",
    b"-rf",
    b"*",
    b"a b",
    b"a\nb",
    b"\n",
    b"\xff",
    b"\xc3",
    b"\xed\xa0\x80",
    b"\xe2\x80\xae",
    b"u-1\n",
    b"u-1 ",
    b".u-1",
    b"\xd5\xb8-1",
    b"u-\xef\xbc\x91",
    b"x" * 255,
    b"x" * 253,
    b"%2e%2e",
    b"%N",
    b"u-%N",
    b"ns_pod_u-%N",
    b".removing-1",
    b"a.json",
    b"a.yaml",
    b"'",
    b'"',
    b"$(x)",
    b"\x1b[31m",
    b"\x7f",
)
ROOTS: Final = (b"pods", b"logs", b"links", b"manifests", b"kept")
KINDS: Final = (b"d", b"d", b"f", b"o", b"i")
"""A directory, a file, a link out of the roots, a link within."""
SEEDS: Final = (
    b"\0dpods/u-1/volumes/kubernetes.io~empty-dir/v\0fpods/u-1/etc-hosts\0dpods/u-2/containers/c\0flogs/ns_pod_u-1/c/0.log\0olinks/a.log",
    b"\0flogs/ns_pod_u-2/c/1.log.gz\0ilinks/b.log\0fmanifests/a.yaml\0fkept/a.json\0dpods/not a uid/x",
    b"\0opods/u-1\0ologs/ns_pod_u-1\0dpods/u-2/volumes/kubernetes.io~csi/v/mount\0dpods/u-2/volume-subpaths/v/c/0",
    b"\0opods/u-1/volumes\0opods/u-2/volumes/kubernetes.io~empty-dir\0opods/U.3/volume-subpaths/a\0ologs/ns_pod_u-1/c\0okept/a.json",
)
_COUNTER: Final = b"%N"
_MOST_PARTS: Final = 12
_LONGEST_NAME: Final = 255


class Roots(Struct, frozen=True):
    """The directories of one run."""

    base: Path

    @property
    def pods(self) -> Path:
        return self.base / "pods"

    @property
    def logs(self) -> Path:
        return self.base / "logs"

    @property
    def links(self) -> Path:
        return self.base / "links"

    @property
    def manifests(self) -> Path:
        return self.base / "manifests"

    @property
    def kept(self) -> Path:
        return self.base / "kept"


Sweep: TypeAlias = Callable[[Roots], None]


def directory_names(sweep: Sweep | None = None) -> FuzzTarget:
    """Return the target; another sweep than klet's shows that its faults are found."""
    housekeeping = sweep or run_housekeeping

    @contextmanager
    def opened() -> Iterator[Run]:
        with tempfile.TemporaryDirectory(prefix="klet-fuzz-", dir="/tmp") as made:
            yield lambda data: check_sweep(housekeeping, Path(made), data)

    return FuzzTarget(
        name="directory-names",
        summary="names of directories, files and links below the agent's roots",
        seeds=lambda: SEEDS,
        mutate=choose_of((_change_record, _change_record, _add_record, _change_name)),
        amplify=_amplify,
        opened=opened,
        # A manifest is read into room for the largest that there may be.
        limits=Limits(input_size=2 << 10, largest=4 << 10, seconds=20, memory=32 << 20),
    )


def check_sweep(sweep: Sweep, made: Path, data: bytes) -> object:
    """Make the things, let the housekeeping go through them, and look at what is left; raises Flaw."""
    work, outside = made / "work", made / "outside"
    roots = Roots(work)
    _prepare(work, outside)
    _make_all(work, outside, data)
    before, theirs = _picture(outside), _not_ours(roots)
    sweep(roots)
    if _picture(outside) != before:
        raise Flaw("changes something outside of its roots")
    if gone := theirs - _not_ours(roots):
        raise Flaw(f"removes what is not named like its own, in {min(gone).parent.name}")
    return tuple(bool(_names(work / os.fsdecode(root))) for root in ROOTS)


def run_housekeeping(roots: Roots) -> None:
    """Run everything in the agent that uses names it finds on disk."""
    threads = _Inline(limit=1)
    try:
        asyncio.run(_run_housekeeping(roots, threads))
    finally:
        threads.close()


async def _run_housekeeping(roots: Roots, threads: Threads) -> None:
    directories = PodDirectories(layout=Layout(roots.base), threads=threads)
    files = PodFiles(root=roots.base, logs=roots.logs, cluster_domain="", threads=threads)
    logs = LogFiles(logs=roots.logs, links=roots.links, threads=threads)
    for uid in await directories.pods():
        with _check_errors():
            await directories.find(uid)
        await directories.has_mounts(uid)
        with _check_errors():
            await directories.remove(uid)
    for directory in await logs.directories():
        await _look_at_logs(roots, files, logs, directory.uid, directory.name)
    for name in await logs.dangling_links():
        with _check_errors():
            await logs.unlink(name)
    with _check_errors():
        _check_readings(roots)
    await _keep_objects(roots, threads)
    for uid in await files.pods_on_disk():
        with _check_errors():
            await files.remove_pod(uid)
    for directory in await logs.directories():
        with _check_errors():
            await logs.remove_directory(directory)


async def _look_at_logs(roots: Roots, files: PodFiles, logs: LogFiles, uid: PodUID, name: str) -> None:
    namespace, pod_name, _ = name.split("_")
    pod = Pod(metadata=ObjectMeta(namespace=namespace, name=pod_name, uid=uid))
    if not 0 <= await files.next_restart_count(pod, "c") <= 10**9:
        raise Flaw("counts restarts that nobody can have counted")
    with _check_errors():
        await logs.remove_log(str(roots.logs / name / "c" / "0.log"))
    with _check_errors():
        read_end(roots.logs / name / "c" / "0.log", lines=10, limit=100)
    labels.log_directory_owner(name)


async def _keep_objects(roots: Roots, threads: Threads) -> None:
    objects = ObjectFiles(
        directory=roots.kept,
        form=lambda owner: PlainFormat(kind="ConfigMap", owner=owner, struct=ConfigMap),
        threads=threads,
        clock=SystemClock(),
    )
    with _check_errors():
        await objects.retain(lambda name: name.startswith("x"))


def _check_readings(roots: Roots) -> None:
    for name, reading in ManifestReader(node_name="n").list(roots.manifests).readings.items():
        _check_text(reading.error or "")
        if reading.pod is not None:
            raise Flaw(f"takes {name[:20]!a} for a pod")


@contextmanager
def _check_errors() -> Iterator[None]:
    """Check the text of klet's errors, which a person reads: it has to be possible to print it."""
    try:
        yield
    except KletError as error:
        _check_text(str(error))


def _check_text(text: str) -> None:
    if len(text) > 16 << 10:
        raise Flaw("says too much about a name")
    try:
        encode({"message": text})
    except UnicodeEncodeError as error:
        raise Flaw("says something about a name that cannot be written") from error


class _Inline(Threads):
    """Does the work at once, where its lines are seen."""

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return function(*args, **kwargs)


def _prepare(work: Path, outside: Path) -> None:
    """Make empty roots, and something outside of them. Removing a directory takes long, so the roots stay."""
    (outside / "below").mkdir(parents=True, exist_ok=True)
    (outside / "below" / "file").write_text("mine")
    for root in ROOTS:
        directory = work / os.fsdecode(root)
        directory.mkdir(parents=True, exist_ok=True)
        for entry in os.scandir(directory):
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path)
            else:
                Path(entry.path).unlink()


def _make_all(work: Path, outside: Path, data: bytes) -> None:
    for number, record in enumerate(data.split(b"\0")):
        kind, path = record[:1], record[1:].replace(_COUNTER, str(number).encode())
        parts = [part[:_LONGEST_NAME] for part in path.split(b"/") if part not in {b"", b".", b".."}][:_MOST_PARTS]
        if parts and parts[0] in ROOTS:
            _make(os.fsencode(work), parts, kind, os.fsencode(outside))


def _make(work: bytes, parts: Sequence[bytes], kind: bytes, outside: bytes) -> None:
    """Make one thing, if nothing is in its way; no link is followed on the way."""
    here = work
    for part in parts[:-1]:
        here = os.path.join(here, part)  # noqa: PTH118 - names that are no text
        if os.path.islink(here) or (os.path.lexists(here) and not os.path.isdir(here)):  # noqa: PTH114, PTH112
            return
        if not os.path.lexists(here):
            os.mkdir(here)  # noqa: PTH102
    there = os.path.join(here, parts[-1])  # noqa: PTH118
    if os.path.lexists(there):
        return
    match kind:
        case b"f":
            with open(there, "wb") as file:
                file.write(b"content")
        case b"o":
            os.symlink(os.path.join(outside, b"below"), there)  # noqa: PTH118, PTH211
        case b"i":
            os.symlink(b"nowhere", there)  # noqa: PTH211
        case _:
            os.mkdir(there)  # noqa: PTH102


def _picture(top: Path) -> dict[str, tuple[int, str]]:
    """Return everything below a directory: modes and contents."""
    found: dict[str, tuple[int, str]] = {}
    for base, directories, files in os.walk(top):
        for name in (*directories, *files):
            path = Path(base) / name
            content = path.read_bytes() if path.is_file() else b""
            found[str(path)] = (path.lstat().st_mode, hashlib.sha256(content).hexdigest())
    return found


def _not_ours(roots: Roots) -> frozenset[Path]:
    """Return what is in the roots and is not named like something of a pod."""
    pods = {roots.pods / name for name in _names(roots.pods) if not isinstance(name, PodUID)}
    logs = {roots.logs / name for name in _names(roots.logs) if labels.log_directory_owner(name) is None}
    links = {roots.links / name for name in _names(roots.links) if not name.endswith(".log")}
    kept = {roots.kept / name for name in _names(roots.kept) if not name.endswith(".json")}
    manifests = {roots.manifests / name for name in _names(roots.manifests)}
    return frozenset(pods | logs | links | kept | manifests)


def _names(directory: Path) -> list[str]:
    return [entry.name for entry in directory.iterdir()]


def _change_record(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    records = data.split(b"\0")
    at = random.randrange(len(records))
    match random.randrange(4):
        case 0:
            del records[at]
        case 1:
            records.append(random.choice(random.choice(others).split(b"\0")) if others else b"dpods/x")
        case 2:
            records[at] = random.choice(KINDS) + records[at][1:]
        case _:
            records[at] += b"/" + random.choice(NAMES)
    return b"\0".join(records)


def _add_record(random: Random, data: bytes, _others: Sequence[bytes]) -> bytes:
    path = [random.choice(ROOTS), *(random.choice(NAMES) for _ in range(random.randint(1, 4)))]
    return data + b"\0" + random.choice(KINDS) + b"/".join(path)


def _change_name(random: Random, data: bytes, _others: Sequence[bytes]) -> bytes:
    records = data.split(b"\0")
    at = random.randrange(len(records))
    parts = records[at].split(b"/")
    part = random.randrange(len(parts))
    name = parts[part]
    place = random.randint(0, len(name))
    changed = (
        random.choice(NAMES),
        name[:place] + bytes([random.randrange(1, 256)]) + name[place:],
        name[:place] + random.choice((b"_", b".", b"-", b"\n", b"~", b"\xc2\xa0")) + name[place:],
        name.swapcase(),
        name * 20,
    )
    parts[part] = random.choice(changed).replace(b"/", b"")
    records[at] = b"/".join(parts)
    return b"\0".join(records)


def _amplify(random: Random, data: bytes) -> Recipe:
    """Make many things of the same kind beside each other, or below each other."""
    records = [record for record in data.split(b"\0") if record]
    record = random.choice(records or [b"dpods/u-1"])
    before = b"\0".join((b"", *records))
    if random.random() < 0.7:
        return Recipe(before, b"\0" + record + b"-" + _COUNTER)
    return Recipe(before + b"\0" + record, b"/" + random.choice(NAMES)[:32])
