import pytest

from klet.config.command_line import flag_mode_configuration
from klet.config.help import ALL_FLAGS, WIDTH, render_help


@pytest.fixture(scope="module")
def text():
    return render_help(flag_mode_configuration())


@pytest.mark.parametrize("flag", ALL_FLAGS, ids=lambda flag: flag.name)
def test_every_flag_is_listed_with_its_help(flag, text):
    assert f"--{flag.name}" in text.split()
    assert flag.help


def test_names_are_unique():
    names = [flag.name for flag in ALL_FLAGS]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    "line",
    [
        "      --max-pods int32 *\n            Pods on this node (default 110)\n",
        "      --sync-frequency duration *\n            Longest time between two looks at a pod (default 1m0s)\n",
        "  -v, --v Level\n",
        "  -h, --help\n",
        "      --root-dir string\n            Directory for pods, volumes and checkpoints (default /var/lib/kubelet)\n",
        "      --register-node *\n            Register the node with the API server (default true)\n",
        "            Socket of the agent's own API (default <root-dir>/klet.sock)\n",
        "  EventedPLEG=true|false (ALPHA - default=false)\n",
    ],
)
def test_lines(line, text):
    assert line in text


@pytest.mark.parametrize("title", sorted({flag.section for flag in ALL_FLAGS}))
def test_sections(title, text):
    assert f"\n{title}:\n" in text


def test_lines_fit_a_terminal(text):
    assert max(map(len, text.splitlines())) <= WIDTH
