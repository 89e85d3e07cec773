"""Runtime class manager: with which handler of the runtime a pod runs, and what the handler can do."""

from collections.abc import Iterable, Mapping
from typing import Protocol

from msgspec import Struct

from klet.api.pod import Pod
from klet.cri.port import RuntimeService
from klet.errors import KletError
from klet.runtime.errors import SandboxConfigError
from klet.wire import cri_v1_pb2 as cri


class RuntimeClassMissing(KletError):
    """A runtime class that does not exist."""


class RuntimeClasses(Protocol):
    """Knows the runtime classes of the cluster."""

    async def handler_of(self, name: str) -> str:
        """Return the handler of a class; raises RuntimeClassMissing for one that does not exist."""
        ...


class KnownRuntimeClasses:
    """Runtime classes that never change: on a node without an API server, those of klet's configuration.

    Upstream ignores a pod's runtime class there. A pod that asks for more isolation must not run with less.
    """

    def __init__(self, *, handlers: Mapping[str, str]) -> None:
        self._handlers = handlers

    async def handler_of(self, name: str) -> str:
        try:
            return self._handlers[name]
        except KeyError:
            raise RuntimeClassMissing(f'runtimeclass.node.k8s.io "{name}" not found') from None


async def find_handler(pod: Pod, classes: RuntimeClasses) -> str:
    """Return the handler for a pod's sandbox: the runtime's own choice, an empty text, for a pod without a class."""
    name = pod.spec.runtime_class_name
    if not name:
        return ""
    try:
        return await classes.handler_of(name)
    except RuntimeClassMissing as error:
        raise SandboxConfigError(str(error)) from error
    except KletError as error:
        raise SandboxConfigError(f"failed to lookup RuntimeClass {name}: {error}") from error


class HandlerFeatures(Struct, frozen=True, kw_only=True):
    """The features of a runtime handler; none if the runtime does not report them."""

    is_known: bool = True
    recursive_read_only_mounts: bool = False
    user_namespaces: bool = False


def choose_features(handlers: Iterable[cri.RuntimeHandler], name: str) -> HandlerFeatures:
    """Return the features of one handler in the runtime's list; with a list, a handler that is not in it is unknown."""
    listed = list(handlers)
    for handler in listed:
        if handler.name == name:
            return HandlerFeatures(
                recursive_read_only_mounts=handler.features.recursive_read_only_mounts,
                user_namespaces=handler.features.user_namespaces,
            )
    return HandlerFeatures(is_known=not listed)


class Handlers(Protocol):
    """Knows what the handlers of the runtime can do."""

    async def features_of(self, handler: str) -> HandlerFeatures: ...


class RuntimeHandlers:
    """Asks the runtime when a pod needs to know: few do, and the answer changes when the runtime is replaced."""

    def __init__(self, *, runtime: RuntimeService) -> None:
        self._runtime = runtime

    async def features_of(self, handler: str) -> HandlerFeatures:
        status = await self._runtime.status(cri.StatusRequest())
        return choose_features(status.runtime_handlers, handler)
