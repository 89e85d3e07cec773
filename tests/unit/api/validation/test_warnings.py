import pytest

from klet.api.validation import formats
from klet.api.validation.warnings import warnings_for_pod_create

P = "spec.containers[0].ports"
NULL = "a null labelSelector results in matching no pod"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
SECCOMP = 'non-functional in v1.27+; use the "seccompProfile" field instead'
ARMOR = 'deprecated since v1.30; use the "appArmorProfile" field instead'
ZONE = 'deprecated since v1.17; use "topology.kubernetes.io/zone" instead'
OLD_ZONE = "failure-domain.beta.kubernetes.io/zone"


def container(**fields):
    return {"spec": {"containers": [{"name": "c", "image": "i:1", **fields}]}}


def ports(*items):
    return container(ports=[{"containerPort": 80, **item} for item in items])


def volume(**source):
    return {"spec": {"volumes": [{"name": "v", **source}]}}


def files(*paths):
    return [{"key": "k", "path": path} for path in paths]


@pytest.mark.parametrize(
    ("patch", "expected"),
    [
        pytest.param({}, [], id="nothing to say"),
        pytest.param(
            {"metadata": {"name": "a.b"}},
            [
                (
                    "metadata.name: this is used in the Pod's hostname, which can result in "
                    "surprising behavior; a DNS label is "
                    f"recommended: [{formats.dns_label('a.b')[0]}]"
                )
            ],
            id="a name that is no host name",
        ),
        pytest.param(
            container(env=[{"name": "X", "value": "a"}, {"name": "X", "value": "b"}]),
            [
                'spec.containers[0].env[1]: hides previous definition of "X", which may be dropped when using apply',
            ],
            id="a variable hides another",
        ),
        pytest.param(
            container(env=[{"name": "X", "value": "a"}, {"name": "X", "value": "$(X):b"}]),
            [],
            id="a variable extends another",
        ),
        pytest.param(
            container(env=[{"name": "X", "value": "a"}, {"name": "X", "value": "$(X)"}]),
            ['spec.containers[0].env[1]: hides previous definition of "X", which may be dropped when using apply'],
            id="a variable repeats another",
        ),
        pytest.param(ports({}, {}), [f"{P}[1]: duplicate port definition with {P}[0]"], id="a port twice"),
        pytest.param(
            ports({}, {"hostPort": 80}),
            [f"{P}[1]: overlapping port definition with {P}[0]"],
            id="a port with and without",
        ),
        pytest.param(
            ports({"hostPort": 80}, {"hostPort": 80, "hostIP": "1.1.1.1"}),
            [f"{P}[1]: dangerously ambiguous port definition with {P}[0]"],
            id="a port on all and one address",
        ),
        pytest.param(ports({"hostPort": 80}, {"hostPort": 81}), [], id="two ports of the host"),
        pytest.param(ports({}, {"protocol": "UDP"}), [], id="two protocols"),
        pytest.param(
            ports({"hostIP": "1.1.1.1"}),
            [f"{P}[0]: hostIP set without hostPort: {{Name: HostPort:0 ContainerPort:80 Protocol:TCP HostIP:1.1.1.1}}"],
            id="an address without a port",
        ),
        pytest.param(
            {
                "spec": {
                    "containers": [
                        {"name": "a", "image": "i", "ports": [{"containerPort": 1, "name": "p"}]},
                        {"name": "b", "image": "i", "ports": [{"containerPort": 2, "name": "p"}]},
                    ]
                }
            },
            [
                (
                    'spec.containers[1].ports[0]: duplicate port name "p" with '
                    "spec.containers[0].ports[0], services and probes "
                    "that select ports by name will use spec.containers[0].ports[0]"
                )
            ],
            id="a port name twice",
        ),
        pytest.param(
            container(
                resources={"requests": {"memory": "100m"}, "limits": {"memory": "1100m", "ephemeral-storage": "1m"}}
            ),
            [
                (
                    'spec.containers[0].resources.limits[memory]: fractional byte value "1100m" is '
                    "invalid, must be an integer"
                ),
                (
                    'spec.containers[0].resources.requests[memory]: fractional byte value "100m" is '
                    "invalid, must be an integer"
                ),
                (
                    "spec.containers[0].resources.limits[ephemeral-storage]: fractional byte "
                    'value "1m" is invalid, must be an '
                    "integer"
                ),
                (
                    "spec.containers[0].resources.requests[ephemeral-storage]: fractional byte "
                    'value "1m" is invalid, must be '
                    "an integer"
                ),
            ],
            id="parts of a byte",
        ),
        pytest.param(
            {"spec": {"overhead": {"memory": "100m"}}},
            ['spec.overhead[memory]: fractional byte value "100m" is invalid, must be an integer'],
            id="overhead in parts of a byte",
        ),
        pytest.param(
            {"spec": {"imagePullSecrets": [{"name": "x"}, {"name": "x"}, {}]}},
            [
                'spec.imagePullSecrets[1].name: duplicate name "x"',
                'spec.imagePullSecrets[2].name: invalid empty name ""',
            ],
            id="pull secrets",
        ),
        pytest.param(
            {"spec": {"hostAliases": [{"ip": "1.1.1.1"}, {"ip": "1.1.1.1"}]}},
            ['spec.hostAliases[1].ip: duplicate ip "1.1.1.1"'],
            id="host aliases",
        ),
        pytest.param(
            {"spec": {"topologySpreadConstraints": [{"topologyKey": OLD_ZONE}]}},
            [
                f"spec.topologySpreadConstraints[0].topologyKey: {OLD_ZONE} is {ZONE}",
                f"spec.topologySpreadConstraints[0].labelSelector: {NULL}",
            ],
            id="a spread over an old label that matches nothing",
        ),
        pytest.param(
            {
                "spec": {
                    "affinity": {
                        "podAffinity": {REQUIRED: [{"topologyKey": "k"}]},
                        "podAntiAffinity": {PREFERRED: [{"weight": 1, "podAffinityTerm": {"topologyKey": "k"}}]},
                    }
                }
            },
            [
                f"spec.affinity.podAffinity.{REQUIRED}[0].labelSelector: {NULL}",
                f"spec.affinity.podAntiAffinity.{PREFERRED}[0].podAffinityTerm.labelSelector: {NULL}",
            ],
            id="affinity to nothing",
        ),
        pytest.param(
            {
                "spec": {
                    "nodeSelector": {OLD_ZONE: "z"},
                    "affinity": {
                        "nodeAffinity": {
                            REQUIRED: {
                                "nodeSelectorTerms": [{"matchExpressions": [{"key": OLD_ZONE, "operator": "Exists"}]}]
                            },
                            PREFERRED: [
                                {
                                    "weight": 1,
                                    "preference": {"matchExpressions": [{"key": OLD_ZONE, "operator": "Exists"}]},
                                }
                            ],
                        }
                    },
                }
            },
            [
                f"spec.nodeSelector[{OLD_ZONE}]: {ZONE}",
                (
                    f"spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms[0].matchExpressions[0].key: "
                    f"{OLD_ZONE} is {ZONE}"
                ),
                f"spec.affinity.nodeAffinity.{PREFERRED}[0].preference.matchExpressions[0].key: {OLD_ZONE} is {ZONE}",
            ],
            id="old node labels",
        ),
        pytest.param(
            volume(gitRepo={"repository": "r"}),
            ["spec.volumes[0].gitRepo: deprecated in v1.11, and disabled by default in v1.33+"],
            id="a git volume",
        ),
        pytest.param(
            volume(rbd={}), ["spec.volumes[0].rbd: deprecated in v1.28, non-functional in v1.31+"], id="a ceph volume"
        ),
        pytest.param(
            volume(ephemeral={"volumeClaimTemplate": {"spec": {"resources": {"requests": {"storage": "1500m"}}}}}),
            [
                (
                    "spec.volumes[0].ephemeral.volumeClaimTemplate.spec.resources.requests[storage]: "
                    'fractional byte value "1500m" is invalid, must be an integer'
                )
            ],
            id="a claim for parts of a byte",
        ),
        pytest.param(
            volume(configMap={"name": "m", "items": files("a", "a/b", "ab")}),
            ['volume "v" (ConfigMap "m"): overlapping paths: "a/b" with "a"'],
            id="a file below a file",
        ),
        pytest.param(
            volume(secret={"secretName": "s", "items": files("a/b", "a")}),
            ['volume "v" (Secret "s"): overlapping paths: "a" with "a/b"'],
            id="a file above a file",
        ),
        pytest.param(
            volume(downwardAPI={"items": [{"path": "a"}, {"path": "a"}]}),
            ['volume "v" (DownwardAPI): overlapping paths: "a" with "a"'],
            id="a file on a file",
        ),
        pytest.param(
            volume(
                projected={
                    "sources": [
                        {"clusterTrustBundle": {"signerName": "T", "path": "t/t"}},
                        {"downwardAPI": {"items": [{"path": "t"}]}},
                        {"secret": {"name": "S", "items": files("t")}},
                        {"configMap": {"name": "M", "items": files("x")}},
                        {"serviceAccountToken": {"path": "x"}},
                        {"podCertificate": {"credentialBundlePath": "x"}},
                    ]
                }
            ),
            [
                'volume "v" (Projected): overlapping paths: "t" (DownwardAPI) with "t/t" (ClusterTrustBundle "T")',
                'volume "v" (Projected): overlapping paths: "t" (Secret "S") with "t/t" (ClusterTrustBundle "T")',
                'volume "v" (Projected): overlapping paths: "t" (Secret "S") with "t" (DownwardAPI)',
                'volume "v" (Projected): overlapping paths: "x" (ServiceAccountToken) with "x" (ConfigMap "M")',
                (
                    'volume "v" (Projected): overlapping paths: "x" (PodCertificate credential '
                    'bundle) with "x" (ConfigMap "M")'
                ),
                (
                    'volume "v" (Projected): overlapping paths: "x" (PodCertificate credential bundle) with "x" '
                    "(ServiceAccountToken)"
                ),
            ],
            id="files of several sources",
        ),
        pytest.param(
            volume(projected={"sources": [{}]}),
            ['volume "v" (Projected) has no sources provided'],
            id="an empty source",
        ),
        pytest.param(
            {"metadata": {"annotations": {"security.alpha.kubernetes.io/sysctls": "x"}}},
            [
                (
                    "metadata.annotations[security.alpha.kubernetes.io/sysctls]: non-functional in v1.11+; "
                    'use the "sysctls" field instead'
                )
            ],
            id="an annotation of old",
        ),
        pytest.param(
            {
                "metadata": {
                    "annotations": {
                        "seccomp.security.alpha.kubernetes.io/pod": "x",
                        "container.seccomp.security.alpha.kubernetes.io/c": "x",
                        "container.apparmor.security.beta.kubernetes.io/c": "x",
                    }
                }
            },
            [
                f"metadata.annotations[seccomp.security.alpha.kubernetes.io/pod]: {SECCOMP}",
                f"metadata.annotations[container.seccomp.security.alpha.kubernetes.io/c]: {SECCOMP}",
                f"metadata.annotations[container.apparmor.security.beta.kubernetes.io/c]: {ARMOR}",
            ],
            id="profiles in annotations",
        ),
    ],
)
def test_warnings(make_pod, patch, expected):
    assert list(warnings_for_pod_create(make_pod(patch))) == expected


def test_a_negative_grace_period_is_seen_before_defaults(make_pod):
    pod = make_pod({"spec": {"terminationGracePeriodSeconds": -1}}, defaults=False)
    assert warnings_for_pod_create(pod) == (
        "spec.terminationGracePeriodSeconds: must be >= 0; negative values are invalid and will be treated as 1",
    )
