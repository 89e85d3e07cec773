"""Rules for the environment of a container: env and envFrom."""

from collections.abc import Mapping

from klet.api.container import (
    ConfigMapKeySelector,
    EnvFromSource,
    EnvVar,
    EnvVarSource,
    FileKeySelector,
    SecretKeySelector,
)
from klet.api.validation import formats
from klet.api.validation.errors import FieldErrors, invalid, invalid_each, not_found, required
from klet.api.validation.fieldpath import FieldPath
from klet.api.validation.selectors import ENV_FIELDS, validate_field_selector, validate_resource_selector
from klet.api.volume import Volume


def validate_env(variables: tuple[EnvVar, ...], volumes: Mapping[str, Volume], path: FieldPath) -> FieldErrors:
    for position, variable in enumerate(variables):
        here = path.at(position)
        if not variable.name:
            yield required(here.child("name"))
        elif messages := formats.env_name(variable.name):
            yield from invalid_each(here.child("name"), variable.name, messages)
        if variable.value_from is not None:
            yield from _value_from(variable, variable.value_from, volumes, here.child("valueFrom"))


def validate_env_from(sources: tuple[EnvFromSource, ...], path: FieldPath) -> FieldErrors:
    for position, source in enumerate(sources):
        here = path.at(position)
        if source.prefix:
            yield from invalid_each(here.child("prefix"), source.prefix, formats.env_name(source.prefix))
        references = (("configMapRef", source.config_map_ref), ("secretRef", source.secret_ref))
        given = [(name, reference) for name, reference in references if reference is not None]
        for wire_name, reference in given:
            name_path = here.child(wire_name, "name")
            if not reference.name:
                yield required(name_path)
            else:
                stem = formats.generate_name_stem(reference.name)
                yield from invalid_each(name_path, reference.name, formats.dns_subdomain(stem))
        # The API server prints these two without the position in the list.
        if not given:
            yield invalid(path, "", "must specify one of: `configMapRef` or `secretRef`")
        elif len(given) > 1:
            yield invalid(path, "", "may not have more than one field specified at a time")


def _value_from(variable: EnvVar, source: EnvVarSource, volumes: Mapping[str, Volume], path: FieldPath) -> FieldErrors:
    if source.field_ref is not None:
        yield from validate_field_selector(source.field_ref, ENV_FIELDS, path.child("fieldRef"))
    if source.resource_field_ref is not None:
        here = path.child("resourceFieldRef")
        yield from validate_resource_selector(source.resource_field_ref, here, in_volume=False)
    if source.config_map_key_ref is not None:
        yield from _key_selector(source.config_map_key_ref, path.child("configMapKeyRef"))
    if source.secret_key_ref is not None:
        yield from _key_selector(source.secret_key_ref, path.child("secretKeyRef"))
    if source.file_key_ref is not None:
        yield from _file_key_selector(source.file_key_ref, volumes, path.child("fileKeyRef"))
    count = sum(
        reference is not None
        for reference in (
            source.field_ref,
            source.resource_field_ref,
            source.config_map_key_ref,
            source.secret_key_ref,
            source.file_key_ref,
        )
    )
    if count == 0:
        names = "`fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
        yield invalid(path, "", f"must specify one of: {names}")
    elif variable.value:
        yield invalid(path, "", "may not be specified when `value` is not empty")
    elif count > 1:
        yield invalid(path, "", "may not have more than one field specified at a time")


def _key_selector(selector: ConfigMapKeySelector | SecretKeySelector, path: FieldPath) -> FieldErrors:
    yield from invalid_each(path.child("name"), selector.name, formats.dns_subdomain(selector.name))
    if not selector.key:
        yield required(path.child("key"))
    else:
        yield from invalid_each(path.child("key"), selector.key, formats.config_key(selector.key))


def _file_key_selector(selector: FileKeySelector, volumes: Mapping[str, Volume], path: FieldPath) -> FieldErrors:
    if not selector.key:
        yield required(path.child("key"))
    if not selector.volume_name:
        yield required(path.child("volumeName"))
    elif (volume := volumes.get(selector.volume_name)) is None:
        yield not_found(path.child("volumeName"), selector.volume_name)
    elif volume.empty_dir is None:
        message = "referenced volume must be of type emptyDir"
        yield invalid(path.child("volumeName"), selector.volume_name, message)
    if not selector.path:
        yield required(path.child("path"))
    else:
        yield from invalid_each(path.child("path"), selector.path, formats.local_unreserved_path(selector.path))
