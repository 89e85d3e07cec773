import os

import pytest

from klet.aio.clock import SystemClock
from klet.cli.install.machine_files import MachineFiles
from klet.cli.install.systemd import Systemd
from klet.cli.progress import PlainProgress
from klet.testing.fake_systemctl import FakeSystemctl

# An agent that answers on its own socket, where its flags say.
AGENT = """
import http.server, os, socketserver, sys
root = [word.partition("=")[2] for word in sys.argv if word.startswith("--root-dir=")][0]
os.makedirs(root, exist_ok=True)
open(os.path.join(root, "arguments"), "w").write("\\n".join(sys.argv[1:]))
class Healthy(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"ok")
    def log_message(self, *_): pass
    def address_string(self): return ""
path = os.path.join(root, "klet.sock")
if os.path.exists(path):
    os.unlink(path)
socketserver.UnixStreamServer(path, Healthy).serve_forever()
"""


@pytest.fixture
def agent(tmp_path):
    path = tmp_path / "agent.py"
    path.write_text(AGENT)
    return path


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """A service manager, whose programs are the first on the PATH."""
    fake = FakeSystemctl(tmp_path / "sd")
    monkeypatch.setenv("PATH", f"{fake.programs}:{os.environ['PATH']}")
    monkeypatch.setenv("KLET_MACHINE_ROOT", str(fake.root))
    yield fake
    fake.stop_all()


@pytest.fixture
def files(fake):
    return MachineFiles(fake.root)


@pytest.fixture
def systemd(fake):
    return Systemd(root=fake.root)


@pytest.fixture
def progress():
    return PlainProgress(clock=SystemClock())
