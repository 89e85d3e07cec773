"""The pod sources that the configuration asks for."""

from pathlib import Path

from msgspec.structs import replace

from klet.api.validation.options import STATIC_POD, PodValidationOptions
from klet.app.ports import BasePorts
from klet.config.command_line import Settings
from klet.model.pods import API_SOURCE, FILE_SOURCE, HTTP_SOURCE
from klet.model.roles import Part, PodSink
from klet.sources.file import FileSource
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


def cut_validation_options(given: Settings) -> PodValidationOptions:
    """Return which rules hold for static pods."""
    return replace(
        STATIC_POD,
        container_restart_rules=given.gates.enabled("ContainerRestartRules"),
        user_namespaces_host_network=given.gates.enabled("UserNamespacesHostNetworkSupport"),
    )


def build_sources(given: Settings, node_name: str, base: BasePorts, *, sink: PodSink) -> tuple[Part, ...]:
    config, recorder, threads, clock = given.config, base.recorder, base.threads, base.clock
    sink = PodsWithOverhead(classes={each.metadata.name: each for each in given.klet.runtime_classes}, sink=sink)
    prevent = given.gates.enabled(PREVENT_API_REFERENCES)
    options = cut_validation_options(given)
    sources: list[Part] = []
    if config.static_pod_path:
        sources.append(
            FileSource(
                path=Path(config.static_pod_path),
                every=config.file_check_frequency,
                reader=ManifestReader(node_name=node_name, prevent_api_references=prevent, options=options),
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
                    config.static_pod_url, node_name=node_name, prevent_api_references=prevent, options=options
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
