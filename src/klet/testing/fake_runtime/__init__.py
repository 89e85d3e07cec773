"""A container runtime that only pretends: state machine, scripts of containers' lives, images, faults, events.

A test makes a FakeRuntime with a Script and puts it behind serve_cri (gRPC, component tests) or run_in_process
(simulations). What it answers is compared with containerd by tests/contract.
"""

from klet.testing.fake_runtime.calls import Call as Call
from klet.testing.fake_runtime.calls import RpcFailure as RpcFailure
from klet.testing.fake_runtime.events import FakeEvent as FakeEvent
from klet.testing.fake_runtime.faults import ANY as ANY
from klet.testing.fake_runtime.faults import DelayCall as DelayCall
from klet.testing.fake_runtime.faults import DropEvent as DropEvent
from klet.testing.fake_runtime.faults import EventFault as EventFault
from klet.testing.fake_runtime.faults import Fail as Fail
from klet.testing.fake_runtime.faults import Fault as Fault
from klet.testing.fake_runtime.faults import HalfDone as HalfDone
from klet.testing.fake_runtime.faults import Hang as Hang
from klet.testing.fake_runtime.faults import Late as Late
from klet.testing.fake_runtime.faults import Repeat as Repeat
from klet.testing.fake_runtime.faults import Twice as Twice
from klet.testing.fake_runtime.images import FakeImage as FakeImage
from klet.testing.fake_runtime.images import any_image as any_image
from klet.testing.fake_runtime.images import registry_of as registry_of
from klet.testing.fake_runtime.lives import ContainerLife as ContainerLife
from klet.testing.fake_runtime.lives import ExecResult as ExecResult
from klet.testing.fake_runtime.lives import OnTerm as OnTerm
from klet.testing.fake_runtime.lives import OutputLine as OutputLine
from klet.testing.fake_runtime.logs import FileSink as FileSink
from klet.testing.fake_runtime.logs import MemorySink as MemorySink
from klet.testing.fake_runtime.machine import FakeRuntime as FakeRuntime
from klet.testing.fake_runtime.script import Script as Script
from klet.testing.fake_runtime.script import random_latency as random_latency
from klet.testing.fake_runtime.world import Features as Features
