"""Mutates protobuf messages by their descriptors: sets, clears or repeats fields, gives them unusual values. Pure."""

from collections.abc import Sequence
from random import Random
from typing import Any, Final

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

_TEXTS: Final = (
    "",
    "a",
    "..",
    "/",
    "../../x",
    "a/b",
    "a\nb",
    "\x00",
    "é",
    "9" * 40,
    "0x1f",
    "-1",
    "true",
    "x" * 300,
    "1e9",
    "{}",
    "[",
    '{"exec":{}}',
    "127.0.0.1",
    "::1%lo",
    "http://[",
    "http://127.0.0.1:1/exec/a",
    "https://h:99999/",
    "2024-01-01T00:00:00Z",
    "u-1",
    "u-2",
    "sandbox-1",
    "container-1",
    "a_b_c",
    "io.kubernetes.pod.uid",
    "io.kubernetes.container.name",
    "io.kubernetes.container.restartCount",
    "io.kubernetes.container.ports",
    "io.kubernetes.container.preStopHandler",
    "io.kubernetes.pod.terminationGracePeriod",
    "RuntimeReady",
    "NetworkReady",
)
_SIGNED_32: Final = (0, 1, -1, 2, 1000, 2**31 - 1, -(2**31))
_SIGNED_64: Final = (*_SIGNED_32, 10**18, 2**63 - 1, -(2**63), 1_700_000_000_000_000_000)
_MAX_ITEMS: Final = 5
_UNSIGNED: Final = {FieldDescriptor.CPPTYPE_UINT32, FieldDescriptor.CPPTYPE_UINT64}


def change_message(random: Random, message: Message) -> None:
    """Change one field somewhere in the message."""
    fields: Sequence[Any] = message.DESCRIPTOR.fields
    if not fields:
        return
    present: Sequence[Any] = [field for field, _ in message.ListFields()]
    field: FieldDescriptor = random.choice(present if present and random.random() < 0.7 else fields)
    if random.random() < 0.1:
        message.ClearField(field.name)
    elif _is_map(field):
        _change_map(random, getattr(message, field.name), field)
    elif field.is_repeated:
        _change_list(random, getattr(message, field.name), field)
    elif field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
        inner = getattr(message, field.name)
        inner.SetInParent()
        change_message(random, inner)
    else:
        setattr(message, field.name, _odd_value(random, field))


def _change_map(random: Random, entries: Any, field: FieldDescriptor) -> None:
    assert field.message_type is not None
    kinds = field.message_type.fields_by_name
    key = random.choice(list(entries)) if entries and random.random() < 0.5 else _odd_value(random, kinds["key"])
    if kinds["value"].cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
        change_message(random, entries[key])
    else:
        entries[key] = _odd_value(random, kinds["value"])


def _change_list(random: Random, values: Any, field: FieldDescriptor) -> None:
    if field.cpp_type != FieldDescriptor.CPPTYPE_MESSAGE:
        values.append(_odd_value(random, field))
    elif not values or random.random() < 0.2:
        change_message(random, values.add())
    elif len(values) < _MAX_ITEMS and random.random() < 0.3:
        values.add().CopyFrom(random.choice(values))
    elif random.random() < 0.1:
        del values[random.randrange(len(values))]
    else:
        change_message(random, random.choice(values))


def _odd_value(random: Random, field: FieldDescriptor) -> Any:
    match field.cpp_type:
        case FieldDescriptor.CPPTYPE_STRING:
            text = random.choice(_TEXTS)
            return text.encode() if field.type == FieldDescriptor.TYPE_BYTES else text
        case FieldDescriptor.CPPTYPE_BOOL:
            return random.random() < 0.5
        case FieldDescriptor.CPPTYPE_ENUM:
            return random.choice((0, 1, 2, 3, 77))
        case FieldDescriptor.CPPTYPE_DOUBLE | FieldDescriptor.CPPTYPE_FLOAT:
            return random.choice((0.0, -1.5, float("inf"), float("nan")))
        case kind if kind in _UNSIGNED:
            return abs(random.choice(_SIGNED_64)) % 2**32
        case FieldDescriptor.CPPTYPE_INT32:
            return random.choice(_SIGNED_32)
        case _:
            return random.choice(_SIGNED_64)


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry
