"""The pod sources that the configuration asks for."""

from pathlib import Path

from msgspec.structs import replace

from klet.api.validation.options import STATIC_POD, PodValidationOptions
from klet.app.ports import BasePorts
from klet.app.settings import cut_features
from klet.config.command_line import Settings
from klet.model.pods import API_SOURCE, FILE_SOURCE, HTTP_SOURCE
from klet.model.roles import Part, PodSink
from klet.sources.file import FileSource
from klet.sources.gated_fields import GatedPods
from klet.sources.http import HttpSource, url_origin
from klet.sources.manifests import ManifestReader
from klet.sources.pod_overhead import PodsWithOverhead

PREVENT_API_REFERENCES = "PreventStaticPodAPIReferences"


def source_names(given: Settings) -> tuple[str, ...]:
    """Return the sources that must be seen before anything is removed."""
    wanted = {
        FILE_SOURCE: given.config.static_pod_path,
        HTTP_SOURCE: given.config.static_pod_url,
        API_SOURCE: given.flags.kubeconfig,
    }
    return tuple(name for name, place in wanted.items() if place)


def static_pod_rules(given: Settings) -> PodValidationOptions:
    """Return what the gates allow static pods to use."""
    features = cut_features(given)
    return replace(
        STATIC_POD, restart_all_containers=features.restart_all, taint_comparisons=features.taint_comparisons
    )


def build_sources(given: Settings, node_name: str, base: BasePorts, *, sink: PodSink) -> tuple[Part, ...]:
    config, recorder, threads, clock = given.config, base.recorder, base.threads, base.clock
    sink = PodsWithOverhead(classes={each.metadata.name: each for each in given.klet.runtime_classes}, sink=sink)
    sink = GatedPods(is_enabled=given.gates.enabled, sink=sink)
    prevent = given.gates.enabled(PREVENT_API_REFERENCES)
    rules = static_pod_rules(given)
    sources: list[Part] = []
    if config.static_pod_path:
        sources.append(
            FileSource(
                path=Path(config.static_pod_path),
                every=config.file_check_frequency,
                reader=ManifestReader(node_name=node_name, prevent_api_references=prevent, rules=rules),
                sink=sink,
                recorder=recorder,
                threads=threads,
                clock=clock,
            )
        )
    if config.static_pod_url:
        sources.append(
            HttpSource(
                origin=url_origin(
                    config.static_pod_url, node_name=node_name, prevent_api_references=prevent, rules=rules
                ),
                headers=config.static_pod_url_header,
                every=config.http_check_frequency,
                sink=sink,
                recorder=recorder,
                threads=threads,
                clock=clock,
            )
        )
    return tuple(sources)
