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


@pytest.fixture
def dbus_address(tmp_path: Path):
    """The address of a private message bus."""
    configuration = tmp_path / "bus.conf"
    configuration.write_text(CONFIGURATION.format(socket=tmp_path / "bus"))
    command = ["dbus-daemon", f"--config-file={configuration}", "--nofork", "--print-address"]
    try:
        daemon = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    except FileNotFoundError:
        pytest.skip("dbus-daemon is not installed")
    address = daemon.stdout.readline().strip()
    yield address
    daemon.terminate()
    daemon.wait(timeout=10)
    daemon.stdout.close()
