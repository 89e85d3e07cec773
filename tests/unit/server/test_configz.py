"""The configuration as `/configz` shows it."""

import json
from datetime import timedelta

from klet.api.times import Duration
from klet.config.configuration import KubeletConfiguration
from klet.config.defaults import default_configuration
from klet.config.gates import resolve_gates
from klet.config.sections import Tracing
from klet.server.configz import encode_configuration


def test_fields_have_their_names_in_the_file_and_durations_gos_form():
    config = KubeletConfiguration(
        port=10250,
        sync_frequency=timedelta(minutes=1),
        cpu_cfs_quota_period=timedelta(milliseconds=100),
        eviction_hard={"memory.available": "100Mi"},
    )
    shown = json.loads(encode_configuration(config))
    assert shown["port"] == 10250
    assert shown["syncFrequency"] == "1m0s"
    assert shown["cpuCFSQuotaPeriod"] == "100ms"
    assert shown["evictionHard"] == {"memory.available": "100Mi"}
    assert shown["streamingConnectionIdleTimeout"] == "0s"
    assert shown["authentication"]["anonymous"] == {"enabled": False}
    assert "kind" not in shown
    assert "tlsCertFile" not in shown
    assert "clusterDNS" not in shown


def test_the_durations_of_a_real_configuration_have_gos_form_too():
    shown = json.loads(encode_configuration(default_configuration(resolve_gates({}))))
    assert (shown["syncFrequency"], shown["cpuCFSQuotaPeriod"]) == ("1m0s", "100ms")
    config = KubeletConfiguration(sync_frequency=Duration.parse("90s"))
    assert json.loads(encode_configuration(config))["syncFrequency"] == "1m30s"


def test_passwords_are_masked():
    config = KubeletConfiguration(
        static_pod_url="https://node:p%2Fss@manifests.example:8443/pods?token=abc",
        static_pod_url_header={"Authorization": ("Bearer one", "Bearer two"), "X-Empty": ()},
        tracing=Tracing(endpoint="http://node:secret@collector.example:4317"),
    )
    shown = json.loads(encode_configuration(config))
    assert shown["staticPodURLHeader"] == {"Authorization": ["<masked>", "<masked>"]}
    assert shown["staticPodURL"] == "https://<masked>@manifests.example:8443/pods?<masked>"
    assert shown["tracing"]["endpoint"] == "http://<masked>@collector.example:4317"
