import subprocess
from pathlib import Path

import pytest

CONFIGURATION = """\
<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <type>session</type>
  <listen>unix:path={socket}</listen>
  <auth>EXTERNAL</auth>
  <policy context="default">
    <allow send_destination="*" eavesdrop="true"/>
    <allow eavesdrop="true"/>
    <allow own="*"/>
  </policy>
</busconfig>
"""


class MessageBusDaemon:
    """A private message bus."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._process = None
        self.address = ""

    def start(self) -> None:
        configuration = self._directory / "bus.conf"
        configuration.write_text(CONFIGURATION.format(socket=self._directory / "bus"))
        command = ["dbus-daemon", f"--config-file={configuration}", "--nofork", "--print-address"]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        # Without the identifier at its end, which differs after a restart.
        self.address = self._process.stdout.readline().partition(",")[0].strip()

    def stop(self) -> None:
        self._process.terminate()
        self._process.communicate(timeout=10)


@pytest.fixture
def dbus_daemon(tmp_path: Path):
    daemon = MessageBusDaemon(tmp_path)
    try:
        daemon.start()
    except FileNotFoundError:
        pytest.skip("no dbus-daemon: apt-get install dbus")
    yield daemon
    daemon.stop()


@pytest.fixture
def dbus_address(dbus_daemon):
    return dbus_daemon.address
