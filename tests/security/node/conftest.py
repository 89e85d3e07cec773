"""Attacks by containers on a containerd of these tests' own; the benches are those of `tests/integration`."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest_asyncio


def load_bench(path: str) -> ModuleType:
    """The fixtures of another directory of tests; modules beside tests cannot be imported by name."""
    name = f"bench_of_{path.replace('/', '_')}"
    if name not in sys.modules:
        file = Path(__file__).parents[2] / path / "conftest.py"
        spec = importlib.util.spec_from_file_location(name, file)
        sys.modules[name] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return sys.modules[name]


runtimes = load_bench("integration")
agents = load_bench("integration/agent")
cri, node, manifest = runtimes.cri, agents.node, agents.manifest


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def containerd():
    async with runtimes.run_containerd(runtimes.containerd_directory("security")) as daemon:
        yield daemon
