"""What plugins say when they register, for the target `plugin-answers`: their names, versions, limits and topology."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from klet.aio.clock import SystemClock
from klet.api.meta import ObjectMeta
from klet.api.node import Node
from klet.csi.client import CsiConnector
from klet.csi.metrics import register_csi_calls
from klet.csi_nodes.node_objects import build_csi_node, build_csi_node_patch, name_driver_on_node, put_driver
from klet.csi_nodes.registration import ask_node_info
from klet.csi_nodes.versions import find_driver_problem
from klet.host.plugin_sockets import GET_INFO, NOTIFY, RegistrationSockets
from klet.metrics import MetricRegistry
from klet.model.csi import CsiVersion, RegisteredDriver
from klet.model.plugins import PluginInfo, VersionProblem, choose_dra_service, find_device_plugin_problem
from klet.testing.fuzz.target import Flaw
from klet.testing.fuzz.targets.plugin_answers import Question, Talk
from klet.wire import csi_v1_pb2 as csi
from klet.wire import pluginregistration_v1_pb2 as registration

_NODE_INFO: Final = "NodeGetInfo"
_LONGEST_PROBLEM: Final = 16 << 10


class RegistrationAsker:
    """Asks a plugin what it is, and a CSI driver what its node is."""

    def __init__(self, endpoint: str, _directory: Path) -> None:
        self._socket = endpoint.removeprefix("unix://")
        clock = SystemClock()
        self._sockets = RegistrationSockets(clock=clock)
        self._connector = CsiConnector(durations=register_csi_calls(MetricRegistry()), clock=clock)

    async def questions(self, _parts: Mapping[str, list[bytes]]) -> Sequence[Question]:
        return self._register, self._describe_node

    async def close(self) -> None:
        """Do nothing."""

    async def _register(self) -> None:
        async with self._sockets.dial(self._socket) as registrar:
            info = await registrar.get_info()
            _judge(info)
            await registrar.notify(error="")

    async def _describe_node(self) -> None:
        driver = RegisteredDriver(name="d.example.com", endpoint=self._socket, version=CsiVersion((1, 0)))
        info = await ask_node_info(self._connector, driver)
        node = Node(metadata=ObjectMeta(name="n", labels={"zone": "z"}))
        name_driver_on_node(node, driver.name, info)
        csi_node = build_csi_node("n", "u")
        build_csi_node_patch(csi_node, put_driver(csi_node, driver.name, info))


def _judge(info: PluginInfo) -> None:
    problem = find_driver_problem(info, None)
    chosen = choose_dra_service(info)
    problems = (problem, find_device_plugin_problem(info), chosen.why if isinstance(chosen, VersionProblem) else None)
    if any(len(each or "") > _LONGEST_PROBLEM for each in problems):
        raise Flaw("quotes too much of what a plugin says")
    if problem is None and ("/" in info.name or info.name.startswith(".") or not info.endpoint.startswith("/")):
        raise Flaw("takes a driver whose name could lead elsewhere")


def _examples() -> list[dict[str, bytes]]:
    info = registration.PluginInfo(
        type="CSIPlugin", name="d.example.com", endpoint="/d.sock", supported_versions=["1.0.0", "v0.3.0"]
    )
    said = csi.NodeGetInfoResponse(
        node_id="id", max_volumes_per_node=7, accessible_topology=csi.Topology(segments={"zone": "z"})
    )
    notified = registration.RegistrationStatusResponse()
    return [
        {
            GET_INFO.name: info.SerializeToString(),
            NOTIFY.name: notified.SerializeToString(),
            _NODE_INFO: said.SerializeToString(),
        }
    ]


REGISTRATIONS: Final = Talk(
    name="registration",
    methods={
        GET_INFO.name: registration.PluginInfo,
        NOTIFY.name: registration.RegistrationStatusResponse,
        _NODE_INFO: csi.NodeGetInfoResponse,
    },
    examples=_examples(),
    asker=RegistrationAsker,
)
