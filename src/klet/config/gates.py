"""Feature gates as a value: which exist, what they default to, and how a set of overrides resolves."""

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from enum import StrEnum

from msgspec import Struct

from klet.config.errors import ConfigError

ALL_ALPHA = "AllAlpha"
ALL_BETA = "AllBeta"


class Maturity(StrEnum):
    """The maturity of a feature (upstream: its prerelease stage)."""

    ALPHA = "ALPHA"
    BETA = "BETA"
    GA = ""
    DEPRECATED = "DEPRECATED"


class Gate(Struct, frozen=True):
    """A feature that can be switched, or could be before it was locked."""

    name: str
    stage: Maturity
    default: bool
    locked: bool = False
    needs: tuple[str, ...] = ()
    """The gates without which it cannot be on."""


class FeatureGates(Struct, frozen=True):
    """The state of every known gate."""

    values: Mapping[str, bool]

    def enabled(self, name: str) -> bool:
        """Return whether a known gate is on; asking for an unknown one is a mistake in klet and raises KeyError."""
        return self.values[name]


def resolve_gates(overrides: Mapping[str, bool]) -> FeatureGates:
    """Apply overrides to the defaults; AllAlpha and AllBeta move only gates that are not named themselves."""
    if problems := tuple(find_gate_problems(overrides)):
        raise ConfigError(join_problems(problems))
    return FeatureGates(_apply(overrides))


def find_gate_problems(overrides: Mapping[str, bool]) -> tuple[str, ...]:
    """Name each override of a gate that does not exist or cannot be moved; if there is none, each broken dependency."""
    return tuple(_find_bad_overrides(overrides)) or tuple(_find_missing_needs(_apply(overrides)))


def _find_bad_overrides(overrides: Mapping[str, bool]) -> Iterator[str]:
    for name, value in sorted(overrides.items()):
        gate = KNOWN_GATES.get(name)
        if gate is None:
            near = get_close_matches(name, KNOWN_GATES, n=1, cutoff=0.75)
            yield f"unrecognized feature gate: {name}{f' (did you mean {near[0]}?)' if near else ''}"
        elif gate.locked and value != gate.default:
            yield f"cannot set feature gate {name} to {_go(value)}, feature is locked to {_go(gate.default)}"


def _find_missing_needs(values: Mapping[str, bool]) -> Iterator[str]:
    """Name each gate that is on without one it needs. What a default switches on counts like what was asked for."""
    for name, gate in sorted(KNOWN_GATES.items()):
        missing = [need for need in gate.needs if not values[need]]
        if values[name] and missing:
            yield f"{name} is enabled, but depends on features that are disabled: [{' '.join(missing)}]"


def _apply(overrides: Mapping[str, bool]) -> Mapping[str, bool]:
    values = {gate.name: gate.default for gate in KNOWN_GATES.values()}
    for group, stage in ((ALL_ALPHA, Maturity.ALPHA), (ALL_BETA, Maturity.BETA)):
        if group in overrides:
            in_stage = [gate.name for gate in KNOWN_GATES.values() if gate.stage is stage]
            values.update(dict.fromkeys(in_stage, overrides[group]))
    values.update(overrides)
    return values


def describe_ageing_gates(overrides: Mapping[str, bool]) -> tuple[str, ...]:
    """Warn about overrides of gates that are on their way out."""
    words = {Maturity.GA: "GA", Maturity.DEPRECATED: "deprecated"}
    return tuple(
        f"Setting {words[gate.stage]} feature gate {name}={_go(value)}. It will be removed in a future release."
        for name, value in sorted(overrides.items())
        if (gate := KNOWN_GATES.get(name)) is not None and gate.stage in words
    )


def describe_gates() -> tuple[str, ...]:
    """List the gates that are worth showing in the help text."""
    return tuple(
        f"{gate.name}=true|false ({gate.stage.value} - default={_go(gate.default)})"
        for _, gate in sorted(KNOWN_GATES.items())
        if gate.stage in (Maturity.ALPHA, Maturity.BETA)
    )


def join_problems(problems: tuple[str, ...]) -> str:
    """Join messages as upstream's aggregate errors do."""
    return problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]"


def _go(value: bool) -> str:  # noqa: FBT001 - a formatter of booleans
    return "true" if value else "false"


def _gates(names: str, stage: Maturity, *, default: bool, locked: bool = False) -> tuple[Gate, ...]:
    return tuple(Gate(name, stage, default, locked, _NEEDS.get(name, ())) for name in names.split())


_NEEDS: Mapping[str, tuple[str, ...]] = {
    "AuthorizeNodeWithSelectors": ("AuthorizeWithSelectors",),
    "ClusterTrustBundleProjection": ("ClusterTrustBundle",),
    "DRAAdminAccess": ("DynamicResourceAllocation",),
    "DRAConsumableCapacity": ("DynamicResourceAllocation",),
    "DRADeviceBindingConditions": ("DRAResourceClaimDeviceStatus", "DynamicResourceAllocation"),
    "DRADeviceTaintRules": ("DRADeviceTaints",),
    "DRADeviceTaints": ("DynamicResourceAllocation",),
    "DRAExtendedResource": ("DynamicResourceAllocation",),
    "DRAPartitionableDevices": ("DynamicResourceAllocation",),
    "DRAPrioritizedList": ("DynamicResourceAllocation",),
    "DRASchedulerFilterTimeout": ("DynamicResourceAllocation",),
    "DeclarativeValidationTakeover": ("DeclarativeValidation",),
    "DisableAllocatorDualWrite": ("MultiCIDRServiceAllocator",),
    "GangScheduling": ("GenericWorkload",),
    "GracefulNodeShutdownBasedOnPodPriority": ("GracefulNodeShutdown",),
    "InPlacePodLevelResourcesVerticalScaling": (
        "InPlacePodVerticalScaling",
        "NodeDeclaredFeatures",
        "PodLevelResources",
    ),
    "InPlacePodVerticalScalingAllocatedStatus": ("InPlacePodVerticalScaling",),
    "InPlacePodVerticalScalingExclusiveCPUs": ("InPlacePodVerticalScaling",),
    "InPlacePodVerticalScalingExclusiveMemory": ("InPlacePodVerticalScaling", "MemoryManager"),
    "MatchLabelKeysInPodTopologySpreadSelectorMerge": ("MatchLabelKeysInPodTopologySpread",),
    "PodCertificateRequest": ("AuthorizeNodeWithSelectors",),
    "PodLifecycleSleepActionAllowZero": ("PodLifecycleSleepAction",),
    "ProcMountType": ("UserNamespacesSupport",),
    "ResourceHealthStatus": ("DynamicResourceAllocation",),
    "RestartAllContainersOnContainerExits": ("ContainerRestartRules", "NodeDeclaredFeatures"),
    "ServiceAccountTokenNodeBinding": ("ServiceAccountTokenNodeBindingValidation",),
    "StorageVersionAPI": ("APIServerIdentity",),
    "StructuredAuthenticationConfigurationEgressSelector": ("StructuredAuthenticationConfiguration",),
    "StructuredAuthenticationConfigurationJWKSMetrics": ("StructuredAuthenticationConfiguration",),
    "UnknownVersionInteroperabilityProxy": ("APIServerIdentity",),
    "UserNamespacesHostNetworkSupport": ("UserNamespacesSupport",),
    "WindowsCPUAndMemoryAffinity": ("MemoryManager",),
    "WindowsGracefulNodeShutdown": ("GracefulNodeShutdown",),
}

KUBELET_GATES = (
    *_gates(
        """
        CPUManagerPolicyOptions DynamicResourceAllocation ExecProbeTimeout ImageMaximumGCAge InPlacePodVerticalScaling
        KubeletCgroupDriverFromCRI KubeletTracing MemoryManager NodeSwap PodLifecycleSleepAction
        PodLifecycleSleepActionAllowZero PodObservedGenerationTracking RecursiveReadOnlyMounts
        RelaxedDNSSearchValidation RelaxedEnvironmentVariableValidation SidecarContainers SupplementalGroupsPolicy
        SystemdWatchdog
        """,
        Maturity.GA,
        default=True,
        locked=True,
    ),
    *_gates("InformerResourceVersion TopologyManagerPolicyOptions", Maturity.GA, default=True),
    *_gates(
        """
        AllowParsingUserUIDFromCertAuth CPUManagerPolicyBetaOptions CSIServiceAccountTokenSecrets ContainerCheckpoint
        ContainerRestartRules ContextualLogging DRAAdminAccess DRAPrioritizedList DRAResourceClaimDeviceStatus
        DisableCPUQuotaWithExclusiveCPUs EnvFiles GracefulNodeShutdown GracefulNodeShutdownBasedOnPodPriority
        HostnameOverride ImageVolume InOrderInformers InOrderInformersBatchProcess KubeletCrashLoopBackOffMax
        KubeletEnsureSecretPulledImages KubeletFineGrainedAuthz KubeletPSI KubeletPodResourcesDynamicResources
        KubeletPodResourcesGet KubeletSeparateDiskGC KubeletServiceAccountTokenForCredentialProviders LoggingBetaOptions
        MutableCSINodeAllocatableCount PodLevelResources PodReadyToStartContainersCondition
        PreventStaticPodAPIReferences ProcMountType ReloadKubeletServerCertificateFile RotateKubeletServerCertificate
        SELinuxChangePolicy SELinuxMountReadWriteOncePod TopologyManagerPolicyBetaOptions UserNamespacesSupport
        WatchListClient
        """,
        Maturity.BETA,
        default=True,
    ),
    *_gates(
        """
        ClusterTrustBundleProjection LocalStorageCapacityIsolationFSQuotaMonitoring NodeLogQuery PodCertificateRequest
        SELinuxMount
        """,
        Maturity.BETA,
        default=False,
    ),
    *_gates(
        """
        CPUManagerPolicyAlphaOptions CSIVolumeHealth ClientsAllowCBOR ClientsPreferCBOR ComponentFlagz ComponentStatusz
        ContainerStopSignals CustomCPUCFSQuotaPeriod DRAConsumableCapacity DRADeviceBindingConditions
        DRADeviceTaintRules DRADeviceTaints DRAExtendedResource DRAPartitionableDevices EventedPLEG GenericWorkload
        InPlacePodLevelResourcesVerticalScaling InPlacePodVerticalScalingExclusiveCPUs
        InPlacePodVerticalScalingExclusiveMemory KubeletInUserNamespace LoggingAlphaOptions MemoryQoS
        NodeDeclaredFeatures PodAndContainerStatsFromCRI PodLogsQuerySplitStreams QOSReserved
        ReduceDefaultCrashLoopBackOffDecay ResourceHealthStatus RestartAllContainersOnContainerExits
        RuntimeClassInImageCriApi StrictIPCIDRValidation TaintTolerationComparisonOperators
        TopologyManagerPolicyAlphaOptions UserNamespacesHostNetworkSupport VolumeLimitScaling
        """,
        Maturity.ALPHA,
        default=False,
    ),
    *_gates("DisableNodeKubeProxyVersion KubeletPodResourcesListUseActivePods", Maturity.DEPRECATED, default=True),
    *_gates(
        """
        AllowDNSOnlyNodeCSR ChangeContainerStatusOnKubeletRestart GitRepoVolumeDriver
        InPlacePodVerticalScalingAllocatedStatus KubeletRegistrationGetOnExistsOnly
        """,
        Maturity.DEPRECATED,
        default=False,
    ),
    *_gates("AllowOverwriteTerminationGracePeriodSeconds", Maturity.DEPRECATED, default=False, locked=True),
)

# Gates of other components, and of Windows, that upstream's kubelet accepts and never asks about, so that one
# `featureGates` map can be shared by all components of a cluster.
_FOREIGN_GATES = (
    *_gates(
        """
        APIServerTracing AnonymousAuthConfigurableEndpoints AnyVolumeDataSource AuthorizeNodeWithSelectors
        AuthorizeWithSelectors BtreeWatchCache CRDValidationRatcheting CSIMigrationPortworx ConsistentListFromCache
        CustomResourceFieldSelectors DisableAllocatorDualWrite HonorPVReclaimPolicy JobBackoffLimitPerIndex JobManagedBy
        JobPodReplacementPolicy JobSuccessPolicy LogarithmicScaleDown MatchLabelKeysInPodAffinity
        MultiCIDRServiceAllocator NFTablesProxyMode NodeInclusionPolicyInPodTopologySpread OrderedNamespaceDeletion
        PodSchedulingReadiness PreferSameTrafficDistribution RecoverVolumeExpansionFailure
        ResilientWatchCacheInitialization RetryGenerateName SchedulerQueueingHints SeparateTaintEvictionController
        ServiceAccountTokenJTI ServiceAccountTokenNodeBinding ServiceAccountTokenNodeBindingValidation
        ServiceAccountTokenPodNodeInfo ServiceTrafficDistribution StreamingCollectionEncodingToJSON
        StreamingCollectionEncodingToProtobuf StructuredAuthenticationConfiguration StructuredAuthorizationConfiguration
        TopologyAwareHints WinDSR WinOverlay
        """,
        Maturity.GA,
        default=True,
        locked=True,
    ),
    *_gates("VolumeAttributesClass", Maturity.GA, default=True),
    *_gates(
        """
        APIResponseCompression APIServerIdentity AuthorizePodWebsocketUpgradeCreatePermission
        ClearingNominatedNodeNameAfterBinding DRASchedulerFilterTimeout DeclarativeValidation
        DeploymentReplicaSetTerminatingReplicas DetectCacheInconsistency ExternalServiceAccountTokenSigner
        HPAConfigurableTolerance ListFromCacheSnapshot MatchLabelKeysInPodTopologySpread
        MatchLabelKeysInPodTopologySpreadSelectorMerge NominatedNodeNameForExpectation OpenAPIEnums
        OpportunisticBatching PodDeletionCost PodTopologyLabelsAdmission PortForwardWebsockets RemoteRequestHeaderUID
        SchedulerAsyncPreemption SchedulerPopFromBackoffQ ServiceAccountNodeAudienceRestriction
        SizeBasedListCostEstimate StatefulSetSemanticRevisionComparison StorageVersionHash
        StructuredAuthenticationConfigurationEgressSelector StructuredAuthenticationConfigurationJWKSMetrics
        TokenRequestServiceAccountUIDValidation TranslateStreamCloseWebsocketRequests UnauthenticatedHTTP2DOSMitigation
        WatchList WindowsGracefulNodeShutdown
        """,
        Maturity.BETA,
        default=True,
    ),
    *_gates(
        """
        CRDObservedGenerationTracking ClusterTrustBundle ConcurrentWatchObjectDecode CoordinatedLeaderElection
        DeclarativeValidationTakeover MaxUnavailableStatefulSet MutatingAdmissionPolicy SchedulerAsyncAPICalls
        StorageVersionMigrator WatchCacheInitializationPostStartHook
        """,
        Maturity.BETA,
        default=False,
    ),
    *_gates(
        """
        APIServingWithRoutine AllowUnsafeMalformedObjectDeletion CBORServingAndStorage
        CloudControllerManagerWatchBasedRoutesReconciliation CloudControllerManagerWebhook ConstrainedImpersonation
        CrossNamespaceVolumeDataSource GangScheduling HPAScaleToZero InTreePluginPortworxUnregister
        MutablePVNodeAffinity MutablePodResourcesForSuspendedJobs MutableSchedulingDirectivesForSuspendedJobs
        RelaxedServiceNameValidation StorageCapacityScoring StorageVersionAPI UnknownVersionInteroperabilityProxy
        WindowsCPUAndMemoryAffinity
        """,
        Maturity.ALPHA,
        default=False,
    ),
    *_gates("StorageNamespaceIndex", Maturity.DEPRECATED, default=True),
    *_gates("AggregatedDiscoveryRemoveBetaType", Maturity.DEPRECATED, default=True, locked=True),
    *_gates(
        """
        AllowInsecureKubeletCertificateSigningRequests KMSv1 SeparateCacheWatchRPC WindowsHostNetwork
        """,
        Maturity.DEPRECATED,
        default=False,
    ),
    *_gates("WatchFromStorageWithoutResourceVersion", Maturity.DEPRECATED, default=False, locked=True),
)

KNOWN_GATES: Mapping[str, Gate] = {
    gate.name: gate
    for gate in (
        Gate(ALL_ALPHA, Maturity.ALPHA, default=False),
        Gate(ALL_BETA, Maturity.BETA, default=False),
        *KUBELET_GATES,
        *_FOREIGN_GATES,
    )
}
