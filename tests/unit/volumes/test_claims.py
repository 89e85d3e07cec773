"""Which volume a claim leads to, or why to none."""

import pytest

from klet.api.claim import PersistentVolumeClaim
from klet.api.codec import convert
from klet.api.storage import PersistentVolume
from klet.volumes.claims import build_spec, check_claim, check_name, check_volume, claim_of
from klet.volumes.errors import ClaimError

ERROR = "error processing PVC ns/c: "
DELETED = "2030-01-01T00:00:00Z"
CLAIM = {"name": "v", "persistentVolumeClaim": {"claimName": "c"}}
EPHEMERAL = {"name": "v", "ephemeral": {"volumeClaimTemplate": {}}}


def claim(*, phase="Bound", volume="pv", **meta):
    metadata = {"name": "c", "namespace": "ns", "uid": "claim", **meta}
    body = {"metadata": metadata, "spec": {"volumeName": volume}, "status": {"phase": phase}}
    return convert(PersistentVolumeClaim, body)


def volume(*, ref="claim", mode="Filesystem"):
    spec = {"hostPath": {"path": "/"}, "volumeMode": mode, "claimRef": None if ref is None else {"uid": ref}}
    return convert(PersistentVolume, {"metadata": {"name": "pv"}, "spec": spec})


@pytest.mark.parametrize(
    ("found", "error"),
    [
        pytest.param(claim(deletionTimestamp=DELETED), f"{ERROR}PVC is being deleted", id="it is being deleted"),
        pytest.param(claim(phase="Pending"), f"{ERROR}PVC is not bound", id="it is not bound"),
        pytest.param(claim(volume=""), f"{ERROR}PVC has empty pvc.Spec.VolumeName", id="it names no volume"),
        pytest.param(claim(volume="../x"), "invalid pvc.Spec.VolumeName", id="its volume has a hostile name"),
    ],
)
def test_a_claim_that_leads_nowhere(pod_with, found, error):
    pod = pod_with(CLAIM)
    with pytest.raises(ClaimError) as caught:
        check_claim(claim_of(pod, pod.spec.volumes[0]), pod, found)
    assert error in str(caught.value)


def test_a_claim_that_is_protected_while_it_is_used(pod_with):
    pod = pod_with(CLAIM)
    found = claim(deletionTimestamp=DELETED, finalizers=["kubernetes.io/pvc-protection"])
    assert check_claim(claim_of(pod, pod.spec.volumes[0]), pod, found) == "pv"


@pytest.mark.parametrize(
    ("found", "error"),
    [
        pytest.param(
            volume(ref=None),
            f"{ERROR}found PV object pv but it has a nil pv.Spec.ClaimRef indicating it is not yet bound to the claim",
            id="it is bound to no claim",
        ),
        pytest.param(
            volume(ref="other"),
            f"{ERROR}found PV object pv but its pv.Spec.ClaimRef.UID other does not point to claim.UID claim",
            id="it is bound to another claim",
        ),
    ],
)
def test_a_volume_of_others(pod_with, found, error):
    pod = pod_with(CLAIM)
    with pytest.raises(ClaimError) as caught:
        check_volume(claim_of(pod, pod.spec.volumes[0]), claim(), found)
    assert str(caught.value) == error


def test_a_generic_ephemeral_volume_belongs_to_its_pod(pod_with):
    pod = pod_with(EPHEMERAL)
    use = claim_of(pod, pod.spec.volumes[0])
    assert (use.name, use.is_ephemeral) == ("p-v", True)
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": True}
    assert check_claim(use, pod, claim(ownerReferences=[owner])) == "pv"
    with pytest.raises(ClaimError, match=r"PVC ns/c was not created for pod ns/p \(pod is not owner\)"):
        check_claim(use, pod, claim())


@pytest.mark.parametrize(
    ("mode", "error"),
    [
        pytest.param(None, "cannot get volumeMode for volume: v", id="no mode"),
        pytest.param("Block", "volume v has volumeMode Block, but is specified in volumeMounts", id="a block volume"),
    ],
)
def test_a_mode_that_does_not_fit(pod_with, mode, error):
    pod = pod_with(CLAIM)
    with pytest.raises(ClaimError, match=error):
        build_spec(claim_of(pod, pod.spec.volumes[0]), pod, pod.spec.volumes[0], volume(mode=mode))


def test_the_last_of_two_names_decides_whether_it_is_read_only(pod_with):
    later = {"name": "w", "persistentVolumeClaim": {"claimName": "c", "readOnly": True}}
    pod = pod_with(CLAIM, later)
    assert [claim_of(pod, each).read_only for each in pod.spec.volumes] == [True, True]


def test_a_hostile_claim_name_is_never_part_of_a_url(pod_with):
    pod = pod_with({"name": "v", "persistentVolumeClaim": {"claimName": "../secrets/x"}})
    with pytest.raises(ClaimError, match="invalid claim name"):
        check_name(claim_of(pod, pod.spec.volumes[0]))
