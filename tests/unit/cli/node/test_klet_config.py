from klet.cli.node.klet_config import build_klet_configuration
from klet.config.klet import load_klet_configuration


def test_the_agent_accepts_the_configuration():
    text = build_klet_configuration(handlers=("runc", "crun"))
    classes = load_klet_configuration("/srv/node/etc/klet.yaml", text.encode()).runtime_classes
    assert [(each.metadata.name, each.handler) for each in classes] == [("runc", "runc"), ("crun", "crun")]
