"""Resident memory and time of importing the agent, beside an empty interpreter.

Run: .venv/bin/python bench/import_cost.py
"""

import os
import subprocess
import sys
import time

BUDGET = 66.0
SECONDS = 0.5
CLUSTER = "the agent of a cluster"

# As `klet run` imports it.
AS_STARTED = "from klet.__main__ import lightly\nwith lightly():"

PROGRAM = """
import sys
{imports}
for line in open("/proc/self/status"):
    if line.startswith("VmRSS"):
        print(line.split()[1])
"""


def measure(imports: str) -> tuple[float, float]:
    """MiB of resident memory and seconds from start to end, the best of five."""
    # As when it is installed: the first of the five compiles, the others find the bytecode.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-P", "-c", PROGRAM.format(imports=imports)]
    results = []
    for _ in range(5):
        started = time.perf_counter()
        answer = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
        results.append((int(answer.stdout) / 1024, time.perf_counter() - started))
    return min(memory for memory, _ in results), min(seconds for _, seconds in results)


def main() -> int:
    rows = {
        "an empty interpreter": "",
        "grpc.aio (floor of any CRI client)": "import grpc.aio",
        "the agent (klet.app.run)": f"{AS_STARTED} import klet.app.run",
        CLUSTER: f"{AS_STARTED} import klet.app.run, klet.app.cluster.join",
    }
    print(f"{'what':40} {'MiB':>6} {'s':>6}")
    measured: dict[str, tuple[float, float]] = {}
    for name, imports in rows.items():
        memory, seconds = measured[name] = measure(imports)
        print(f"{name:40} {memory:6.1f} {seconds:6.2f}")
    memory, seconds = measured[CLUSTER]
    is_met = memory <= BUDGET and seconds <= SECONDS
    print(f"budget for {CLUSTER}: {BUDGET} MiB and {SECONDS} s, {'met' if is_met else 'missed'}")
    return 0 if is_met else 1


if __name__ == "__main__":
    sys.exit(main())
