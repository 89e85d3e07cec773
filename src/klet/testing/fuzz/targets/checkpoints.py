"""State files: klet's own, and those of the Go kubelet that klet takes over.

An input's first line says which file, and whether its content is to be sealed: with a right checksum around it the
content itself is read, which a fuzzer would not reach by chance. What is read must survive being written and read
again.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, Protocol, TypeAlias

import msgspec
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from msgspec import Struct

from klet.api.config import ConfigMap, Secret
from klet.checkpoint import CheckpointDamaged, CheckpointError
from klet.checkpoint.upstream import (
    CpuManagerFormat,
    CpuManagerState,
    DeviceManagerFormat,
    DeviceManagerState,
    DraManagerFormat,
    MemoryManagerFormat,
    MemoryManagerState,
    PodStateFormat,
)
from klet.offline.object_formats import PlainFormat, SealedFormat
from klet.offline.sealing import NONCE_SIZE, load_sealer
from klet.offline.snapshot import KeptClusterFormat, PodsFormat
from klet.status.checkpoint import SavedStateFormat
from klet.testing.fuzz.mutators import (
    amplify_behind_first_line,
    amplify_bytes,
    behind_first_line,
    change_bytes,
    change_json,
    choose_of,
    put_words,
)
from klet.testing.fuzz.target import Flaw, FuzzTarget, Run

Seal: TypeAlias = Callable[[bytes], bytes]


class Form(Protocol):
    """Any format of a checkpoint."""

    def encode(self, value: object, /) -> bytes: ...

    def decode(self, data: bytes, /) -> object: ...


class File(Struct, frozen=True):
    """One kind of file: its format, and how content becomes a file of it that passes the checksum."""

    form: Callable[[], object]
    seal: Seal
    example: object
    is_exact: bool = True
    """Whether what is read is written as it is. Objects of the API lose fractions of seconds, as upstream has it."""


_META: Final = {"name": "a", "namespace": "default", "uid": "u-1", "resourceVersion": "1"}
_POD: Final = {
    "metadata": _META,
    "spec": {"containers": [{"name": "c", "image": "i", "resources": {"limits": {"cpu": "1"}}}]},
    "status": {
        "phase": "Running",
        "startTime": "2024-01-01T00:00:00Z",
        "containerStatuses": [{"name": "c", "image": "i", "imageID": "x", "ready": True, "restartCount": 1}],
    },
}
_AT: Final = "2024-01-01T00:00:00Z"
_DELAY: Final = {"uid": "u-1", "image": "i", "delay": "PT10S", "counted_at": _AT}
_SEALED_KEY: Final = bytes(32)


def _sealed_by(kind: str) -> Seal:
    """Return a function that puts klet's envelope around a payload, without klet's own code."""

    def seal(payload: bytes) -> bytes:
        checksum = hashlib.sha256(f"{kind}\n1\n".encode() + payload).hexdigest()
        return b'{"kind":"%b","version":1,"checksum":"%b","payload":%b}' % (kind.encode(), checksum.encode(), payload)

    return seal


def _upstream_by(form: Callable[[], object], kind: type[Struct]) -> Seal:
    def seal(content: bytes) -> bytes:
        try:
            value = msgspec.convert(msgspec.json.decode(content), kind, str_keys=True)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, TypeError):
            return content
        return _form(form).encode(value)

    return seal


def _text_by(form: Callable[[], object]) -> Seal:
    return lambda content: _form(form).encode(content.decode("utf-8", "replace"))


def _form(make: Callable[[], object]) -> Form:
    form: Form = make()  # type: ignore[assignment]  # each encodes what it decodes, which is all that is done here
    return form


def _plain() -> object:
    return PlainFormat(kind="ConfigMap", owner="default/a", struct=ConfigMap)


class _Sealer:
    """Seals the same in the same way each time: one seed has to make one sequence of inputs."""

    def seal(self, data: bytes, *, owner: bytes) -> bytes:
        nonce = hashlib.sha256(data).digest()[:NONCE_SIZE]
        return nonce + AESGCM(_SEALED_KEY).encrypt(nonce, data, owner)

    def open(self, sealed: bytes, *, owner: bytes) -> bytes:
        return load_sealer(_SEALED_KEY).open(sealed, owner=owner)


def _secret() -> object:
    return SealedFormat(kind="Secret", owner="default/a", struct=Secret, sealer=_Sealer())


def _seal_secret(content: bytes) -> bytes:
    """Return the content of the encrypted part."""
    sealed = _Sealer().seal(content, owner=b"Secret\ndefault/a")
    return _sealed_by("Secret")(msgspec.json.encode({"owner": "default/a", "sealed": sealed}))


FILES: Final[Mapping[str, File]] = {
    "AgentMemory": File(
        SavedStateFormat,
        _sealed_by("AgentMemory"),
        {
            "statuses": {"u-1": _POD["status"]},
            "delays": [{**_DELAY, "container": "c", "resources": "r"}],
            "pulls": [{**_DELAY, "reason": "r", "message": "m"}],
        },
        is_exact=False,
    ),
    "AcceptedPods": File(
        PodsFormat, _sealed_by("AcceptedPods"), {"nodeName": "n", "at": _AT, "pods": [_POD]}, is_exact=False
    ),
    "OfflineSurroundings": File(
        KeptClusterFormat,
        _sealed_by("OfflineSurroundings"),
        {
            "nodeName": "n",
            "at": _AT,
            "nodes": [{"metadata": {"name": "n"}, "status": {"capacity": {"cpu": "1"}}}],
            "services": [{"metadata": _META, "spec": {"ports": [{"port": 80}], "clusterIP": "10.0.0.1"}}],
            "runtimeClasses": [{"metadata": {"name": "r"}, "handler": "h"}],
        },
        is_exact=False,
    ),
    "ConfigMap": File(
        _plain,
        _sealed_by("ConfigMap"),
        {"owner": "default/a", "value": {"metadata": _META, "data": {"a": "b"}}},
        is_exact=False,
    ),
    "Secret": File(_secret, _seal_secret, {"metadata": _META, "data": {"a": "YQ=="}, "type": "Opaque"}, is_exact=False),
    "cpu_manager_state": File(
        CpuManagerFormat,
        _upstream_by(CpuManagerFormat, CpuManagerState),
        {"policyName": "static", "defaultCpuSet": "0-3", "entries": {"u-1": {"c": "1"}}, "checksum": 1},
    ),
    "memory_manager_state": File(
        MemoryManagerFormat,
        _upstream_by(MemoryManagerFormat, MemoryManagerState),
        {
            "policyName": "Static",
            "machineState": {
                "0": {
                    "numberOfAssignments": 1,
                    "memoryMap": {
                        "memory": {"total": 1, "systemReserved": 0, "allocatable": 1, "reserved": 0, "free": 1}
                    },
                    "cells": [0],
                }
            },
            "entries": {"u-1": {"c": [{"numaAffinity": [0], "type": "memory", "size": 1}]}},
            "checksum": 1,
        },
    ),
    "kubelet_internal_checkpoint": File(
        DeviceManagerFormat,
        _upstream_by(DeviceManagerFormat, DeviceManagerState),
        {
            "PodDeviceEntries": [
                {
                    "PodUID": "u",
                    "ContainerName": "c",
                    "ResourceName": "r",
                    "DeviceIDs": {"0": ["d"]},
                    "AllocResp": "YQ==",
                }
            ],
            "RegisteredDevices": {"r": ["d"]},
        },
    ),
    "allocated_pods_state": File(PodStateFormat, _text_by(PodStateFormat), {"entries": {"u-1": {}}}),
    "dra_manager_state": File(DraManagerFormat, _text_by(DraManagerFormat), {"entries": []}),
}
KEYS: Final = (
    "kind",
    "version",
    "checksum",
    "payload",
    "statuses",
    "delays",
    "pulls",
    "uid",
    "pods",
    "nodeName",
    "at",
    "owner",
    "value",
    "sealed",
    "data",
    "Data",
    "checkSum",
    "entries",
    "policyName",
    "machineState",
    "DeviceIDs",
    "0",
    "-1",
    "99999999999999999999",
    "a",
    "",
)
WORDS: Final = (
    b'"\\ud800"',
    b"\xff",
    b"null",
    b"{}",
    b"[" * 2000,
    b'{"a":' * 2000,
    b"1e999",
    b"-0",
    b"P99999999999D",
    b"PT1e9S",
    b'"\\u0000"',
)


def checkpoints(files: Mapping[str, File] | None = None) -> FuzzTarget:
    """Return the target; other formats than klet's show that their faults are found."""
    known = FILES if files is None else files

    @contextmanager
    def opened() -> Iterator[Run]:
        yield lambda data: check_checkpoint(known, data)

    return FuzzTarget(
        name="checkpoints",
        summary="state files of klet and of the Go kubelet, with checksums that fit and without",
        seeds=lambda: _seeds(known),
        mutate=choose_of(
            tuple(
                behind_first_line(step)
                for step in (change_json(KEYS), change_json(KEYS), change_json(KEYS), change_bytes, put_words(WORDS))
            )
        ),
        amplify=amplify_behind_first_line(amplify_bytes()),
        opened=opened,
    )


def check_checkpoint(files: Mapping[str, File], data: bytes) -> object:
    """Read a file; raises CheckpointError or Flaw."""
    first, _, content = data.partition(b"\n")
    name, _, how = first.decode("latin-1").partition(" ")
    file = files.get(name)
    if file is None:
        return "no such file"
    text = file.seal(content) if how == "sealed" else content
    value = _form(file.form).decode(text)
    try:
        again = _write_and_read(file, value)
        settled = again if file.is_exact else _write_and_read(file, again)
    except CheckpointDamaged as error:
        if "migrated" in str(error):
            return name, "first version"
        raise Flaw(f"cannot read again what it wrote: {name}") from error
    except CheckpointError as error:
        raise Flaw(f"cannot read again what it wrote: {name}") from error
    if _without_checksum(settled) != _without_checksum(value if file.is_exact else again):
        raise Flaw(f"reads another value than it wrote: {name}")
    return name, how


def _write_and_read(file: File, value: object) -> object:
    return _form(file.form).decode(_form(file.form).encode(value))


def _without_checksum(value: object) -> object:
    """Drop the checksum that a state of the Go kubelet came with, which may be the 0 of older kubelets."""
    if isinstance(value, CpuManagerState | MemoryManagerState):
        return msgspec.structs.replace(value, checksum=0)
    return value


def _seeds(files: Mapping[str, File]) -> list[bytes]:
    seeds: list[bytes] = []
    for name, file in files.items():
        content = json.dumps(file.example).encode()
        seeds += [f"{name} sealed\n".encode() + content, f"{name} raw\n".encode() + file.seal(content)]
    return seeds
