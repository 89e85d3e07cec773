"""Every message, enum and service of klet.wire against the protocols as data (tests/data/wire)."""

import json
from pathlib import Path

import pytest
from google.protobuf.descriptor import FieldDescriptor

from klet.wire import (
    containerd_content_pb2,
    containerd_events_pb2,
    containerd_events_service_pb2,
    containerd_images_pb2,
    containerd_types_pb2,
    cri_v1_pb2,
    csi_v1_pb2,
    deviceplugin_v1beta1_pb2,
    dra_health_v1alpha1_pb2,
    dra_v1_pb2,
    dra_v1beta1_pb2,
    health_v1_pb2,
    pluginregistration_v1_pb2,
    podresources_v1_pb2,
)

DATA = Path(__file__).parents[2] / "data" / "wire"
MODULES = {
    "cri_v1": [cri_v1_pb2],
    "csi_v1": [csi_v1_pb2],
    "deviceplugin_v1beta1": [deviceplugin_v1beta1_pb2],
    "dra_health_v1alpha1": [dra_health_v1alpha1_pb2],
    "dra_v1": [dra_v1_pb2],
    "dra_v1beta1": [dra_v1beta1_pb2],
    "health_v1": [health_v1_pb2],
    "pluginregistration_v1": [pluginregistration_v1_pb2],
    "podresources_v1": [podresources_v1_pb2],
    "containerd_content": [containerd_content_pb2],
    "containerd_events": [
        containerd_types_pb2,
        containerd_events_pb2,
        containerd_images_pb2,
        containerd_events_service_pb2,
    ],
}
SCALARS = {
    getattr(FieldDescriptor, f"TYPE_{name.upper()}"): name
    for name in ("bool", "bytes", "double", "int32", "int64", "string", "uint32", "uint64")
}


def stated(protocol):
    """{package: {"services", "enums", "messages"}} of one data file, its files of one package merged."""
    data = json.loads((DATA / f"{protocol}.json").read_text())
    packages = {}
    for file in data.get("files", [data]):
        package = packages.setdefault(file["package"], {"services": {}, "enums": {}, "messages": {}})
        for part, contents in package.items():
            contents.update(file[part])
    return packages


def built(module):
    file = module.DESCRIPTOR
    enums, messages = {}, {}
    for enum in file.enum_types_by_name.values():
        enums[enum.name] = values(enum)
    for message in file.message_types_by_name.values():
        collect(message, file.package, enums, messages)
    services = {
        service.name: {method.name: [type_in(method), type_out(method)] for method in service.methods}
        for service in file.services_by_name.values()
    }
    return {"services": services, "enums": enums, "messages": messages}


def collect(message, package, enums, messages):
    if message.GetOptions().map_entry:
        return
    messages[local(message, package)] = [described(field, package) for field in message.fields]
    for enum in message.enum_types:
        enums[local(enum, package)] = values(enum)
    for nested in message.nested_types:
        collect(nested, package, enums, messages)


def values(enum):
    return {value.name: value.number for value in enum.values}


def local(descriptor, package):
    return descriptor.full_name.removeprefix(f"{package}.")


def described(field, package):
    parts = [field.number, field.name, field_type(field, package)]
    oneof = field.containing_oneof
    if oneof is None:
        return parts
    if oneof.name == f"_{field.name}":
        parts[2] = f"optional {parts[2]}"
        return parts
    return [*parts, f"oneof {oneof.name}"]


def field_type(field, package):
    if field.message_type and field.message_type.GetOptions().map_entry:
        key, value = (field.message_type.fields_by_name[name] for name in ("key", "value"))
        return f"map<{field_type(key, package)}, {field_type(value, package)}>"
    kind = field.message_type or field.enum_type
    name = local(kind, package) if kind else SCALARS[field.type]
    return f"repeated {name}" if field.is_repeated else name


def type_in(method):
    return ("stream " if method.client_streaming else "") + method.input_type.full_name


def type_out(method):
    return ("stream " if method.server_streaming else "") + method.output_type.full_name


def in_number_order(part):
    messages = {name: sorted(fields) for name, fields in part["messages"].items()}
    return {**part, "messages": messages}


@pytest.mark.parametrize("protocol", MODULES, ids=lambda name: f"{name} is exactly the stated protocol")
def test_protocol(protocol):
    modules = {module.DESCRIPTOR.package: in_number_order(built(module)) for module in MODULES[protocol]}
    assert modules == {package: in_number_order(part) for package, part in stated(protocol).items()}


def test_every_data_file_has_modules():
    assert {path.stem for path in DATA.glob("*.json")} == MODULES.keys()


def test_file_names_are_our_own():
    names = [module.DESCRIPTOR.name for modules in MODULES.values() for module in modules]
    assert all(name.startswith("klet/wire/") for name in names)
