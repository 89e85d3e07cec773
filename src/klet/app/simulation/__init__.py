"""A whole wired agent on a fake runtime, in one process and in virtual time: for simulations and component tests."""

from klet.app.simulation.memory import MemoryCgroups as MemoryCgroups
from klet.app.simulation.memory import MemoryDns as MemoryDns
from klet.app.simulation.memory import MemoryFiles as MemoryFiles
from klet.app.simulation.memory import MemoryLeftFiles as MemoryLeftFiles
from klet.app.simulation.memory import MemoryLogs as MemoryLogs
from klet.app.simulation.node import RunningAgent as RunningAgent
from klet.app.simulation.node import SimulatedNode as SimulatedNode
from klet.app.simulation.node import WantedPods as WantedPods
