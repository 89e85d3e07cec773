"""The targets by name."""

from collections.abc import Mapping

from klet.testing.fuzz.target import FuzzTarget
from klet.testing.fuzz.targets.checkpoints import checkpoints
from klet.testing.fuzz.targets.directory_names import directory_names
from klet.testing.fuzz.targets.kubeconfigs import kubeconfigs
from klet.testing.fuzz.targets.log_lines import log_lines
from klet.testing.fuzz.targets.manifests import manifests
from klet.testing.fuzz.targets.plugin_answers import plugin_answers
from klet.testing.fuzz.targets.probe_answers import probe_answers
from klet.testing.fuzz.targets.request_heads import request_heads
from klet.testing.fuzz.targets.talks import TALKS


def all_targets() -> Mapping[str, FuzzTarget]:
    """Return every target."""
    targets = (
        request_heads(),
        probe_answers(),
        log_lines(),
        manifests(),
        checkpoints(),
        kubeconfigs(),
        plugin_answers(TALKS),
        directory_names(),
    )
    return {target.name: target for target in targets}
