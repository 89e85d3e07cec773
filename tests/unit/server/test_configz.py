"""The configuration as `/configz` shows it."""

import json
from datetime import timedelta

from klet.config.configuration import KubeletConfiguration
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
