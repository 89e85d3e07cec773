import subprocess
import sys

MODULES = (
    "board",
    "bootstrap",
    "errors",
    "followers",
    "maker",
    "messages",
    "pairs",
    "requests",
    "manager",
    "rotation_plan",
    "serving",
    "store",
    "templates",
)
PROGRAM = """
import importlib, sys
for name in sys.argv[1:]:
    importlib.import_module(f"klet.certs.{name}")
    print(name, *{"cryptography", "klet.certs.child"} & set(sys.modules))
"""


def test_only_the_child_imports_cryptography():
    argv = [sys.executable, "-P", "-c", PROGRAM, *MODULES]
    answer = subprocess.run(argv, check=True, capture_output=True, text=True)
    assert answer.stdout.splitlines() == list(MODULES)
