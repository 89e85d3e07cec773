"""In-tree volumes as those of CSI drivers."""

import pytest

from klet.api.codec import convert, to_builtins
from klet.api.storage import PersistentVolume
from klet.api.volume import Volume
from klet.volumes.errors import VolumeSetupError
from klet.volumes.migration.translate import translate_to_csi
from klet.volumes.spec import VolumeSpec

DISK = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/d"


def persistent(source, *, labels=None, annotations=None, **spec):
    meta = {"name": "pv", "labels": labels or {}, "annotations": annotations or {}}
    return VolumeSpec(Volume(name="data"), convert(PersistentVolume, {"metadata": meta, "spec": {**source, **spec}}))


def inline(source):
    return VolumeSpec(convert(Volume, {"name": "data", **source}))


def csi_of(spec):
    found = translate_to_csi(spec, "ns")
    assert found.is_migrated
    return to_builtins(found.persistent.spec.csi)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        pytest.param(
            {"awsElasticBlockStore": {"volumeID": "aws://us-west-2a/vol-1", "fsType": "xfs", "readOnly": True}},
            {
                "driver": "ebs.csi.aws.com",
                "volumeHandle": "vol-1",
                "fsType": "xfs",
                "readOnly": True,
                "volumeAttributes": {"partition": "0"},
            },
            id="awsElasticBlockStore",
        ),
        pytest.param(
            {"gcePersistentDisk": {"pdName": "d", "partition": 2, "fsType": "ext4"}},
            {
                "driver": "pd.csi.storage.gke.io",
                "volumeHandle": "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/d",
                "fsType": "ext4",
                "volumeAttributes": {"partition": "2"},
            },
            id="gcePersistentDisk",
        ),
        pytest.param(
            {
                "azureDisk": {
                    "diskName": "d",
                    "diskURI": DISK,
                    "cachingMode": "None",
                    "fsType": "ext4",
                    "readOnly": True,
                }
            },
            {
                "driver": "disk.csi.azure.com",
                "volumeHandle": DISK,
                "fsType": "ext4",
                "readOnly": True,
                "volumeAttributes": {"kind": "Managed", "cachingMode": "None", "fsType": "ext4"},
            },
            id="azureDisk",
        ),
        pytest.param(
            {"cinder": {"volumeID": "v", "fsType": "ext4", "readOnly": True}},
            {"driver": "cinder.csi.openstack.org", "volumeHandle": "v", "fsType": "ext4", "readOnly": True},
            id="cinder",
        ),
        pytest.param(
            {"vsphereVolume": {"volumePath": "[ds] a/b.vmdk", "fsType": "ext4", "storagePolicyName": "gold"}},
            {
                "driver": "csi.vsphere.vmware.com",
                "volumeHandle": "[ds] a/b.vmdk",
                "fsType": "ext4",
                "volumeAttributes": {"storagepolicyname": "gold"},
            },
            id="vsphereVolume",
        ),
        pytest.param(
            {"portworxVolume": {"volumeID": "v", "fsType": "ext4", "readOnly": True}},
            {"driver": "pxd.portworx.com", "volumeHandle": "v", "fsType": "ext4"},
            id="portworxVolume, whose driver does not learn that it is read-only",
        ),
    ],
)
def test_volumes_of_pods_and_persistent_ones_become_the_same(source, expected):
    assert csi_of(inline(source)) == expected
    assert csi_of(persistent(source)) == expected


@pytest.mark.parametrize(
    ("source", "name", "modes"),
    [
        pytest.param(
            {"awsElasticBlockStore": {"volumeID": "vol-1"}}, "ebs.csi.aws.com-vol-1", ("ReadWriteOnce",), id="EBS"
        ),
        pytest.param(
            {"gcePersistentDisk": {"pdName": "d", "readOnly": True}},
            "pd.csi.storage.gke.io-d",
            ("ReadOnlyMany",),
            id="a disk for readers",
        ),
        pytest.param(
            {"gcePersistentDisk": {"pdName": "d"}}, "pd.csi.storage.gke.io-d", ("ReadWriteOnce",), id="a disk"
        ),
        pytest.param({"azureDisk": {"diskName": "d", "diskURI": DISK}}, DISK, ("ReadWriteOnce",), id="azureDisk"),
        pytest.param(
            {"azureFile": {"secretName": "azure-storage-account-acc-secret", "shareName": "s"}},
            "#acc#s#data#ns",
            ("ReadWriteMany",),
            id="azureFile",
        ),
        pytest.param({"cinder": {"volumeID": "v"}}, "cinder.csi.openstack.org-v", ("ReadWriteOnce",), id="cinder"),
        pytest.param(
            {"vsphereVolume": {"volumePath": "p"}}, "csi.vsphere.vmware.com-p", ("ReadWriteOnce",), id="vSphere"
        ),
        pytest.param(
            {"portworxVolume": {"volumeID": "v", "readOnly": True}},
            "pxd.portworx.com-v",
            ("ReadOnlyMany",),
            id="portworx",
        ),
    ],
)
def test_an_inline_volume_is_named_after_its_disk(source, name, modes):
    found = translate_to_csi(inline(source), "ns")
    assert (found.name, found.persistent.spec.access_modes, found.persistent.spec.volume_mode, found.read_only) == (
        name,
        modes,
        "Filesystem",
        False,
    )


def test_a_share_of_a_pod_has_its_secret_in_the_pods_namespace():
    source = {"azureFile": {"secretName": "key", "shareName": "s", "readOnly": True}}
    assert csi_of(inline(source)) == {
        "driver": "file.csi.azure.com",
        "volumeHandle": "#key#s#data#ns",
        "readOnly": True,
        "volumeAttributes": {"sharename": "s"},
        "nodeStageSecretRef": {"name": "key", "namespace": "ns"},
    }


@pytest.mark.parametrize(
    ("more", "handle", "namespace"),
    [
        pytest.param({"secretNamespace": "own"}, "#key#s#pv#own", "own", id="a namespace of its own"),
        pytest.param({}, "#key#s#pv#claims", "claims", id="that of the claim"),
    ],
)
def test_a_persistent_share_has_its_secret_elsewhere(more, handle, namespace):
    spec = persistent(
        {"azureFile": {"secretName": "key", "shareName": "s", **more}}, claimRef={"namespace": "claims", "name": "c"}
    )
    found = csi_of(spec)
    assert (found["volumeHandle"], found["nodeStageSecretRef"]["namespace"]) == (handle, namespace)


def test_the_resource_group_of_a_share_is_part_of_its_handle():
    spec = persistent(
        {"azureFile": {"secretName": "key", "shareName": "s", "secretNamespace": "n"}},
        annotations={"kubernetes.io/azure-file-resource-group": "rg"},
    )
    assert csi_of(spec)["volumeHandle"] == "rg#key#s#pv#n"


def test_secrets_of_portworx_come_from_annotations():
    annotations = {"openstorage.io/auth-secret-name": "s", "openstorage.io/auth-secret-namespace": "n"}
    found = csi_of(persistent({"portworxVolume": {"volumeID": "v"}}, annotations=annotations))
    assert found["nodeStageSecretRef"] == found["nodePublishSecretRef"] == {"name": "s", "namespace": "n"}
    half = {"openstorage.io/auth-secret-name": "s"}
    assert "nodeStageSecretRef" not in csi_of(persistent({"portworxVolume": {"volumeID": "v"}}, annotations=half))


@pytest.mark.parametrize(
    ("modes", "expected"),
    [
        (("ReadWriteMany",), ("ReadWriteOnce",)),
        (("ReadOnlyMany", "ReadWriteOnce"), ("ReadWriteOnce",)),
        (("ReadOnlyMany", "ReadWriteMany"), ("ReadWriteOnce",)),
        (("ReadOnlyMany",), ("ReadOnlyMany",)),
        (("ReadWriteOnce",), ("ReadWriteOnce",)),
        (("ReadWriteOncePod",), ("ReadWriteOnce",)),
        ((), ()),
    ],
)
def test_access_modes_of_google_disks_are_those_that_the_driver_serves(modes, expected):
    found = translate_to_csi(persistent({"gcePersistentDisk": {"pdName": "d"}}, accessModes=list(modes)), "ns")
    assert found.persistent.spec.access_modes == expected


def test_the_rest_of_a_persistent_volume_stays():
    spec = persistent({"cinder": {"volumeID": "v"}}, volumeMode="Block", mountOptions=["noatime"])
    found = translate_to_csi(spec, "ns")
    assert (found.is_block, found.mount_options, found.name, found.persistent.spec.cinder) == (
        True,
        ("noatime",),
        "pv",
        None,
    )


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param(inline({"emptyDir": {}}), id="a scratch directory"),
        pytest.param(inline({"csi": {"driver": "d"}}), id="CSI already"),
        pytest.param(persistent({"nfs": {"server": "s", "path": "/"}}), id="NFS"),
    ],
)
def test_other_volumes_stay_what_they_are(spec):
    assert translate_to_csi(spec, "ns") is spec


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        pytest.param(
            persistent({"awsElasticBlockStore": {"volumeID": "aws://us-west-2a/02399794"}}),
            "failed to translate Kubernetes ID to EBS Volume ID Invalid format for AWS volume "
            "(aws://us-west-2a/02399794)",
            id="no EBS volume",
        ),
        pytest.param(
            inline({"azureDisk": {"diskName": "d", "diskURI": DISK, "kind": "Shared"}}),
            "kind(Shared) is not supported in csi migration",
            id="no managed disk",
        ),
        pytest.param(
            persistent({"azureFile": {"secretName": "k", "shareName": "s"}}),
            "could not find a secret namespace in PersistentVolumeSource or ClaimRef",
            id="no namespace",
        ),
        pytest.param(
            persistent(
                {"gcePersistentDisk": {"pdName": "d"}}, labels={"topology.kubernetes.io/zone": "us-a1-a__eu-b1-b"}
            ),
            "failed to get region from zones: multiple or no regions gotten from zones, got: map[eu-b1 us-a1]",
            id="zones of two regions",
        ),
    ],
)
def test_what_cannot_be_translated_says_why(spec, message):
    with pytest.raises(VolumeSetupError) as caught:
        translate_to_csi(spec, "ns")
    assert str(caught.value) == f"failed to translate in-tree pv to CSI: {message}"


@pytest.mark.parametrize(
    ("labels", "handle"),
    [
        ({"topology.kubernetes.io/zone": "us-central1-a"}, "projects/UNSPECIFIED/zones/us-central1-a/disks/d"),
        (
            {"failure-domain.beta.kubernetes.io/zone": "us-central1-a__us-central1-b"},
            "projects/UNSPECIFIED/regions/us-central1/disks/d",
        ),
        ({}, "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/d"),
    ],
)
def test_zones_are_part_of_the_handle_of_google_disks(labels, handle):
    assert csi_of(persistent({"gcePersistentDisk": {"pdName": "d"}}, labels=labels))["volumeHandle"] == handle
