"""Pods for the tables of validation: a small valid one, with the part under test merged in."""

from collections.abc import Callable
from typing import Any

import pytest

from klet.api.codec import convert
from klet.api.defaults import default_pod
from klet.api.pod import Pod
from klet.api.validation.options import PodValidationOptions
from klet.api.validation.pod import validate_pod_create

BASE = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "pod", "namespace": "ns", "resourceVersion": "1"},
    "spec": {"containers": [{"name": "c", "image": "i:1"}], "serviceAccountName": "default"},
}


def merge(base: Any, patch: Any) -> Any:
    """Maps are merged, everything else is replaced."""
    if isinstance(base, dict) and isinstance(patch, dict):
        return {key: merge(base.get(key), patch[key]) if key in patch else base[key] for key in {**base, **patch}}
    return patch


@pytest.fixture(scope="session")
def make_pod() -> Callable[..., Pod]:
    def make(patch: dict[str, Any], *, defaults: bool = True) -> Pod:
        pod = convert(Pod, merge(BASE, patch))
        return default_pod(pod) if defaults else pod

    return make


@pytest.fixture(scope="session")
def errors_of(make_pod: Callable[..., Pod]) -> Callable[..., list[str]]:
    """The texts of all errors of the base pod with a patch applied."""

    def errors(patch: dict[str, Any], *, defaults: bool = True, **options: bool) -> list[str]:
        pod = make_pod(patch, defaults=defaults)
        return [str(error) for error in validate_pod_create(pod, PodValidationOptions(**options))]

    return errors


@pytest.fixture(scope="session")
def container_errors(errors_of: Callable[..., list[str]]) -> Callable[..., list[str]]:
    """The texts of all errors of a pod with one container, whose fields (and those of the spec) are given."""

    def errors(container: dict[str, Any], spec: dict[str, Any] | None = None, **options: bool) -> list[str]:
        containers = [{"name": "c", "image": "i:1", **container}]
        return errors_of({"spec": {**(spec or {}), "containers": containers}}, **options)

    return errors
