import pytest

from klet.api.validation import formats

[LABEL] = formats.dns_label("A")
PORTS = "must be a host:port pair or multiple pairs separated by commas"
V = "spec.volumes[0]"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        pytest.param(
            {"gitRepo": {"directory": "/a"}},
            [
                f"{V}.gitRepo.repository: Required value",
                f'{V}.gitRepo.directory: Invalid value: "/a": must be a relative path',
            ],
            id="gitRepo",
        ),
        pytest.param(
            {"gcePersistentDisk": {"partition": 256}},
            [
                f"{V}.persistentDisk.pdName: Required value",
                f"{V}.persistentDisk.partition: Invalid value: 256: must be between 1 and 255, inclusive",
            ],
            id="gcePersistentDisk",
        ),
        pytest.param(
            {"awsElasticBlockStore": {"partition": -1}},
            [
                f"{V}.awsElasticBlockStore.volumeID: Required value",
                f"{V}.awsElasticBlockStore.partition: Invalid value: -1: must be between 1 and 255, inclusive",
            ],
            id="awsElasticBlockStore",
        ),
        pytest.param(
            {"iscsi": {"lun": 256, "chapAuthSession": True}},
            [
                f"{V}.iscsi.targetPortal: Required value",
                f"{V}.iscsi.iqn: Required value",
                f"{V}.iscsi.lun: Invalid value: 256: must be between 0 and 255, inclusive",
                f"{V}.iscsi.secretRef: Required value",
            ],
            id="iscsi",
        ),
        pytest.param(
            {"iscsi": {"targetPortal": "p", "iqn": "iqn.2015-02.example.com:test", "initiatorName": "naa." + "1" * 32}},
            [],
            id="iscsi with good names",
        ),
        pytest.param(
            {"iscsi": {"targetPortal": "p", "iqn": "x", "initiatorName": "eui.1"}},
            [
                f'{V}.iscsi.iqn: Invalid value: "x": must be valid format starting with iqn, eui, or naa',
                f'{V}.iscsi.initiatorname: Invalid value: "eui.1": must be valid format',
            ],
            id="iscsi with bad names",
        ),
        pytest.param(
            {"iscsi": {"targetPortal": "p" * 63, "iqn": "iqn.2015-02.a:b", "initiatorName": "iqn.2015-02.a:b"}},
            [
                (
                    f'{V}.name: Invalid value: "v": Total length of <volume '
                    "name>:<iscsi.targetPortal> must be under 64 "
                    "characters if iscsi.initiatorName is specified."
                )
            ],
            id="iscsi with a long portal",
        ),
        pytest.param(
            {"glusterfs": {}},
            [f"{V}.glusterfs.endpoints: Required value", f"{V}.glusterfs.path: Required value"],
            id="glusterfs",
        ),
        pytest.param(
            {"flocker": {}},
            [f"{V}.flocker: Required value: one of datasetName and datasetUUID is required"],
            id="an empty flocker",
        ),
        pytest.param(
            {"flocker": {"datasetName": "a/b", "datasetUUID": "u"}},
            [
                (
                    f'{V}.flocker: Invalid value: "resource": datasetName and datasetUUID can not be '
                    "specified simultaneously"
                ),
                f"{V}.flocker.datasetName: Invalid value: \"a/b\": must not contain '/'",
            ],
            id="a full flocker",
        ),
        pytest.param({"rbd": {}}, [f"{V}.rbd.monitors: Required value", f"{V}.rbd.image: Required value"], id="rbd"),
        pytest.param(
            {"cinder": {"secretRef": {}}},
            [f"{V}.cinder.volumeID: Required value", f"{V}.cinder.secretRef.name: Required value"],
            id="cinder",
        ),
        pytest.param({"cephfs": {}}, [f"{V}.cephfs.monitors: Required value"], id="cephfs"),
        pytest.param(
            {"quobyte": {}},
            [f"{V}.quobyte.registry: Required value: {PORTS}", f"{V}.quobyte.volume: Required value"],
            id="an empty quobyte",
        ),
        pytest.param(
            {"quobyte": {"registry": "a:1,b", "volume": "v"}},
            [f'{V}.quobyte.registry: Invalid value: "a:1,b": {PORTS}'],
            id="quobyte with a bad registry",
        ),
        pytest.param(
            {"quobyte": {"registry": "[::1]:1", "volume": "v", "tenant": "t" * 65}},
            [f"{V}.quobyte.tenant: Required value: must be a UUID and may not exceed a length of 64 characters"],
            id="quobyte with a long tenant",
        ),
        pytest.param(
            {"fc": {}},
            [f"{V}.fc.targetWWNs: Required value: must specify either targetWWNs or wwids, but not both"],
            id="an empty fc",
        ),
        pytest.param(
            {"fc": {"targetWWNs": ["a"], "wwids": ["b"]}},
            [
                f'{V}.fc.targetWWNs: Invalid value: ["a"]: targetWWNs and wwids can not be specified simultaneously',
                f"{V}.fc.lun: Required value: lun is required if targetWWNs is specified",
            ],
            id="a full fc",
        ),
        pytest.param(
            {"fc": {"targetWWNs": ["a"], "lun": 256}},
            [f"{V}.fc.lun: Invalid value: 256: must be between 0 and 255, inclusive"],
            id="fc with a far lun",
        ),
        pytest.param(
            {"flexVolume": {"options": {"a.K8S.io/x": "1", "mine.io/y": "2"}}},
            [
                f"{V}.flexVolume.driver: Required value",
                (
                    f'{V}.flexVolume.options[a.K8S.io/x]: Invalid value: "a.K8S.io/x": '
                    "kubernetes.io and k8s.io namespaces "
                    "are reserved"
                ),
            ],
            id="flexVolume",
        ),
        pytest.param(
            {"azureFile": {}},
            [f"{V}.azureFile.secretName: Required value", f"{V}.azureFile.shareName: Required value"],
            id="azureFile",
        ),
        pytest.param(
            {"azureDisk": {"cachingMode": "x", "kind": "y"}},
            [
                f"{V}.azureDisk.diskName: Required value",
                f"{V}.azureDisk.diskURI: Required value",
                f'{V}.azureDisk.cachingMode: Unsupported value: "x": supported values: "None", "ReadOnly", "ReadWrite"',
                f'{V}.azureDisk.kind: Unsupported value: "y": supported values: "Dedicated", "Managed", "Shared"',
                (
                    f'{V}.azureDisk.diskURI: Unsupported value: "": supported values: '
                    '"https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd"'
                ),
            ],
            id="azureDisk",
        ),
        pytest.param(
            {"azureDisk": {"diskName": "d", "diskURI": "https://x", "kind": "Managed"}},
            [
                (
                    f'{V}.azureDisk.diskURI: Unsupported value: "https://x": supported values: '
                    f'"/subscriptions/{{sub-id}}/'
                    'resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}"'
                )
            ],
            id="a managed azureDisk",
        ),
        pytest.param({"vsphereVolume": {}}, [f"{V}.vsphereVolume.volumePath: Required value"], id="vsphereVolume"),
        pytest.param(
            {"photonPersistentDisk": {}}, [f"{V}.photonPersistentDisk.pdID: Required value"], id="photonPersistentDisk"
        ),
        pytest.param({"portworxVolume": {}}, [f"{V}.portworxVolume.volumeID: Required value"], id="portworxVolume"),
        pytest.param(
            {"scaleIO": {}},
            [
                f"{V}.scaleIO.gateway: Required value",
                f"{V}.scaleIO.system: Required value",
                f"{V}.scaleIO.volumeName: Required value",
            ],
            id="scaleIO",
        ),
        pytest.param(
            {"storageos": {"volumeNamespace": "A", "secretRef": {}}},
            [
                f"{V}.storageos.volumeName: Required value",
                f'{V}.storageos.volumeNamespace: Invalid value: "A": {LABEL}',
                f"{V}.storageos.secretRef.name: Required value",
            ],
            id="storageos",
        ),
        pytest.param(
            {"storageos": {"volumeName": "A"}},
            [f'{V}.storageos.volumeName: Invalid value: "A": {LABEL}'],
            id="a bad name",
        ),
    ],
)
def test_sources_of_network_storage(errors_of, source, expected):
    assert errors_of({"spec": {"volumes": [{"name": "v", **source}]}}) == expected
