"""Registers CSI drivers (upstream: the CSI plugin's registration handler)."""

import logging

from klet.csi.client import CsiConnector, CsiNodeInfo
from klet.csi.connection import DriverAddress
from klet.csi_nodes.drivers import CsiDriverBoard
from klet.csi_nodes.errors import CsiNodeError, DriverNotAccepted
from klet.csi_nodes.info_manager import NodeInfoManager
from klet.csi_nodes.start import CsiNodeBoard
from klet.csi_nodes.versions import check_versions, find_driver_problem
from klet.errors import KletError, level_for
from klet.model.csi import RegisteredDriver
from klet.model.plugins import PluginInfo, VersionProblem

logger = logging.getLogger(__name__)


class CsiRegistration:
    """Takes drivers that the plugin manager has found, and those that have gone."""

    def __init__(
        self, *, connector: CsiConnector, drivers: CsiDriverBoard, objects: NodeInfoManager, start: CsiNodeBoard
    ) -> None:
        self._connector = connector
        self._drivers = drivers
        self._objects = objects
        self._start = start

    def find_problem(self, plugin: PluginInfo) -> str | None:
        return find_driver_problem(plugin, self._drivers.find(plugin.name))

    async def register(self, plugin: PluginInfo) -> None:
        """Register a driver. From the first step on calls find it; one that fails is forgotten again."""
        chosen = check_versions("RegisterPlugin", plugin, self._drivers.find(plugin.name))
        if isinstance(chosen, VersionProblem):
            raise DriverNotAccepted(chosen.why)
        driver = RegisteredDriver(name=plugin.name, endpoint=plugin.endpoint, version=chosen)
        self._drivers.put(driver)
        try:
            info = await ask_node_info(self._connector, driver)
            # A driver that registers before would have the objects of the node belong to nobody.
            await self._start.until_initialized()
            await self._objects.install(driver.name, info)
        except KletError:
            await self._forget(driver.name)
            raise
        logger.info("CSI driver registered", extra={"driver": driver.name, "endpoint": driver.endpoint})

    async def deregister(self, plugin: PluginInfo) -> None:
        """Forget a driver, whichever endpoint it has now, as upstream; raises KletError."""
        self._drivers.remove(plugin.name)
        await self._objects.uninstall(plugin.name)
        logger.info("CSI driver removed", extra={"driver": plugin.name})

    async def _forget(self, name: str) -> None:
        self._drivers.remove(name)
        try:
            await self._objects.uninstall(name)
        except CsiNodeError as error:
            extra = {"driver": name, "error": str(error)}
            logger.log(level_for(error), "CSI driver not removed from the objects of the node", extra=extra)


async def ask_node_info(connector: CsiConnector, driver: RegisteredDriver) -> CsiNodeInfo:
    """Ask a driver what this node is to it; raises CsiError."""
    async with connector.open(DriverAddress(driver=driver.name, endpoint=driver.endpoint)) as client:
        return await client.node_info()
