"""Every decision that the agent records, and what it means for Events.

A reason is the one word that users read for a decision, in Events, in the journal and in `/klet/v1`. Words that are
Events are upstream's. Two reasons may share a word and differ as Events; they are equal then, as records on disk are.
"""

from enum import StrEnum
from typing import Final, Self, TypeAlias


class EventType(StrEnum):
    """How an Event is meant."""

    NORMAL = "Normal"
    WARNING = "Warning"


_NORMAL: Final = EventType.NORMAL
_WARNING: Final = EventType.WARNING


class Reason(StrEnum):
    """A decision; without an event type it stays in the journal."""

    event_type: EventType | None

    def __new__(cls, word: str, event_type: EventType | None = None, identity: str = "") -> Self:
        reason = str.__new__(cls, word)
        reason._value_ = identity or word
        reason.event_type = event_type
        return reason

    # The agent and its node.
    AGENT_STARTED = "AgentStarted"
    AGENT_RESTARTED = "AgentRestarted"
    STARTING = "Starting", _NORMAL
    CGROUP_V1 = "CgroupV1", _WARNING
    POSSIBLE_MEMORY_BACKED_VOLUMES_ON_DISK = "PossibleMemoryBackedVolumesOnDisk", _WARNING
    REBOOTED = "Rebooted", _WARNING
    SYSTEM_OOM = "SystemOOM", _WARNING
    NODE_ALLOCATABLE_ENFORCED = "NodeAllocatableEnforced", _NORMAL
    NODE_ALLOCATABLE_ENFORCEMENT_FAILED = "FailedNodeAllocatableEnforcement", _WARNING
    QOS_CGROUP_REPAIRED = "QosCgroupRepaired"
    NODE_REBOOTED = "NodeRebooted"
    STATE_FILE_DAMAGED = "StateFileDamaged"
    NODE_REGISTERED = "NodeRegistered"
    NODE_ADOPTED = "NodeAdopted"
    NODE_READY = "NodeReady", _NORMAL
    NODE_NOT_READY = "NodeNotReady", _NORMAL
    NODE_SCHEDULABLE = "NodeSchedulable", _NORMAL
    NODE_NOT_SCHEDULABLE = "NodeNotSchedulable", _NORMAL
    NODE_HAS_SUFFICIENT_MEMORY = "NodeHasSufficientMemory", _NORMAL
    NODE_HAS_INSUFFICIENT_MEMORY = "NodeHasInsufficientMemory", _NORMAL
    NODE_HAS_NO_DISK_PRESSURE = "NodeHasNoDiskPressure", _NORMAL
    NODE_HAS_DISK_PRESSURE = "NodeHasDiskPressure", _NORMAL
    NODE_HAS_SUFFICIENT_PID = "NodeHasSufficientPID", _NORMAL
    NODE_HAS_INSUFFICIENT_PID = "NodeHasInsufficientPID", _NORMAL
    RUNTIME_READY = "RuntimeReady"
    RUNTIME_NOT_READY = "RuntimeNotReady"
    NETWORK_READY = "NetworkReady"
    NETWORK_NOT_READY = "NetworkNotReady", _WARNING
    CHECK_LIMITS_FOR_RESOLV_CONF = "CheckLimitsForResolvConf", _WARNING
    CONTAINER_GC_FAILED = "ContainerGCFailed", _WARNING
    IMAGE_GC_FAILED = "ImageGCFailed", _WARNING
    FREE_DISK_SPACE_FAILED = "FreeDiskSpaceFailed", _WARNING
    INVALID_DISK_CAPACITY = "InvalidDiskCapacity", _WARNING
    IMAGE_COLLECTED = "ImageCollected"

    # The API server and the certificates.
    API_SERVER_AWAY = "ApiServerAway"
    API_SERVER_BACK = "ApiServerBack"
    STARTED_FROM_MEMORY = "StartedFromMemory"
    CERTIFICATE_REQUESTED = "CertificateRequested"
    CERTIFICATE_IN_FORCE = "CertificateInForce"
    CERTIFICATE_NOT_RENEWED = "CertificateNotRenewed"
    CLIENT_CERTIFICATE_LOST = "ClientCertificateLost"
    POD_CERTIFICATE_DENIED = "Denied", _WARNING
    CERTIFICATE_OVERDUE_FOR_REFRESH = "CertificateOverdueForRefresh", _WARNING
    CERTIFICATE_EXPIRED = "CertificateExpired", _WARNING

    # Sources of pods.
    SOURCE_AVAILABLE = "SourceAvailable"
    SOURCE_UNAVAILABLE = "SourceUnavailable"
    MANIFEST_REJECTED = "ManifestRejected"
    MANIFEST_SETTLED = "ManifestSettled"
    FAILED_VALIDATION = "FailedValidation", _WARNING
    POD_ADDED = "PodAdded"
    POD_UPDATED = "PodUpdated"
    POD_REMOVED = "PodRemoved"
    READINESS_GATE = "ReadinessGate"
    RESIZE_PENDING = "ResizePending"

    # Admission: a pod that is not admitted, or not yet.
    ADMISSION_WAITS = "AdmissionWaits"
    SYSCTL_FORBIDDEN = "SysctlForbidden", _WARNING
    POD_OS_NOT_SUPPORTED = "PodOSNotSupported", _WARNING
    POD_OS_SELECTOR_DOES_NOT_MATCH = "PodOSSelectorNodeLabelDoesNotMatch", _WARNING
    NODE_PORTS = "NodePorts", _WARNING
    TAINT_TOLERATION = "TaintToleration", _WARNING
    SUPPLEMENTAL_GROUPS_POLICY_NOT_SUPPORTED = "SupplementalGroupsPolicyNotSupported", _WARNING
    INVALID_NODE_INFO = "InvalidNodeInfo", _WARNING
    NODE_AFFINITY = "NodeAffinity", _WARNING
    NODE_NAME = "NodeName", _WARNING
    OUT_OF_CPU = "OutOfcpu", _WARNING
    OUT_OF_MEMORY = "OutOfmemory", _WARNING
    OUT_OF_EPHEMERAL_STORAGE = "OutOfephemeral-storage", _WARNING
    OUT_OF_PODS = "OutOfpods", _WARNING
    APP_ARMOR = "AppArmor", _WARNING
    VOLUME_ATTACHMENT_LIMIT_EXCEEDED = "VolumeAttachmentLimitExceeded", _WARNING
    TOPOLOGY_AFFINITY_ERROR = "TopologyAffinityError", _WARNING
    TOPOLOGY_ALIGNED = "TopologyAligned"
    RUNS_WITHOUT_OWN_RESOURCES = "RunsWithoutOwnResources"
    MEMORY_ALLOCATED = "MemoryAllocated"
    SMT_ALIGNMENT_ERROR = "SMTAlignmentError", _WARNING
    EXCLUSIVE_CPUS = "ExclusiveCpus"
    EXCLUSIVE_CPUS_RELEASED = "ExclusiveCpusReleased"
    SHARED_CPUS = "SharedCpus"
    CPUS_CHANGED = "CpusChanged"
    CPUS_NOT_SET = "CpusNotSet"
    UNEXPECTED_ADMISSION_ERROR = "UnexpectedAdmissionError", _WARNING
    PREEMPTING = "Preempting", _WARNING
    POD_LEVEL_RESOURCES_NOT_SUPPORTED = "PodLevelResourcesNotSupported", _WARNING
    POD_FEATURE_UNSUPPORTED = "PodFeatureUnsupported", _WARNING
    NODE_DECLARED_FEATURES_CHECK_FAILED = "FailedNodeDeclaredFeaturesCheck", _WARNING

    # The lifecycle of a pod.
    ADOPTED = "Adopted"
    PHASE_CHANGED = "PhaseChanged"
    READY = "Ready"
    NOT_READY = "NotReady"
    HOST_IPS_IP_FAMILY_MISMATCH = "HostIPsIPFamilyMismatch", _WARNING
    DEADLINE_EXCEEDED = "DeadlineExceeded", _NORMAL
    FAILED_SYNC = "FailedSync", _WARNING
    TERMINATE = "Terminate"
    EXCEEDED_GRACE_PERIOD = "ExceededGracePeriod", _WARNING
    STOPPED = "Stopped"
    FINISHED = "Finished"
    REMOVED = "Removed"

    # What a pod needs before its containers.
    POD_CGROUP_MISSING = "PodCgroupMissing"
    FAILED_CREATE_POD_CONTAINER = "FailedCreatePodContainer", _WARNING
    FAILED_MOUNT = "FailedMount", _WARNING
    FAILED_UNMOUNT = "FailedUnmount"
    FAILED_MAP_VOLUME = "FailedMapVolume", _WARNING
    SUCCESSFUL_MOUNT_VOLUME = "SuccessfulMountVolume", _NORMAL
    FAILED_ATTACH_VOLUME = "FailedAttachVolume", _WARNING
    SUCCESSFUL_ATTACH_VOLUME = "SuccessfulAttachVolume", _NORMAL
    VOLUME_NOT_ATTACHED = "VolumeNotAttached"
    FAILED_DETACH_VOLUME = "FailedDetachVolume"
    FAILED_UNMOUNT_DEVICE = "FailedUnmountDevice"
    FAILED_MOUNT_ON_FILESYSTEM_MISMATCH = "FailedMountOnFilesystemMismatch", _WARNING
    VOLUME_RESIZE_FAILED = "VolumeResizeFailed", _WARNING
    FILE_SYSTEM_RESIZE_FAILED = "FileSystemResizeFailed", _WARNING
    FILE_SYSTEM_RESIZE_SUCCESSFUL = "FileSystemResizeSuccessful", _NORMAL
    ALREADY_MOUNTED_VOLUME = "AlreadyMountedVolume", _WARNING
    VOLUME_PERMISSION_CHANGE_IN_PROGRESS = "VolumePermissionChangeInProgress", _WARNING
    VOLUME_CONDITION_ABNORMAL = "VolumeConditionAbnormal", _WARNING
    VOLUMES_NOT_MOUNTED = "VolumesNotMounted"
    FAILED_TO_RETRIEVE_IMAGE_PULL_SECRET = "FailedToRetrieveImagePullSecret", _WARNING
    MISSING_CLUSTER_DNS = "MissingClusterDNS", _WARNING
    DNS_CONFIG_FORMING = "DNSConfigForming", _WARNING
    CREATE_SANDBOX = "CreateSandbox"
    SANDBOX_CREATED = "SandboxCreated"
    FAILED_PREPARE_DYNAMIC_RESOURCES = "FailedPrepareDynamicResources", _WARNING
    SANDBOX_CHANGED = "SandboxChanged", _NORMAL
    FAILED_CREATE_POD_SANDBOX = "FailedCreatePodSandBox", _WARNING
    FAILED_POD_SANDBOX_STATUS = "FailedPodSandBoxStatus", _WARNING
    HOST_PORT_HELD = "HostPortHeld"

    # Images.
    PULLING = "Pulling", _NORMAL
    PULL_WAITS = "PullWaits"
    PULL_BEGINS = "PullBegins"
    PULLED = "Pulled", _NORMAL
    INSPECT_FAILED = "InspectFailed", _WARNING
    ERR_IMAGE_NEVER_PULL = "ErrImageNeverPull", _WARNING
    CREDENTIAL_PROVIDER_FAILED = "CredentialProviderFailed"

    # Containers.
    START_CONTAINER = "StartContainer"
    START_INIT_CONTAINER = "StartInitContainer"
    RESTART_CONTAINER = "RestartContainer"
    RESTART_ALL_CONTAINERS = "RestartAllContainers"
    CREATED = "Created", _NORMAL
    STARTED = "Started", _NORMAL
    FAILED = "Failed", _WARNING
    BACK_OFF_RESTARTING_CONTAINER = "BackOff", _WARNING
    BACK_OFF_PULLING_IMAGE = "BackOff", _NORMAL, "BackOffPullingImage"
    EXITED = "Exited"
    POST_START_HOOK = "PostStartHook"
    FAILED_POST_START_HOOK = "FailedPostStartHook", _WARNING
    UNHEALTHY = "Unhealthy", _WARNING
    PROBE_WARNING = "ProbeWarning", _WARNING
    PROBE_PERIODS_IGNORED = "ProbePeriodsIgnored"
    LIFECYCLE_HTTP_FALLBACK = "LifecycleHTTPFallback", _WARNING
    LOG_NOT_ROTATED = "LogNotRotated"
    OOM_KILLING = "OOMKilling", _WARNING

    # Stopping.
    KILL_POD = "KillPod"
    KILL_CONTAINER = "KillContainer"
    KILLING = "Killing", _NORMAL
    FAILED_KILL_POD = "FailedKillPod", _WARNING
    FAILED_KILL_CONTAINER = "FailedKillContainer"
    FAILED_REMOVE_CONTAINER = "FailedRemoveContainer"
    PRE_STOP_HOOK = "PreStopHook"
    PRE_STOP_HOOK_UNFINISHED = "PreStopHookUnfinished"
    FAILED_PRE_STOP_HOOK = "FailedPreStopHook", _WARNING
    RUNTIME_NOT_ANSWERING = "RuntimeNotAnswering"
    RUNTIME_ANSWERED = "RuntimeAnswered"


class UnknownReason(str):
    """A word in the journal of another version, which this one has no reason for."""

    __slots__ = ()

    event_type: Final = None


class OutOfResource(str):
    """The rejection of a pod for want of a resource that not every node has; the name of the resource is part of it."""

    __slots__ = ()

    event_type: Final = EventType.WARNING


RejectionReason: TypeAlias = Reason | OutOfResource
AnyReason: TypeAlias = RejectionReason | UnknownReason

OUT_OF: Final = "OutOf"
"""How the reasons begin that name a resource."""


def read_reason(word: str) -> AnyReason:
    """Return the reason that a record names. Reading never fails: another version may have had other words."""
    try:
        return Reason(word)
    except ValueError:
        return OutOfResource(word) if word.startswith(OUT_OF) else UnknownReason(word)
