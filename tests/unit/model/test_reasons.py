"""Words of decisions, and what they are as Events."""

import pytest

from klet.journal.records import LONGEST_WORD
from klet.model.reasons import EventType, OutOfResource, Reason, UnknownReason, read_reason


@pytest.mark.parametrize("reason", Reason, ids=lambda reason: reason.name)
def test_a_reason_is_one_printable_word_that_fits_into_a_record(reason):
    # Only the names of resources have hyphens.
    assert str(reason).replace("-", "").isalnum()
    assert str(reason)[0].isupper()
    assert len(reason) <= LONGEST_WORD
    assert type(str(reason)) is str


def test_only_back_offs_share_a_word():
    by_word = {}
    for reason in Reason:
        by_word.setdefault(str(reason), []).append(reason)
    shared = {word: reasons for word, reasons in by_word.items() if len(reasons) > 1}
    assert shared == {"BackOff": [Reason.BACK_OFF_RESTARTING_CONTAINER, Reason.BACK_OFF_PULLING_IMAGE]}
    # Waiting for an image is usual; a container that keeps failing is not.
    assert [reason.event_type for reason in shared["BackOff"]] == [EventType.WARNING, EventType.NORMAL]


@pytest.mark.parametrize("reason", Reason, ids=lambda reason: reason.name)
def test_a_word_on_disk_is_read_as_the_reason_that_wrote_it(reason):
    found = read_reason(str(reason))
    assert isinstance(found, Reason)
    assert found == reason


NORMAL = """
    Starting NodeAllocatableEnforced NodeReady NodeNotReady NodeSchedulable NodeNotSchedulable NodeHasSufficientMemory
    NodeHasInsufficientMemory NodeHasNoDiskPressure NodeHasDiskPressure NodeHasSufficientPID NodeHasInsufficientPID
    DeadlineExceeded SandboxChanged Created Started Killing Pulling Pulled BackOff
    SuccessfulMountVolume SuccessfulAttachVolume FileSystemResizeSuccessful
"""
WARNING = """
    SystemOOM OOMKilling FailedNodeAllocatableEnforcement
    Rebooted CgroupV1 PossibleMemoryBackedVolumesOnDisk ContainerGCFailed CheckLimitsForResolvConf MissingClusterDNS
    ImageGCFailed FreeDiskSpaceFailed InvalidDiskCapacity
    DNSConfigForming PodFeatureUnsupported FailedNodeDeclaredFeaturesCheck
    Denied CertificateOverdueForRefresh CertificateExpired
    SysctlForbidden NodePorts TaintToleration PodOSNotSupported PodOSSelectorNodeLabelDoesNotMatch
    TopologyAffinityError SMTAlignmentError
    InvalidNodeInfo NodeAffinity NodeName OutOfcpu OutOfmemory OutOfephemeral-storage
    OutOfpods AppArmor SupplementalGroupsPolicyNotSupported UnexpectedAdmissionError Preempting HostIPsIPFamilyMismatch
    FailedPrepareDynamicResources PodLevelResourcesNotSupported
    ExceededGracePeriod FailedKillPod FailedCreatePodContainer Failed FailedMount AlreadyMountedVolume
    VolumeConditionAbnormal
    VolumePermissionChangeInProgress
    VolumeAttachmentLimitExceeded FailedMapVolume FailedAttachVolume FailedMountOnFilesystemMismatch
    VolumeResizeFailed FileSystemResizeFailed
    NetworkNotReady FailedSync
    FailedValidation FailedToRetrieveImagePullSecret FailedCreatePodSandBox FailedPodSandBoxStatus
    LifecycleHTTPFallback InspectFailed ErrImageNeverPull Unhealthy ProbeWarning FailedPostStartHook
    FailedPreStopHook BackOff
"""


@pytest.mark.parametrize(("event_type", "words"), [(EventType.NORMAL, NORMAL), (EventType.WARNING, WARNING)])
def test_upstreams_reasons_are_events_of_upstreams_type(event_type, words):
    assert {str(reason) for reason in Reason if reason.event_type is event_type} == set(words.split())


def test_a_resource_of_a_vendor_makes_a_warning():
    found = read_reason("OutOfexample.com/gpu")
    assert (found, type(found), found.event_type) == ("OutOfexample.com/gpu", OutOfResource, EventType.WARNING)


def test_a_word_of_another_version_is_read_and_means_no_event():
    found = read_reason("Teleported")
    assert (found, type(found), found.event_type) == ("Teleported", UnknownReason, None)
