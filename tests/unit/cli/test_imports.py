import subprocess
import sys

PROGRAM = "import sys, klet.cli.app; print(' '.join(name for name in sys.modules if '.' not in name))"


def test_the_small_commands_import_no_heavy_library():
    output = subprocess.run([sys.executable, "-P", "-c", PROGRAM], capture_output=True, text=True, check=True).stdout
    assert {"asyncio", "yaml", "grpc", "rich", "aiohttp", "cryptography"}.isdisjoint(output.split())
