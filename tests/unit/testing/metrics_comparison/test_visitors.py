import json

import pytest

from klet.testing.metrics_comparison.recordings import CADVISOR, SUMMARY, Recording, Scrape
from klet.testing.metrics_comparison.visitors import drop_visitors

TEXT = """# TYPE a counter
a{id="/",interface="eth0"} 1
a{id="/",interface="guest1"} 1
b{pod="guest1"} 1
"""
INTERFACES = [{"name": "eth0", "rxBytes": 1}, {"name": "guest1", "rxBytes": 1}]
NETWORK = {"name": "eth0", "interfaces": INTERFACES}


def recording(*interfaces):
    summary = {"node": {"network": NETWORK}, "pods": [{"network": NETWORK}, {"cpu": {}}]}
    scrape = Scrape({CADVISOR: TEXT, SUMMARY: json.dumps(summary)})
    return Recording(scrape, scrape, tuple(frozenset(each) for each in interfaces))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param([{"eth0", "guest1"}], [{"eth0"}], id="it was gone when the second agent ran"),
        pytest.param([{"eth0"}], [{"eth0", "guest1"}], id="it came then"),
        pytest.param([{"eth0"}, {"eth0", "guest1"}], [{"eth0"}], id="it was there for a moment"),
    ],
)
def test_an_interface_that_was_not_there_all_the_time_is_dropped(first, second):
    for found in drop_visitors(recording(*first), recording(*second)):
        for scrape in (found.first, found.second):
            assert scrape.bodies[CADVISOR] == TEXT.replace('a{id="/",interface="guest1"} 1\n', "")
            summary = scrape.summary(SUMMARY)
            networks = [summary["node"]["network"], summary["pods"][0]["network"]]
            assert networks == [{"name": "eth0", "interfaces": INTERFACES[:1]}] * 2


def test_one_that_stays_is_compared():
    both = [recording({"eth0", "guest1"}), recording({"eth0", "guest1"})]
    assert drop_visitors(*both) == both


def test_a_mount_that_was_not_there_all_the_time_is_dropped():
    text = """f{device="/dev/shm",id="/"} 1
f{device="/tmp/guest",id="/"} 1
"""
    scrape = Scrape({CADVISOR: text})
    both = [
        Recording(scrape, scrape, mounts=(frozenset({"/", "/dev/shm"}),)),
        Recording(scrape, scrape, mounts=(frozenset({"/", "/dev/shm", "/tmp/guest"}),)),
    ]
    for found in drop_visitors(*both):
        assert found.first.bodies[CADVISOR] == found.second.bodies[CADVISOR] == text.splitlines(keepends=True)[0]
