import pytest

from klet.config.errors import ConfigError
from klet.config.gates import resolve_gates
from klet.config.manager_options import check_managers

GATES = resolve_gates({})
ALPHA = resolve_gates({"CPUManagerPolicyAlphaOptions": True})
STATIC = {"cpuManagerPolicy": "static", "systemReserved": {"cpu": "1"}}
CPU_OPTIONS = "new static policy error: cpuManagerPolicyOptions (--cpu-manager-policy-options): "
TOPOLOGY = {"topologyManagerPolicy": "restricted"}
TOPOLOGY_OPTIONS = "topologyManagerPolicyOptions (--topology-manager-policy-options): "


def options(**chosen):
    return {**STATIC, "cpuManagerPolicyOptions": {name.replace("_", "-"): value for name, value in chosen.items()}}


@pytest.mark.parametrize(
    ("fields", "gates", "message"),
    [
        pytest.param(options(nonsense="true"), GATES, f'{CPU_OPTIONS}unknown CPU Manager Policy option: "nonsense", '
                     "write one of full-pcpus-only, strict-cpu-reservation", id="an unknown option"),
        pytest.param(options(full_pcpus_only="yes"), GATES, f'{CPU_OPTIONS}bad value for option "full-pcpus-only": '
                     'strconv.ParseBool: parsing "yes": invalid syntax', id="a value that is neither true nor false"),
        pytest.param(options(align_by_socket="true"), GATES, f"{CPU_OPTIONS}CPU Manager Policy Alpha-level Options not "
                     'enabled, but option "align-by-socket" provided: switch on feature gate '
                     "CPUManagerPolicyAlphaOptions", id="an alpha option"),
        pytest.param(options(distribute_cpus_across_numa="true"), resolve_gates({"CPUManagerPolicyBetaOptions": False}),
                     f"{CPU_OPTIONS}CPU Manager Policy Beta-level Options not enabled", id="a beta option that is off"),
        pytest.param(options(full_pcpus_only="true", distribute_cpus_across_cores="true"), ALPHA,
                     f"{CPU_OPTIONS}static policy options full-pcpus-only and distribute-cpus-across-cores can not be "
                     "used at the same time", id="options against each other"),
        pytest.param({**options(align_by_socket="true"), "topologyManagerPolicy": "single-numa-node"}, ALPHA,
                     f"{CPU_OPTIONS}Topolgy manager single-numa-node policy is incompatible", id="sockets in one node"),
        pytest.param({"cpuManagerPolicy": "static", "kubeReserved": {"cpu": "0"}}, GATES, "new static policy error: "
                     "[cpumanager] the static policy requires systemreserved.cpu + kubereserved.cpu to be greater than "
                     "zero", id="no CPU reserved"),
        pytest.param({**TOPOLOGY, "topologyManagerPolicyOptions": {"nonsense": "1"}}, GATES,
                     f'{TOPOLOGY_OPTIONS}unknown Topology Manager Policy option: "nonsense"', id="an unknown one here"),
        pytest.param({"topologyManagerPolicyOptions": {"b": "1", "a": ""}},
                     resolve_gates({"TopologyManagerPolicyOptions": False}), f"{TOPOLOGY_OPTIONS}topology manager "
                     'policy options map[a: b:1] require feature gates "TopologyManagerPolicyOptions" enabled',
                     id="options without their gate"),
        pytest.param({**TOPOLOGY, "topologyManagerPolicyOptions": {"max-allowable-numa-nodes": "7"}}, GATES,
                     f'{TOPOLOGY_OPTIONS}the minimum value of "max-allowable-numa-nodes" should not be less than 8',
                     id="too few nodes"),
        pytest.param({**TOPOLOGY, "topologyManagerPolicyOptions": {"max-allowable-numa-nodes": "x"}}, GATES,
                     f'{TOPOLOGY_OPTIONS}unable to convert policy option to integer "max-allowable-numa-nodes": '
                     'strconv.Atoi: parsing "x": invalid syntax', id="no number"),
        pytest.param({**TOPOLOGY, "topologyManagerPolicyOptions": {"prefer-closest-numa-nodes": "x"}}, GATES,
                     f'{TOPOLOGY_OPTIONS}bad value for option "prefer-closest-numa-nodes"', id="no switch"),
    ],
)  # fmt: skip
def test_refused(load, fields, gates, message):
    with pytest.raises(ConfigError) as caught:
        check_managers(load(fields), gates)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({}, id="defaults"),
        pytest.param(options(full_pcpus_only="1", strict_cpu_reservation="F"), id="options of the static policy"),
        pytest.param({"cpuManagerPolicy": "static", "reservedSystemCPUs": "0-1"}, id="CPUs reserved by number"),
        pytest.param(options(full_pcpus_only="true", prefer_align_cpus_by_uncorecache="false"), id="one that is off"),
        pytest.param({**TOPOLOGY, "topologyManagerPolicyOptions": {"max-allowable-numa-nodes": "8",
                      "prefer-closest-numa-nodes": "true"}}, id="options of the topology"),
        pytest.param({"memoryManagerPolicy": "Static", "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1"}}]},
                     id="memory by nodes"),
    ],
)  # fmt: skip
def test_accepted(load, fields):
    check_managers(load(fields), GATES)
