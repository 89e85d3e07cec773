"""Validation of runtime classes (upstream: `ValidateRuntimeClass`)."""

from klet.api.node import RuntimeClass
from klet.api.validation import formats
from klet.api.validation.errors import FieldErrors, invalid_each
from klet.api.validation.fieldpath import ROOT, FieldPath
from klet.api.validation.metadata import validate_labels, validate_object_meta
from klet.api.validation.placement import validate_tolerations
from klet.api.validation.resources import validate_overhead


def validate_runtime_class(runtime_class: RuntimeClass, path: FieldPath = ROOT) -> FieldErrors:
    yield from validate_object_meta(runtime_class.metadata, path.child("metadata"), namespaced=False)
    handler = runtime_class.handler
    yield from invalid_each(path.child("handler"), handler, formats.dns_label(handler))
    if runtime_class.overhead is not None:
        yield from validate_overhead(runtime_class.overhead.pod_fixed, path.child("overhead", "podFixed"))
    if (scheduling := runtime_class.scheduling) is not None:
        yield from validate_labels(scheduling.node_selector, path.child("scheduling", "nodeSelector"))
        yield from validate_tolerations(scheduling.tolerations, path.child("scheduling", "tolerations"))
