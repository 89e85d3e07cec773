import pytest

from klet.api.validation import formats

[LABEL] = formats.dns_label("A")
[SUBDOMAIN] = formats.dns_subdomain("A")
MODE = "must be a number between 0 and 0777 (octal), both inclusive"
TYPES = '"", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"'

V = "spec.volumes[0]"


@pytest.mark.parametrize(
    ("volume", "expected"),
    [
        pytest.param({"name": ""}, [f"{V}.name: Required value"], id="a name is needed"),
        pytest.param({"name": "A"}, [f'{V}.name: Invalid value: "A": {LABEL}'], id="the name is a label"),
        pytest.param({"emptyDir": {"sizeLimit": "1Gi"}}, [], id="a limited directory"),
        pytest.param(
            {"emptyDir": {"sizeLimit": "-1"}},
            [f"{V}.emptyDir.sizeLimit: Forbidden: SizeLimit field must be a valid resource quantity"],
            id="a directory of negative size",
        ),
        pytest.param({"hostPath": {"path": "/a"}}, [], id="a host path"),
        pytest.param({"hostPath": {"path": ""}}, [f"{V}.hostPath.path: Required value"], id="a host path needs a path"),
        pytest.param(
            {"hostPath": {"path": "/a/../b"}},
            [f"{V}.hostPath.path: Invalid value: \"/a/../b\": must not contain '..'"],
            id="a host path with backsteps",
        ),
        pytest.param(
            {"hostPath": {"path": "/a", "type": "x"}},
            [f'{V}.hostPath.type: Unsupported value: "x": supported values: {TYPES}'],
            id="a host path of an unknown type",
        ),
        pytest.param(
            {"emptyDir": {}, "hostPath": {"path": "/a"}, "downwardAPI": {}, "cephfs": {"monitors": ["m"]}},
            [
                f"{V}.hostPath: Forbidden: may not specify more than 1 volume type",
                f"{V}.cephFS: Forbidden: may not specify more than 1 volume type",
                f"{V}.downwarAPI: Forbidden: may not specify more than 1 volume type",
            ],
            id="one source only",
        ),
        pytest.param({"secret": {}}, [f"{V}.secret.secretName: Required value"], id="a secret needs its name"),
        pytest.param(
            {"secret": {"secretName": "s", "defaultMode": 512}},
            [f"{V}.secret.defaultMode: Invalid value: 512: {MODE}"],
            id="a secret's mode",
        ),
        pytest.param({"configMap": {}}, [f"{V}.configMap.name: Required value"], id="a config map needs its name"),
        pytest.param(
            {"configMap": {"name": "c", "defaultMode": -1, "items": [{"key": "", "path": "", "mode": 512}]}},
            [
                f"{V}.configMap.defaultMode: Invalid value: -1: {MODE}",
                f"{V}.configMap.items[0].key: Required value",
                f"{V}.configMap.items[0].path: Required value",
                f"{V}.configMap.items[0].mode: Invalid value: 512: {MODE}",
            ],
            id="items need key and path",
        ),
        pytest.param(
            {"secret": {"secretName": "s", "items": [{"key": "k", "path": path} for path in ("/a", "a/../b", "..a")]}},
            [
                f'{V}.secret.items[0].path: Invalid value: "/a": must be a relative path',
                f"{V}.secret.items[1].path: Invalid value: \"a/../b\": must not contain '..'",
                f"{V}.secret.items[2].path: Invalid value: \"..a\": must not start with '..'",
            ],
            id="items stay inside the volume",
        ),
        pytest.param(
            {"persistentVolumeClaim": {}},
            [f"{V}.persistentVolumeClaim.claimName: Required value"],
            id="a claim needs its name",
        ),
        pytest.param(
            {"nfs": {}},
            [
                f"{V}.nfs.server: Required value",
                f"{V}.nfs.path: Required value",
                f'{V}.nfs.path: Invalid value: "": must be an absolute path',
            ],
            id="nfs needs server and path",
        ),
        pytest.param(
            {"csi": {"driver": ""}},
            [f"{V}.csi.driver: Required value", f'{V}.csi.driver: Invalid value: "": {SUBDOMAIN}'],
            id="csi needs a driver",
        ),
        pytest.param(
            {"csi": {"driver": "D" * 64}},
            [f"{V}.csi.driver: Too long: may not be more than 63 bytes"],
            id="a long driver",
        ),
        pytest.param(
            {"csi": {"driver": "d", "nodePublishSecretRef": {}}},
            [f"{V}.csi.nodePublishSecretRef.name: Required value"],
            id="a csi secret without a name",
        ),
        pytest.param(
            {"csi": {"driver": "d", "nodePublishSecretRef": {"name": "A"}}},
            [f'{V}.csi.name: Invalid value: "A": {SUBDOMAIN}'],
            id="a csi secret with a bad name",
        ),
        pytest.param({"image": {}}, [f"{V}.image.reference: Required value"], id="an image volume needs a reference"),
        pytest.param(
            {"image": {"pullPolicy": "x"}},
            [
                f"{V}.image.reference: Required value",
                f'{V}.image.pullPolicy: Unsupported value: "x": supported values: "Always", "IfNotPresent", "Never"',
            ],
            id="an image volume's pull policy",
        ),
        pytest.param(
            {"ephemeral": {}},
            [f"{V}.ephemeral.volumeClaimTemplate: Required value"],
            id="an ephemeral volume's template",
        ),
    ],
)
def test_volume(errors_of, volume, expected):
    assert errors_of({"spec": {"volumes": [{"name": "v", **volume}]}}) == expected


def test_a_volume_needs_a_source(errors_of):
    found = errors_of({"spec": {"volumes": [{"name": "v"}]}}, defaults=False)
    assert f"{V}: Required value: must specify a volume type" in found


def test_volume_names_are_unique(errors_of):
    found = errors_of({"spec": {"volumes": [{"name": "v"}, {"name": "v"}]}})
    assert found == ['spec.volumes[1].name: Duplicate value: "v"']


def test_outside_of_the_api_an_image_volume_may_leave_its_reference_to_others(errors_of):
    assert errors_of({"spec": {"volumes": [{"name": "v", "image": {}}]}}, resource_is_pod=False) == []


TEMPLATE = {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}


def test_a_claim_volume_may_not_name_the_claim_of_an_ephemeral_volume(errors_of):
    volumes = [
        {"name": "e", "ephemeral": {"volumeClaimTemplate": TEMPLATE}},
        {"name": "v", "persistentVolumeClaim": {"claimName": "pod-e"}},
    ]
    assert errors_of({"spec": {"volumes": volumes}}) == [
        (
            'spec.volumes[1].persistentVolumeClaim.claimName: Invalid value: "pod-e": '
            "must not reference a PVC that gets created for an ephemeral volume"
        )
    ]


def test_the_claim_of_an_ephemeral_volume_has_a_valid_name(errors_of):
    name = "p" * 253
    volumes = [{"name": "e", "ephemeral": {"volumeClaimTemplate": TEMPLATE}}]
    assert errors_of({"metadata": {"name": name}, "spec": {"volumes": volumes}}) == [
        f'spec.volumes[0].name: Invalid value: "e": PVC name "{name}-e": must be no more than 253 characters'
    ]
