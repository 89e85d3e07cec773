"""A whole wired agent on a fake runtime, in one process and in virtual time: for simulations and component tests."""

from klet.simulation.fake_host import MemoryCgroups as MemoryCgroups
from klet.simulation.fake_host import MemoryDns as MemoryDns
from klet.simulation.fake_host import MemoryFiles as MemoryFiles
from klet.simulation.fake_host import MemoryLogs as MemoryLogs
from klet.simulation.fake_host import MemoryTerminationFiles as MemoryTerminationFiles
from klet.simulation.node import DrivenPodSource as DrivenPodSource
from klet.simulation.node import RunningAgent as RunningAgent
from klet.simulation.node import SimulatedNode as SimulatedNode
