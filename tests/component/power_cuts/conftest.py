"""The node of the security tests: `klet run` as a process, between a fake runtime and an embedded API server."""

import importlib.util
import sys
from pathlib import Path


def _load(path: str):
    name = f"bench_of_{path}"
    if name not in sys.modules:
        file = Path(__file__).parents[2] / path / "conftest.py"
        spec = importlib.util.spec_from_file_location(name, file)
        sys.modules[name] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return sys.modules[name]


attack, pki = _load("security").attack, _load("security").pki
