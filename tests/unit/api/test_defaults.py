import pytest

from klet.api.codec import convert, to_builtins
from klet.api.defaults import default_pod
from klet.api.pod import Pod


def defaulted(manifest):
    return to_builtins(default_pod(convert(Pod, manifest)))


def pod(spec=None, container=None):
    return {"spec": {"containers": [{"name": "c", "image": "i:1", **(container or {})}], **(spec or {})}}


def spec_of(spec=None, container=None):
    return defaulted(pod(spec, container))["spec"]


def container_of(container, spec=None):
    return spec_of(spec, container)["containers"][0]


def volume_of(source):
    return spec_of({"volumes": [{"name": "v", **source}]})["volumes"][0]


def test_a_small_pod_gets_all_its_defaults():
    assert spec_of() == {
        "containers": [
            {
                "name": "c",
                "image": "i:1",
                "imagePullPolicy": "IfNotPresent",
                "terminationMessagePath": "/dev/termination-log",
                "terminationMessagePolicy": "File",
            }
        ],
        "dnsPolicy": "ClusterFirst",
        "enableServiceLinks": True,
        "restartPolicy": "Always",
        "schedulerName": "default-scheduler",
        "securityContext": {},
        "terminationGracePeriodSeconds": 30,
    }


def test_what_is_given_stays():
    given = {
        "dnsPolicy": "None",
        "enableServiceLinks": False,
        "restartPolicy": "Never",
        "schedulerName": "mine",
        "securityContext": {"runAsUser": 1},
        "terminationGracePeriodSeconds": 0,
    }
    container = {
        "imagePullPolicy": "Never",
        "terminationMessagePath": "/x",
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    found = spec_of(given, container)
    assert found["containers"] == [{"name": "c", "image": "i:1", **container}]
    assert {key: found[key] for key in given} == given


def test_applying_the_defaults_again_changes_nothing():
    volumes = [{"name": "a"}, {"name": "b", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}]
    container = {"resources": {"limits": {"cpu": "0.0001"}}, "livenessProbe": {"httpGet": {"port": 1}}}
    once = default_pod(convert(Pod, pod({"volumes": volumes, "hostNetwork": True}, container)))
    assert default_pod(once) == once


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        pytest.param(-5, 1, id="negative is one"),
        pytest.param(0, 0, id="zero stays"),
        pytest.param(5, 5, id="five stays"),
    ],
)
def test_grace_period(seconds, expected):
    assert spec_of({"terminationGracePeriodSeconds": seconds})["terminationGracePeriodSeconds"] == expected


@pytest.mark.parametrize(
    ("given", "requests"),
    [
        pytest.param({"limits": {"cpu": "1", "memory": "1Gi"}}, {"cpu": "1", "memory": "1Gi"}, id="from the limits"),
        pytest.param(
            {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m"}},
            {"cpu": "500m", "memory": "1Gi"},
            id="what is given wins",
        ),
        pytest.param({"requests": {"cpu": "1"}}, {"cpu": "1"}, id="without limits"),
    ],
)
def test_requests(given, requests):
    assert container_of({"resources": given})["resources"]["requests"] == requests
    init = spec_of({"initContainers": [{"name": "i", "image": "i", "resources": given}]})["initContainers"][0]
    assert init["resources"]["requests"] == requests


def test_ephemeral_containers_get_policies_but_no_requests():
    found = spec_of({"ephemeralContainers": [{"name": "e", "image": "i", "resources": {"limits": {"cpu": "1"}}}]})
    assert found["ephemeralContainers"] == [
        {
            "name": "e",
            "image": "i",
            "imagePullPolicy": "Always",
            "terminationMessagePath": "/dev/termination-log",
            "terminationMessagePolicy": "File",
            "resources": {"limits": {"cpu": "1"}},
        }
    ]


@pytest.mark.parametrize(
    ("pod_level", "container", "expected"),
    [
        pytest.param({}, {"limits": {"cpu": "1"}}, {}, id="nothing asked at pod level"),
        pytest.param(
            {"limits": {"cpu": "2"}},
            {"requests": {"cpu": "1", "memory": "1Gi"}},
            {"limits": {"cpu": "2"}, "requests": {"cpu": "1", "memory": "1Gi"}},
            id="requests of the containers",
        ),
        pytest.param(
            {"limits": {"cpu": "2", "memory": "1Gi"}},
            {},
            {"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "2", "memory": "1Gi"}},
            id="requests of the limits",
        ),
        pytest.param(
            {"requests": {"cpu": "2"}},
            {"requests": {"memory": "1Gi"}},
            {"requests": {"cpu": "2"}},
            id="without limits nothing is added",
        ),
        pytest.param(
            {"requests": {"cpu": "2"}},
            {"limits": {"hugepages-2Mi": "4Mi", "cpu": "1"}},
            {"limits": {"hugepages-2Mi": "4Mi"}, "requests": {"cpu": "2", "hugepages-2Mi": "4Mi"}},
            id="hugepages of the containers",
        ),
        pytest.param(
            {"requests": {"cpu": "2", "hugepages-2Mi": "8Mi"}, "limits": {"hugepages-2Mi": "8Mi"}},
            {"limits": {"hugepages-2Mi": "4Mi", "cpu": "1"}},
            {"limits": {"hugepages-2Mi": "8Mi"}, "requests": {"cpu": "2", "hugepages-2Mi": "8Mi"}},
            id="given hugepages win",
        ),
    ],
)
def test_pod_level_resources(pod_level, container, expected):
    assert spec_of({"resources": pod_level}, {"resources": container})["resources"] == expected


def test_in_the_network_of_the_host_ports_are_ports_of_the_host():
    ports = [{"containerPort": 80}, {"containerPort": 81, "hostPort": 82}]
    found = spec_of(
        {"hostNetwork": True, "initContainers": [{"name": "i", "image": "i", "ports": ports}]}, {"ports": ports}
    )
    expected = [
        {"containerPort": 80, "hostPort": 80, "protocol": "TCP"},
        {"containerPort": 81, "hostPort": 82, "protocol": "TCP"},
    ]
    assert found["containers"][0]["ports"] == expected
    assert found["initContainers"][0]["ports"] == expected


PROBE = {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param({"tcpSocket": {"port": 1}}, PROBE | {"tcpSocket": {"port": 1}}, id="numbers"),
        pytest.param(
            {"exec": {}, "timeoutSeconds": 5, "initialDelaySeconds": 2, "failureThreshold": -1},
            PROBE | {"exec": {}, "timeoutSeconds": 5, "initialDelaySeconds": 2, "failureThreshold": -1},
            id="given numbers stay",
        ),
        pytest.param(
            {"httpGet": {"port": 1}}, PROBE | {"httpGet": {"port": 1, "path": "/", "scheme": "HTTP"}}, id="a request"
        ),
        pytest.param({"grpc": {"port": 1}}, PROBE | {"grpc": {"port": 1, "service": ""}}, id="a service, though empty"),
    ],
)
def test_probes(given, expected):
    found = container_of({"livenessProbe": given, "readinessProbe": given, "startupProbe": given})
    assert [found[name] for name in ("livenessProbe", "readinessProbe", "startupProbe")] == [expected] * 3


def test_hooks():
    hooks = {"postStart": {"httpGet": {"port": 1}}, "preStop": {"sleep": {"seconds": 1}}}
    assert container_of({"lifecycle": hooks})["lifecycle"] == {
        "postStart": {"httpGet": {"port": 1, "path": "/", "scheme": "HTTP"}},
        "preStop": {"sleep": {"seconds": 1}},
    }


def test_variables():
    env = [
        {"name": "A", "value": "x"},
        {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "C", "valueFrom": {"fileKeyRef": {"volumeName": "v", "path": "p", "key": "k"}}},
    ]
    assert container_of({"env": env})["env"] == [
        env[0],
        {"name": "B", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}},
        {"name": "C", "valueFrom": {"fileKeyRef": {"volumeName": "v", "path": "p", "key": "k", "optional": False}}},
    ]


def test_amounts_are_rounded_up_to_thousandths():
    tiny = {"cpu": "0.0001"}
    found = defaulted(
        {
            **pod({"overhead": tiny, "resources": {"requests": tiny}}, {"resources": {"requests": tiny}}),
            "status": {
                "allocatedResources": tiny,
                "resources": {"limits": tiny},
                "containerStatuses": [{"name": "c", "allocatedResources": tiny, "resources": {"requests": tiny}}],
            },
        }
    )
    status = found["status"]["containerStatuses"][0]
    assert [
        found["spec"]["overhead"],
        found["spec"]["resources"]["requests"],
        found["spec"]["containers"][0]["resources"]["requests"],
        found["status"]["allocatedResources"],
        found["status"]["resources"]["limits"],
        status["allocatedResources"],
        status["resources"]["requests"],
    ] == [{"cpu": "1m"}] * 7


FIELD = {"path": "p", "fieldRef": {"fieldPath": "metadata.name"}}
FULL_FIELD = {"path": "p", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param({}, {"emptyDir": {}}, id="no source is an empty directory"),
        pytest.param(
            {"image": {"reference": "x"}}, {"image": {"reference": "x", "pullPolicy": "Always"}}, id="a new image"
        ),
        pytest.param(
            {"image": {"reference": "x:1"}},
            {"image": {"reference": "x:1", "pullPolicy": "IfNotPresent"}},
            id="an old image",
        ),
        pytest.param(
            {"hostPath": {"path": "/a"}}, {"hostPath": {"path": "/a", "type": ""}}, id="any type of host path"
        ),
        pytest.param(
            {"secret": {"secretName": "s"}}, {"secret": {"secretName": "s", "defaultMode": 420}}, id="a secret"
        ),
        pytest.param(
            {"secret": {"secretName": "s", "defaultMode": 0}},
            {"secret": {"secretName": "s", "defaultMode": 0}},
            id="mode 0",
        ),
        pytest.param({"configMap": {"name": "c"}}, {"configMap": {"name": "c", "defaultMode": 420}}, id="a config map"),
        pytest.param(
            {"downwardAPI": {"items": [FIELD]}},
            {"downwardAPI": {"items": [FULL_FIELD], "defaultMode": 420}},
            id="fields",
        ),
        pytest.param(
            {"projected": {"sources": [{"serviceAccountToken": {"path": "t"}}, {"downwardAPI": {"items": [FIELD]}}]}},
            {
                "projected": {
                    "defaultMode": 420,
                    "sources": [
                        {"serviceAccountToken": {"path": "t", "expirationSeconds": 3600}},
                        {"downwardAPI": {"items": [FULL_FIELD]}},
                    ],
                }
            },
            id="projections",
        ),
        pytest.param(
            {"iscsi": {"targetPortal": "p", "iqn": "i", "lun": 0}},
            {"iscsi": {"targetPortal": "p", "iqn": "i", "lun": 0, "iscsiInterface": "default"}},
            id="iscsi",
        ),
        pytest.param(
            {"rbd": {"monitors": ["m"], "image": "i"}},
            {"rbd": {"monitors": ["m"], "image": "i", "pool": "rbd", "user": "admin", "keyring": "/etc/ceph/keyring"}},
            id="rbd",
        ),
        pytest.param(
            {"azureDisk": {"diskName": "d", "diskURI": "u"}},
            {
                "azureDisk": {
                    "diskName": "d",
                    "diskURI": "u",
                    "cachingMode": "ReadWrite",
                    "fsType": "ext4",
                    "readOnly": False,
                    "kind": "Shared",
                }
            },
            id="azureDisk",
        ),
        pytest.param(
            {"scaleIO": {"gateway": "g", "system": "s"}},
            {"scaleIO": {"gateway": "g", "system": "s", "storageMode": "ThinProvisioned", "fsType": "xfs"}},
            id="scaleIO",
        ),
        pytest.param(
            {"ephemeral": {"volumeClaimTemplate": {"spec": {"accessModes": ["x"]}}}},
            "Filesystem",
            id="an ephemeral volume",
        ),
    ],
)
def test_volumes(given, expected):
    found = volume_of(given)
    if "ephemeral" in given:
        assert found["ephemeral"]["volumeClaimTemplate"]["spec"]["volumeMode"] == expected
    else:
        assert found == {"name": "v", **expected}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param({"serviceAccount": "a"}, "a", id="the old name alone"),
        pytest.param({"serviceAccountName": "b"}, "b", id="the new name alone"),
        pytest.param({"serviceAccount": "a", "serviceAccountName": "b"}, "b", id="the new name wins"),
    ],
)
def test_both_names_of_the_account_are_equal(spec, expected):
    found = spec_of(spec)
    assert (found["serviceAccount"], found["serviceAccountName"]) == (expected, expected)


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        pytest.param({"podIP": "1.1.1.1"}, ("1.1.1.1", [{"ip": "1.1.1.1"}]), id="one address"),
        pytest.param(
            {"podIPs": [{"ip": "::1"}, {"ip": "1.1.1.1"}]}, ("::1", [{"ip": "::1"}, {"ip": "1.1.1.1"}]), id="a list"
        ),
        pytest.param(
            {"podIP": "2.2.2.2", "podIPs": [{"ip": "::1"}]}, ("2.2.2.2", [{"ip": "2.2.2.2"}]), id="both differ"
        ),
        pytest.param({}, (None, None), id="none"),
    ],
)
def test_addresses_agree(status, expected):
    found = defaulted({**pod(), "status": status})["status"]
    assert (found.get("podIP"), found.get("podIPs")) == expected


def test_annotations_of_old_are_dropped():
    annotations = {
        "pod.beta.kubernetes.io/init-containers": "x",
        "pod.alpha.kubernetes.io/init-containers": "x",
        "pod.beta.kubernetes.io/init-container-statuses": "x",
        "pod.alpha.kubernetes.io/init-container-statuses": "x",
        "mine": "y",
    }
    assert defaulted({"metadata": {"annotations": annotations}, **pod()})["metadata"]["annotations"] == {"mine": "y"}
