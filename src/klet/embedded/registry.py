"""What the API server does with objects: create, read, replace, patch and delete them by the rules of their kind.

Objects are plain data here, so that fields which klet does not model survive. Kinds with rules of their own have a
strategy; the others are stored as they come.
"""

import secrets
import uuid
from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct

from klet.aio.clock import Clock
from klet.api.codec import DecodeError, convert
from klet.api.kinds import KINDS, Kind
from klet.api.meta import DeleteOptions, ObjectMeta
from klet.api.times import Time
from klet.api.validation.fieldpath import FieldPath
from klet.api.validation.metadata import validate_object_meta
from klet.embedded import refusals
from klet.embedded.deletion import AlreadyDeleting, Mark, Remove, decide_deletion, decide_pod_deletion, marked
from klet.embedded.patching import Patch
from klet.embedded.refusals import resource_of
from klet.embedded.store import Json, Key, Store
from klet.embedded.strategies import ObjectUpdate, RestStrategy, name_format_for, strategy_of

NAME_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"
_STEM: Final = 58
_TRIES: Final = 8
_SERVER_FIELDS: Final = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink")
_KEPT_FIELDS: Final = ("uid", "creationTimestamp", "generation")
_DELETION_FIELDS: Final = ("deletionTimestamp", "deletionGracePeriodSeconds")


class ObjectTarget(Struct, frozen=True):
    """One object, or a part of it, that a request names."""

    kind: Kind
    namespace: str
    name: str
    subresource: str = ""

    @property
    def key(self) -> Key:
        return Key(resource_of(self.kind), self.namespace, self.name)


class ObjectRegistry:
    """All objects and the rules for writing them."""

    def __init__(self, *, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    def get(self, target: ObjectTarget) -> Json:
        found = self._store.get(target.key)
        if found is None:
            raise refusals.not_found(target.kind, target.name)
        return found

    def create(self, kind: Kind, namespace: str, obj: Mapping[str, Any]) -> Json:
        """Store a new object; raises RequestRefused."""
        metadata = {name: value for name, value in obj.get("metadata", {}).items() if name not in _SERVER_FIELDS}
        if metadata.get("resourceVersion"):
            raise refusals.bad_request("resourceVersion should not be set on objects to be created")
        metadata |= self._identity()
        if kind.namespaced:
            if metadata.get("namespace", namespace) != namespace:
                message = "the namespace of the provided object does not match the namespace sent on the request"
                raise refusals.bad_request(message)
            metadata["namespace"] = namespace
            self._check_namespace(namespace)
        if not metadata.get("name") and (stem := metadata.get("generateName")):
            metadata["name"] = self._generate(kind, namespace, stem)
        made = strategy_of(kind).create({**_typed(obj, kind), "metadata": metadata})
        self._check(kind, made)
        key = Key(resource_of(kind), namespace if kind.namespaced else "", made["metadata"]["name"])
        if (there := self._store.get(key)) is not None:
            leaving = "deletionTimestamp" in there["metadata"]
            raise refusals.already_exists(kind, key.name, leaving=leaving)
        return self._store.put(key, made)

    def replace(self, target: ObjectTarget, obj: Mapping[str, Any]) -> Json:
        """Replace an object (PUT)."""
        name = obj.get("metadata", {}).get("name", target.name)
        if name != target.name:
            message = f"the name of the object ({name}) does not match the name on the URL ({target.name})"
            raise refusals.bad_request(message)
        return self._write(target, self.get(target), obj)

    def patch(self, target: ObjectTarget, patch: Patch) -> Json:
        old = self.get(target)
        return self._write(target, old, patch.apply(old, target.kind))

    def delete(self, target: ObjectTarget, options: DeleteOptions) -> Json:
        """Delete at once, or begin to; returns the object as it is or was."""
        found = self.get(target)
        _check_preconditions(target, found, options)
        now = self._clock.now()
        if target.kind.name == "Pod":
            verdict = decide_pod_deletion(found, options.grace_period_seconds, now=now)
        else:
            verdict = decide_deletion(found, now=now)
        match verdict:
            case AlreadyDeleting():
                return found
            case Mark():
                return self._store.put(target.key, marked(found, verdict))
            case Remove():
                return self._remove(target.key, found)

    def _remove(self, key: Key, found: Json) -> Json:
        gone = self._store.remove(key)
        return found if gone is None else gone

    def _write(self, target: ObjectTarget, old: Json, new: Mapping[str, Any]) -> Json:
        version = new.get("metadata", {}).get("resourceVersion")
        if version and version != old["metadata"]["resourceVersion"]:
            raise refusals.modified(target.kind, target.name)
        uid = new.get("metadata", {}).get("uid")
        if uid and uid != old["metadata"]["uid"]:
            raise refusals.conflict(target.kind, target.name, _storage_error(target, uid, old["metadata"]["uid"]))
        strategy = strategy_of(target.kind)
        merged = _merge_parts(old, _typed(new, target.kind), target.subresource, strategy)
        written = strategy.update(ObjectUpdate(merged, old, target.subresource))
        self._check(target.kind, written)
        if _same(written, old):
            return old
        metadata = written["metadata"]
        if "deletionTimestamp" in metadata and not metadata.get("finalizers") and _may_go(target.kind, metadata):
            self._store.put(target.key, written)
            return self._remove(target.key, written)
        return self._store.put(target.key, written)

    def _identity(self) -> Json:
        return {"uid": str(uuid.uuid4()), "creationTimestamp": Time.of(self._clock.now()).wire()}

    def _generate(self, kind: Kind, namespace: str, stem: str) -> str:
        for _ in range(_TRIES):
            name = stem[:_STEM] + "".join(secrets.choice(NAME_ALPHABET) for _ in range(5))
            if self._store.get(Key(resource_of(kind), namespace if kind.namespaced else "", name)) is None:
                return name
        raise refusals.already_exists(kind, stem)

    def _check_namespace(self, namespace: str) -> None:
        if self._store.get(Key("namespaces", "", namespace)) is None:
            raise refusals.not_found(_NAMESPACE, namespace)

    def _check(self, kind: Kind, obj: Json) -> None:
        """Check that the object fits its type, and its metadata the rules of all objects."""
        try:
            convert(kind.struct, obj)
            metadata = convert(ObjectMeta, obj["metadata"])
        except DecodeError as error:
            message = f'{kind.name} in version "{kind.version}" cannot be handled as a {kind.name}: {error}'
            raise refusals.bad_request(message) from error
        found = validate_object_meta(
            metadata, FieldPath("metadata"), name_format=name_format_for(kind, obj), namespaced=kind.namespaced
        )
        if errors := tuple(found):
            raise refusals.invalid(kind, metadata.name, errors)


_NAMESPACE: Final = next(kind for kind in KINDS if kind.name == "Namespace")


def _typed(obj: Mapping[str, Any], kind: Kind) -> Json:
    return {**obj, "apiVersion": kind.api_version, "kind": kind.name}


def _merge_parts(old: Json, new: Json, subresource: str, strategy: RestStrategy) -> Json:
    """Return what a write may change: everything but the status, or only that; never what the server wrote itself."""
    metadata = {**new.get("metadata", {}), **{name: old["metadata"][name] for name in _kept(old)}}
    metadata["resourceVersion"] = old["metadata"]["resourceVersion"]
    if not strategy.has_status:
        return {**new, "metadata": metadata}
    if subresource in strategy.status_parts:
        status = {"status": new["status"]} if "status" in new else {}
        rest = {name: value for name, value in old.items() if name != "status"}
        open_metadata = {name: metadata.get(name) for name in strategy.metadata_with_status if name in metadata}
        return {**rest, "metadata": {**old["metadata"], **open_metadata}, **status}
    status = {"status": old["status"]} if "status" in old else {}
    return {**{name: value for name, value in new.items() if name != "status"}, "metadata": metadata, **status}


def _kept(old: Json) -> tuple[str, ...]:
    names = (*_KEPT_FIELDS, *_DELETION_FIELDS, "name", "namespace")
    return tuple(name for name in names if name in old["metadata"])


def _same(new: Mapping[str, Any], old: Mapping[str, Any]) -> bool:
    return dict(new) == dict(old)


def _may_go(kind: Kind, metadata: Mapping[str, Any]) -> bool:
    """Return whether an object whose last finalizer is gone can be removed: a pod also has its grace period."""
    return kind.name != "Pod" or not metadata.get("deletionGracePeriodSeconds")


def _check_preconditions(target: ObjectTarget, found: Json, options: DeleteOptions) -> None:
    wanted, metadata = options.preconditions, found["metadata"]
    if wanted is None:
        return
    if wanted.uid is not None and wanted.uid != metadata["uid"]:
        raise refusals.wrong_uid(target.kind, target.name, wanted=wanted.uid, found=metadata["uid"])
    version = metadata["resourceVersion"]
    if wanted.resource_version is not None and wanted.resource_version != version:
        raise refusals.wrong_version(target.kind, target.name, wanted=wanted.resource_version, found=version)


def _storage_error(target: ObjectTarget, wanted: str, found: str) -> str:
    key = "/".join(part for part in ("/registry", target.kind.plural, target.namespace, target.name) if part)
    return (
        f"StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg:"
        f" Precondition failed: UID in precondition: {wanted}, UID in object meta: {found}"
    )
