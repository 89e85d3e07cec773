"""Resident memory and time of importing the agent, beside an empty interpreter.

Run: .venv/bin/python bench/import_cost.py
"""

import subprocess
import sys
import time

BUDGET = 65.0

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
    results = []
    for _ in range(5):
        started = time.perf_counter()
        answer = subprocess.run(
            [sys.executable, "-P", "-c", PROGRAM.format(imports=imports)], check=True, capture_output=True, text=True
        )
        results.append((int(answer.stdout) / 1024, time.perf_counter() - started))
    return min(memory for memory, _ in results), min(seconds for _, seconds in results)


def main() -> int:
    rows = {
        "an empty interpreter": "",
        "grpc.aio (floor of any CRI client)": "import grpc.aio",
        "the agent of a cluster": f"{AS_STARTED} import klet.app.run, klet.app.cluster.join",
        "the agent (klet.app.run)": f"{AS_STARTED} import klet.app.run",
    }
    print(f"{'what':40} {'MiB':>6} {'s':>6}")
    memory = 0.0
    for name, imports in rows.items():
        memory, seconds = measure(imports)
        print(f"{name:40} {memory:6.1f} {seconds:6.2f}")
    print(f"budget for the agent: {BUDGET} MiB, {'met' if memory <= BUDGET else 'missed'}")
    return 0 if memory <= BUDGET else 1


if __name__ == "__main__":
    sys.exit(main())
