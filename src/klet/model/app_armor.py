"""Which AppArmor profile a container is to run with: its own, that of an old annotation, or the pod's. Pure."""

from collections.abc import Iterator
from typing import Final

from klet.api.container import Container, EphemeralContainer
from klet.api.pod import Pod
from klet.api.security import AppArmorProfile
from klet.api.validation.annotations import APP_ARMOR_CONTAINER

LOCALHOST: Final = "Localhost"
RUNTIME_DEFAULT: Final = "RuntimeDefault"
UNCONFINED: Final = "Unconfined"
_UNCONFINED_NAME: Final = "unconfined"


def find_app_armor_profile(pod: Pod, container: Container | EphemeralContainer) -> AppArmorProfile | None:
    """Return the profile of a container. The API server turns annotations into fields, but not those of static pods."""
    own = container.security_context.app_armor_profile if container.security_context is not None else None
    shared = pod.spec.security_context.app_armor_profile if pod.spec.security_context is not None else None
    return own or _annotated(pod.metadata.annotations.get(APP_ARMOR_CONTAINER + container.name, "")) or shared


def needs_app_armor(pod: Pod) -> bool:
    """Return whether anything of the pod asks for a profile other than none at all."""
    contexts = (pod.spec.security_context, *(each.security_context for each in every_container(pod)))
    profiles = [each.app_armor_profile for each in contexts if each is not None]
    return any(each is not None and each.type != UNCONFINED for each in profiles) or any(
        value != _UNCONFINED_NAME
        for name, value in pod.metadata.annotations.items()
        if name.startswith(APP_ARMOR_CONTAINER)
    )


def every_container(pod: Pod) -> Iterator[Container | EphemeralContainer]:
    yield from pod.spec.init_containers
    yield from pod.spec.containers
    yield from pod.spec.ephemeral_containers


def _annotated(value: str) -> AppArmorProfile | None:
    match value.partition("/"):
        case ("runtime", "/", "default"):
            return AppArmorProfile(type=RUNTIME_DEFAULT)
        case ("unconfined", "", ""):
            return AppArmorProfile(type=UNCONFINED)
        case ("localhost", "/", name):
            return AppArmorProfile(type=LOCALHOST, localhost_profile=name)
        case _:
            return None
