"""The worst that a person may write into each field, and what klet says to it before anything starts.

A row without a message is a value that upstream takes too and that does no harm. Wrong types and numbers out of their
range are in test_configuration_table.py, for every field.
"""

import json
from pathlib import Path

import pytest

from klet.config.command_line import Settings
from klet.config.errors import ConfigError, one_line

UPSTREAM = json.loads((Path(__file__).parents[2] / "data" / "upstream_settings.json").read_text())
TYPES = {name: row["type"] for name, row in UPSTREAM["fields"].items() if "[]" not in name}
LINE_BREAK = "must be one line of UTF-8 text, without control characters (found U+000A)"
UNIX = "write a socket such as unix:///run/containerd/containerd.sock"
STEPS = 'the path of a cgroup must not have "." or ".." in it'
MUST_WAIT = "must be greater than 0"
NOT_NEGATIVE = "must not be negative"
NO_NEGATIVE_NUMBER = "must not be a negative number"
PORT = "must be between 1 and 65535, inclusive"

WORST = {
    "address": [
        ("localhost", 'address (--address) "localhost" must be an IP address; 0.0.0.0 means all of the machine'),
        ("0.0.0.0:10250", 'address (--address) "0.0.0.0:10250" must be an IP address'),
        ("", None),
    ],
    "port": [(-1, f"port (--port) -1 {PORT}"), (65536, f"port (--port) 65536 {PORT}"), (0, None)],
    "readOnlyPort": [
        (-1, "readOnlyPort (--read-only-port) -1 must be between 0 and 65535"),
        (10250, "readOnlyPort (--read-only-port) 10250 is the port of the HTTPS server too"),
    ],
    "tlsCertFile": [
        ("/crt", "tlsCertFile (--tls-cert-file) and tlsPrivateKeyFile (--tls-private-key-file) belong together"),
        ("/a\nb", f"tlsCertFile (--tls-cert-file) {LINE_BREAK}"),
    ],
    "tlsPrivateKeyFile": [("/key", "tlsPrivateKeyFile (--tls-private-key-file) belong together: set both or neither")],
    "tlsCipherSuites": [(["ROT13"], "Cipher suite ROT13 not supported or doesn't exist: see tlsCipherSuites")],
    "tlsMinVersion": [("1.2", 'unknown tls version "1.2", write one of VersionTLS10, VersionTLS11')],
    "authentication.x509.clientCAFile": [
        ("/nowhere.crt", "unable to load client CA file /nowhere.crt: open /nowhere.crt: no such file or directory"),
        ("/text", "unable to load client CA file /text: data does not contain any valid RSA or ECDSA certificates"),
    ],
    "authentication.webhook.cacheTTL": [("-1s", None)],
    "authorization.mode": [("RBAC", "unknown authorization mode RBAC: write AlwaysAllow or Webhook")],
    "authorization.webhook.cacheAuthorizedTTL": [("-1s", None)],
    "authorization.webhook.cacheUnauthorizedTTL": [("-1s", None)],
    "healthzPort": [(-1, f"healthzPort (--healthz-port) -1 {PORT}"), (10250, None)],
    "healthzBindAddress": [
        ("127.0.0.1:1", '"127.0.0.1:1" must be an IP address or the name of a host'),
        ("localhost", None),
    ],
    "streamingConnectionIdleTimeout": [("-1s", None)],
    "showHiddenMetricsForVersion": [("1.20", "--show-hidden-metrics-for-version must be omitted or have the value")],
    "tracing.endpoint": [
        ("http://x", 'tracing.endpoint: Invalid value: "http://x": unsupported scheme: http'),
        ("http://me:secret@x", 'tracing.endpoint: Invalid value: "http://<masked>@x": unsupported scheme: http'),
    ],
    "tracing.samplingRatePerMillion": [(-1, "tracing.samplingRatePerMillion: Invalid value: -1")],
    "logging.format": [("xml", 'logging.format: Invalid value: "xml": Unsupported log format')],
    "logging.flushFrequency": [("-1s", 'logging.flushFrequency: Invalid value: "-1s": Must be greater than zero')],
    "logging.verbosity": [(2**31, "logging.verbosity: Invalid value: 2147483648: Must be <= 2147483647")],
    "logging.vmodule": [([{"filePattern": "a=b", "verbosity": 1}], 'logging.vmodule[0]: Invalid value: "a=b"')],
    "logging.options.text.infoBufferSize": [("-1", "logging.options.text.infoBufferSize: Forbidden")],
    "logging.options.json.infoBufferSize": [("-1", "logging.options.json.infoBufferSize: Forbidden")],
    "staticPodPath": [
        ("/a\x00b", "staticPodPath (--pod-manifest-path) must be one line of UTF-8 text, without control characters"),
        ("/" + "a" * 4095, "staticPodPath (--pod-manifest-path): a path must have at most 4095 bytes"),
        ("/nowhere", None),
        ("relative", None),
    ],
    "staticPodURL": [
        ("not a url", 'staticPodURL (--manifest-url) "not a url" must be a URL such as https://example.com/pods.yaml'),
        ("ftp://h/x", ('staticPodURL (--manifest-url) "ftp://h/x" must be a URL such as https://example.com/pods.yaml: '
                      "only http and https are supported")),
        ("example.com/pods", "only http and https are supported"),
        ("http://", 'staticPodURL (--manifest-url) "http://" must be a URL'),
        ("http://h:99999/", 'staticPodURL (--manifest-url) "http://h:99999/" must be a URL'),
        ("http://[::1/", 'staticPodURL (--manifest-url) "http://[::1/" must be a URL'),
        ("ftp://me:secret@h/x", 'staticPodURL (--manifest-url) "ftp://<masked>@h/x" must be a URL'),
        ("me:secret@h/x?token=secret", 'staticPodURL (--manifest-url) "<masked>@h/x?<masked>" must be a URL'),
        ("HTTPS://[::1]:8080/pods?x=1", None),
    ],
    "staticPodURLHeader": [
        ({"A b": ["x"]}, 'staticPodURLHeader (--manifest-url-header): "A b" is not the name of a header'),
        ({"": ["x"]}, '"" is not the name of a header: write letters, digits and dashes'),
        ({"A": ["fine", "x\r\nInjected: 1"]},
         'the value of "A" must not contain line breaks or other control characters'),
        ({"A": ["tab\tis fine", ""]}, None),
    ],
    "syncFrequency": [("-1s", "invalid sync frequency -1000000000: syncFrequency (--sync-frequency) must be greater"),
                      ("1ns", None)],
    "fileCheckFrequency": [("-1s", f"fileCheckFrequency (--file-check-frequency) -1s {MUST_WAIT}")],
    "httpCheckFrequency": [("-1s", f"httpCheckFrequency (--http-check-frequency) -1s {MUST_WAIT}")],
    "maxPods": [(-1, f"maxPods (--max-pods) -1 {NO_NEGATIVE_NUMBER}")],
    "podsPerCore": [(-1, f"podsPerCore (--pods-per-core) -1 {NO_NEGATIVE_NUMBER}")],
    "podPidsLimit": [
        (4194305, "podPidsLimit (--pod-max-pids) 4194305 must not be more than 4194304, the most that Linux has"),
        (-7, None),
    ],
    "podCIDR": [
        ("10.0.0.0", 'podCIDR (--pod-cidr) "10.0.0.0" must be a network such as 10.244.0.0/24'),
        ("10.0.0.0/33", 'podCIDR (--pod-cidr) "10.0.0.0/33" must be a network'),
        ("10.0.0.0/24,nonsense", 'podCIDR (--pod-cidr) "10.0.0.0/24,nonsense" must be a network'),
        ("10.0.0.0/24, fd00::/64", None),
    ],
    "resolvConf": [("/a\nb", f"resolvConf (--resolv-conf) {LINE_BREAK}"), ("/nowhere", None), ("", None)],
    "clusterDomain": [
        ("cluster local", 'clusterDomain (--cluster-domain) "cluster local" must be a domain such as cluster.local'),
        ("cluster.local\nnameserver 6.6.6.6", f"clusterDomain (--cluster-domain) {LINE_BREAK}"),
        ("Cluster.Local.", None),
    ],
    "clusterDNS": [
        (["dns.example.com"], 'clusterDNS (--cluster-dns): none of "dns.example.com" is an IP address'),
        (["10.96.0.10", "junk"], None),
    ],
    "hairpinMode": [("veth", 'option "veth" specified for hairpinMode (--hairpin-mode). Valid options are "none"')],
    "podLogsDir": [
        ("/", "podLogsDir must not be the root of the file system"),
        ("/a/../b", 'pod logs path "/a/../b" must be normalized'),
        ("/ä", 'pod logs path "/ä" mut contains ASCII characters only'),
    ],
    "configMapAndSecretChangeDetectionStrategy": [
        ("watch", "unknown configmap and secret manager mode: watch, write one of Get, Cache, Watch"),
    ],
    "crashLoopBackOff.maxContainerRestartPeriod": [("301s", "must be set between 1s and 300s")],
    "registerWithTaints": [
        ([{"key": "a b", "effect": "NoSchedule"}], "invalid taint: {a b  NoSchedule <nil>}"),
        ([{"key": "a", "effect": "Never"}], "invalid taint: {a  Never <nil>}"),
        ([{"key": "a", "effect": "NoExecute"}] * 2, "duplicated taints with the same key and effect: a:NoExecute"),
    ],
    "providerID": [("a\nb", f"providerID (--provider-id) {LINE_BREAK}")],
    "allowedUnsafeSysctls": [(["*.x"], 'sysctl "*.x" must have at most 253 characters and match regex')],
    "volumePluginDir": [("/a\nb", f"volumePluginDir (--volume-plugin-dir) {LINE_BREAK}")],
    "userNamespaces.idsPerPod": [(65537, "userNamespaces.idsPerPod must be a multiple of 65536")],
    "containerLogMaxSize": [("10MB", 'containerLogMaxSize "10MB": '), ("-1", None)],
    "containerLogMaxFiles": [(1, "containerLogMaxFiles must be greater than 1")],
    "containerLogMaxWorkers": [(0, "containerLogMaxWorkers must be greater than or equal to 1")],
    "containerLogMonitorInterval": [("2s", "containerLogMonitorInterval must be a positive time duration")],
    "nodeStatusUpdateFrequency": [("-1s", f"(--node-status-update-frequency) -1s {MUST_WAIT}")],
    "nodeStatusReportFrequency": [("-1s", f"nodeStatusReportFrequency -1s {NOT_NEGATIVE}")],
    "nodeLeaseDurationSeconds": [(-1, "nodeLeaseDurationSeconds must be greater than 0")],
    "nodeStatusMaxImages": [(-2, "nodeStatusMaxImages (--node-status-max-images) -2 must be -1 or greater")],
    "contentType": [("json", 'contentType (--kube-api-content-type) "json" must be one of: "application/vnd.kub')],
    "kubeAPIQPS": [(-1, f"kubeAPIQPS (--kube-api-qps) -1 {NO_NEGATIVE_NUMBER}")],
    "kubeAPIBurst": [(-1, f"kubeAPIBurst (--kube-api-burst) -1 {NO_NEGATIVE_NUMBER}")],
    "eventRecordQPS": [(-1, f"eventRecordQPS (--event-qps) -1 {NO_NEGATIVE_NUMBER}")],
    "eventBurst": [(-1, f"eventBurst (--event-burst) -1 {NO_NEGATIVE_NUMBER}")],
    "cgroupRoot": [("/../x", f'cgroupRoot (--cgroup-root) "/../x": {STEPS}'), ("no/slash", None)],
    "cgroupDriver": [
        ("foo", 'cgroupDriver (--cgroup-driver) "foo" must be one of: "cgroupfs", "systemd"'),
        ("Systemd", 'cgroupDriver (--cgroup-driver) "Systemd" must be one of'),
    ],
    "kubeletCgroups": [("/a/..", f'kubeletCgroups (--kubelet-cgroups) "/a/..": {STEPS}')],
    "systemCgroups": [("/", "systemCgroups (--system-cgroups) was specified and cgroupRoot (--cgroup-root) was not")],
    "cpuCFSQuotaPeriod": [("1s", "(--cpu-cfs-quota-period) {1s} requires feature gate CustomCPUCFSQuotaPeriod")],
    "cpuManagerPolicy": [
        ("dynamic", 'unknown policy: "dynamic", write none or static in cpuManagerPolicy (--cpu-manager-policy)'),
        ("static", "new static policy error: [cpumanager] unable to determine reserved CPU resources"),
    ],
    "cpuManagerPolicyOptions": [
        ({"full-pcpus-only": "true"}, ("None policy: received unsupported options=map[full-pcpus-only:true]: "
                                      "cpuManagerPolicyOptions (--cpu-manager-policy-options) is for")),
    ],
    "cpuManagerReconcilePeriod": [("-1s", f"(--cpu-manager-reconcile-period) -1s {MUST_WAIT}")],
    "memoryManagerPolicy": [
        ("static", 'unknown policy: "static", write None or Static in memoryManagerPolicy (--memory-manager-policy)'),
        ("BestEffort", 'policy "BestEffort" is not available for platform "linux": write None or Static'),
        ("Static", "[memorymanager] you should specify the system reserved memory: set reservedMemory"),
    ],
    "reservedMemory": [
        ([{"numaNode": 0, "limits": {"cpu": "1"}}], 'the limit type "cpu" for NUMA node 0 is not supported'),
        ([{"numaNode": -1, "limits": {"memory": "1"}}], "the NUMA node and the amounts of entry 0 must not be neg"),
        ([{"numaNode": 0, "limits": {"memory": "-1"}}], "the NUMA node and the amounts of entry 0 must not be neg"),
    ],
    "topologyManagerPolicy": [("best", '(--topology-manager-policy) "best" must be one of: ["none"')],
    "topologyManagerScope": [("node", '(--topology-manager-scope) "node" must be one of: "container", or "pod"')],
    "topologyManagerPolicyOptions": [({"nonsense": "1"}, None)],
    "qosReserved": [({"memory": "50"}, '--qos-reserved value failed to parse: "50" is not a percentage')],
    "systemReserved": [
        ({"memory": "lots"}, '--system-reserved value failed to parse: failed to parse quantity "lots" for "memory"'),
    ],
    "kubeReserved": [({"gpu": "1"}, '--kube-reserved value failed to parse: cannot reserve "gpu" resource')],
    "systemReservedCgroup": [("../x", f'systemReservedCgroup (--system-reserved-cgroup) "../x": {STEPS}')],
    "kubeReservedCgroup": [("/a/./b", f'kubeReservedCgroup (--kube-reserved-cgroup) "/a/./b": {STEPS}')],
    "reservedSystemCPUs": [
        ("0-", "unable to parse reservedSystemCPUs (--reserved-cpus) 0-, error: "),
        ("3-1", "unable to parse reservedSystemCPUs (--reserved-cpus) 3-1, error: invalid range 3-1 (3 > 1)"),
        ("0-999999999", "value out of range"),
    ],
    "enforceNodeAllocatable": [(["pod"], 'option "pod" specified for enforceNodeAllocatable')],
    "iptablesMasqueradeBit": [(32, "(--iptables-masquerade-bit) 32 must be between 0 and 31, inclusive")],
    "iptablesDropBit": [(-1, "(--iptables-drop-bit) -1 must be between 0 and 31, inclusive")],
    "memorySwap.swapBehavior": [("Unlimited", 'memorySwap.swapBehavior "Unlimited" must be one of: "", "LimitedSwap"')],
    "memoryThrottlingFactor": [(1.5, "memoryThrottlingFactor 1.5 must be greater than 0 and less than or equal")],
    "oomScoreAdj": [(-1001, "oomScoreAdj (--oom-score-adj) -1001 must be between -1000 and 1000, inclusive")],
    "maxOpenFiles": [(-1, f"maxOpenFiles (--max-open-files) -1 {NO_NEGATIVE_NUMBER}")],
    "containerRuntimeEndpoint": [
        ("tcp://127.0.0.1:5000", ('containerRuntimeEndpoint (--container-runtime-endpoint) "tcp://127.0.0.1:5000": '
                                 f"only support unix socket endpoint: {UNIX}")),
        ("ftp://x", f'(--container-runtime-endpoint) "ftp://x": protocol "ftp" not supported: {UNIX}'),
        ("npipe:////./pipe/x", 'protocol "npipe" not supported'),
        ("unix://run/containerd.sock", ("the socket must be an absolute path: write unix:///run/containerd/containerd"
                                       ".sock, with three slashes")),
        ("unix://", "the socket must be an absolute path"),
        ("unix:///run/", "the socket must be a file, not a directory"),
        ("run/containerd.sock", "the socket must be an absolute path"),
        ("unix:///" + "a" * 107, "the path of a socket must have at most 107 bytes"),
        ("/run/containerd.sock", None),
        ("unix:/run/containerd.sock", None),
        ("", None),
    ],
    "imageServiceEndpoint": [
        ("tcp://x", 'imageServiceEndpoint (--image-service-endpoint) "tcp://x": only support unix socket'),
        ("", None),
    ],
    "runtimeRequestTimeout": [("-1s", f"runtimeRequestTimeout (--runtime-request-timeout) -1s {MUST_WAIT}")],
    "registryPullQPS": [(-1, f"registryPullQPS (--registry-qps) -1 {NO_NEGATIVE_NUMBER}")],
    "registryBurst": [(-1, f"registryBurst (--registry-burst) -1 {NO_NEGATIVE_NUMBER}")],
    "maxParallelImagePulls": [(0, "maxParallelImagePulls 0 must be a positive number")],
    "imageMinimumGCAge": [("-1s", f"imageMinimumGCAge (--minimum-image-ttl-duration) -1s {NOT_NEGATIVE}")],
    "imageMaximumGCAge": [("-1s", f"imageMaximumGCAge -1s {NOT_NEGATIVE}")],
    "imageGCHighThresholdPercent": [(101, "(--image-gc-high-threshold) 101 must be between 0 and 100, inclusive")],
    "imageGCLowThresholdPercent": [(85, "(--image-gc-low-threshold) 85 must be less than")],
    "volumeStatsAggPeriod": [("-1s", None)],
    "imagePullCredentialsVerificationPolicy": [
        ("Always", 'option "Always" specified for imagePullCredentialsVerif'),
        ("AlwaysVerify", None),
        ("NeverVerifyAllowlistedImages", None),
        ("NeverVerifyPreloadedImages", None),
        ("NeverVerify", None),
    ],
    "preloadedImagesVerificationAllowlist": [(["x"], "can't set `preloadedImagesVerificationAllowlist` if")],
    "evictionHard": [
        ({"disk": "1"}, "unsupported eviction signal disk: see evictionHard (--eviction-hard)"),
        ({"memory.available": "-1"}, "eviction threshold memory.available must be positive: -1: see evictionHard"),
    ],
    "evictionSoft": [
        ({"memory.available": "1Gi"}, "grace period must be specified for the soft eviction threshold memory.availa"),
    ],
    "evictionSoftGracePeriod": [
        ({"memory.available": "soon"}, 'time: invalid duration "soon": see evictionSoftGracePeriod'),
    ],
    "evictionMinimumReclaim": [({"memory.available": "-1"}, "negative eviction minimum reclaim specified")],
    "evictionPressureTransitionPeriod": [("-1s", f"(--eviction-pressure-transition-period) -1s {NOT_NEGATIVE}")],
    "evictionMaxPodGracePeriod": [(-1, None)],
    "shutdownGracePeriod": [("10ms", "shutdownGracePeriod {10ms} must be either zero or otherwise >= 1 sec")],
    "shutdownGracePeriodCriticalPods": [("1s", "shutdownGracePeriodCriticalPods {1s} must be <= shutdownGracePeriod")],
    "shutdownGracePeriodByPodPriority": [
        ([{"priority": 0, "shutdownGracePeriodSeconds": -1}],
         f"shutdownGracePeriodByPodPriority[0].shutdownGracePeriodSeconds -1 {NOT_NEGATIVE}"),
    ],
    "featureGates": [
        ({"EventedPLG": True}, "unrecognized feature gate: EventedPLG (did you mean EventedPLEG?)"),
        ({"Nonsense": True}, "unrecognized feature gate: Nonsense"),
        ({"NodeSwap": False}, "cannot set feature gate NodeSwap to false, feature is locked to true"),
    ],
}  # fmt: skip
ROWS = [(field, value, message) for field, rows in WORST.items() for value, message in rows]
REFUSED = [row for row in ROWS if row[2] is not None]
ACCEPTED = [row[:2] for row in ROWS if row[2] is None]
STANDALONE = {
    "authentication.webhook.enabled": False,
    "authentication.anonymous.enabled": True,
    "authorization.mode": "AlwaysAllow",
}
FILES = {"/text": "some text", "/etc/ca.crt": "-----BEGIN CERTIFICATE-----\n"}


def shown(field, value):
    text = json.dumps(value)
    return f"{field}: {text if len(text) < 60 else text[:57] + '...'}"


def name(rows):
    return [pytest.param(*row, id=shown(*row[:2])) for row in rows]


@pytest.fixture
def parse_field(parse, as_document):
    def parse_field(field, value):
        return parse("--config=/etc/k.yaml", files={**FILES, "/etc/k.yaml": as_document({**STANDALONE, field: value})})

    return parse_field


@pytest.mark.parametrize(("field", "value", "message"), name(REFUSED))
def test_refused(parse_field, field, value, message):
    with pytest.raises(ConfigError) as caught:
        parse_field(field, value)
    said = str(caught.value)
    assert message in said
    assert "/etc/k.yaml" in said
    assert one_line(said) == said


@pytest.mark.parametrize(("field", "value"), name(ACCEPTED))
def test_accepted_as_upstream_does(parse_field, field, value):
    assert isinstance(parse_field(field, value), Settings)


def test_no_field_is_forgotten():
    assert set(WORST) == {field for field, kind in TYPES.items() if kind != "bool"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param(["--config=/nowhere"], "failed to read kubelet config file \"/nowhere\", error: open /nowhere: no "
                     "such file or directory", id="no such configuration"),
        pytest.param(["--config-dir=/nowhere"], 'failed to walk through kubelet dropin directory "/nowhere": lstat '
                     "/nowhere: no such file or directory", id="no such directory of drop-ins"),
        pytest.param(["--kubeconfig=/nowhere"], "--kubeconfig: invalid kubeconfig: open /nowhere: no such file or "
                     "directory", id="no kubeconfig"),
        pytest.param(["--kubeconfig=/empty"], "--kubeconfig: invalid kubeconfig: /empty is empty",
                     id="an empty kubeconfig"),
        pytest.param(["--kubeconfig=/nowhere", "--bootstrap-kubeconfig=/no"], "--bootstrap-kubeconfig: unable to load "
                     "bootstrap kubeconfig: open /no: no such file or directory", id="no bootstrap kubeconfig"),
        pytest.param(["--tls-cert-file=/nowhere", "--tls-private-key-file=/text"], "tlsCertFile: open /nowhere: no "
                     "such file or directory", id="no certificate"),
        pytest.param(["--node-ip=foo"], 'bad --node-ip "foo": not an IP address: write one', id="a word as node IP"),
        pytest.param(["--node-ip=1.2.3.4,5.6.7.8"], "must contain either a single IP or a dual-stack pair of IPs",
                     id="two node IPs of a family"),
        pytest.param(["--root-dir="], 'invalid root directory "": --root-dir must not be empty', id="no root"),
        pytest.param(["--root-dir=data"], 'invalid root directory "data": --root-dir must be an absolute path',
                     id="a relative root"),
        pytest.param(["--root-dir=/.."], 'invalid root directory "/": --root-dir must be a directory for klet alone',
                     id="the whole disk as root"),
        pytest.param(["--root-dir=/a\nb"], "--root-dir must be printable UTF-8", id="a root with a line break"),
        pytest.param(["--root-dir=/" + "a/" * 2100], "a path must have at most 4095 bytes", id="an endless root"),
        pytest.param(["--root-dir=/" + "a" * 100], "the path of a socket must have at most 107 bytes, and that of "
                     f"/{'a' * 100}/klet.sock is longer: give a --klet-socket", id="a root too long for the socket"),
        pytest.param(["--cloud-provider=aws"], 'cloud provider "aws" was specified', id="a built-in cloud"),
        pytest.param(["--runtime-cgroups=/a/../b"], f'--runtime-cgroups "/a/../b": {STEPS}', id="a cgroup with steps"),
        pytest.param(["--node-labels=a b=c"], "invalid node labels: 'a b' - name part must consist of",
                     id="a label with a blank"),
        pytest.param(["--node-labels=k8s.io/x=c"], "unknown 'kubernetes.io' or 'k8s.io' labels specified",
                     id="a label of Kubernetes"),
        pytest.param(["--exit-on-lock-contention"], "cannot exit on lock file contention: no lock file specified",
                     id="contention without a lock"),
        pytest.param(["--minimum-container-ttl-duration=-1s"], "invalid minimum garbage collection age: -1s "
                     "(--minimum-container-ttl-duration)", id="a negative age"),
        pytest.param(["--housekeeping-interval=0s"], "--housekeeping-interval 0s must be greater than 0",
                     id="no pause between housekeepings"),
        pytest.param(["--maximum-dead-containers=many"], 'invalid argument "many" for "--maximum-dead-containers" flag',
                     id="a word as number"),
        pytest.param(["--feature-gates=NodeSwap=false"], "cannot set feature gate NodeSwap to false, feature is locked",
                     id="a locked gate"),
        pytest.param(["--feature-gates=EventedPLG=true"], "unrecognized feature gate: EventedPLG (did you mean",
                     id="an unknown gate"),
        pytest.param(["--file-check-frequency=0s"], f"fileCheckFrequency (--file-check-frequency) 0s {MUST_WAIT}",
                     id="no pause between looks at files"),
        pytest.param(["--runtime-request-timeout=0s"], f"(--runtime-request-timeout) 0s {MUST_WAIT}",
                     id="no time for the runtime"),
        pytest.param(["--container-runtime-endpoint="], "the containerRuntimeEndpoint was not specified or empty",
                     id="no runtime"),
        pytest.param(["--cluster-domain=\udcff"], "clusterDomain (--cluster-domain) must be one line of UTF-8 text",
                     id="bytes that are no text"),
        pytest.param(["--kube-api-content-type=x"], 'contentType (--kube-api-content-type) "x" must be one of',
                     id="an unknown content type"),
        pytest.param(["--system-cgroups=/", "--cgroup-root=/x"], 'system container cannot be root ("/")',
                     id="the root for system processes"),
        pytest.param(["--manifest-url-header=Bearer secret"], 'invalid argument <masked> for "--manifest-url-header" '
                     "flag: malformed pair, expect string:string", id="a header without its name"),
        pytest.param(["--port", "1", "extra"], "unknown command extra", id="a word too many"),
        pytest.param(["--prot=1"], "failed to parse kubelet flag: unknown flag: --prot", id="an unknown flag"),
        pytest.param(["--klet-config=/nowhere"], "failed to load klet config file, path: /nowhere, error: open "
                     "/nowhere: no such file or directory", id="no file of klet's own"),
        pytest.param(["--klet-config=/empty"], 'klet config file "/empty" was empty', id="an empty one"),
        pytest.param(["--klet-config=/klet.yaml"], "journalRecords (--klet-journal-records) -1 must be greater than 0; "
                     "0 means 20000, path: /klet.yaml, command line", id="a broken rule in it"),
        pytest.param(["--klet-journal-records=-1"], "journalRecords (--klet-journal-records) -1 must be greater than 0",
                     id="negative records"),
        pytest.param(["--klet-max-parallel-starts=-1"], "maxParallelStarts (--klet-max-parallel-starts) -1 must not be",
                     id="negative starts"),
        pytest.param(["--klet-socket=/a/"], 'socket (--klet-socket) "/a/": the socket must be a file, not a directory',
                     id="a directory as socket"),
        pytest.param(["--klet-socket=/" + "a" * 107], "the path of a socket must have at most 107 bytes",
                     id="a socket with a long name"),
        pytest.param(["--klet-socket=/a\nb"], "the path must be printable UTF-8", id="a socket with a line break"),
    ],
)  # fmt: skip
def test_flags_refused(parse, arguments, message):
    klet = "kind: KletConfiguration\napiVersion: klet.dev/v1alpha1\njournalRecords: -1\n"
    with pytest.raises(ConfigError) as caught:
        parse(*arguments, files={**FILES, "/empty": "", "/klet.yaml": klet})
    assert message in str(caught.value)


def test_a_directory_of_drop_ins_that_may_not_be_read(parse_directory_error):
    with pytest.raises(ConfigError) as caught:
        parse_directory_error(PermissionError(13, "Permission denied"))
    assert str(caught.value) == (
        'failed to merge kubelet configs: failed to walk through kubelet dropin directory "/k.d": '
        "lstat /k.d: permission denied"
    )


@pytest.mark.parametrize(
    ("arguments", "fields", "warning"),
    [
        pytest.param(["--node-ip=1.2.3.4,junk"], {}, '--node-ip: "junk" is not an IP address and is left out',
                     id="a word beside an address"),
        pytest.param([], {"clusterDNS": ["10.0.0.1", "junk"]},
                     'clusterDNS (--cluster-dns): "junk" is not an IP address and is left out', id="a word as DNS"),
        pytest.param([], {"containerRuntimeEndpoint": "/run/c.sock"},
                     'containerRuntimeEndpoint (--container-runtime-endpoint): using "/run/c.sock" as endpoint is '
                     "deprecated, please consider using full url format: unix:///run/c.sock", id="a bare path"),
        pytest.param(["--pod-manifest-path=pods"], {}, 'staticPodPath (--pod-manifest-path): "pods" is looked for in '
                     "the directory in which klet was started", id="a relative path"),
        pytest.param([], {"healthzPort": 10250}, "healthzPort (--healthz-port) 10250 is another server's port too: "
                     "healthz may not be served", id="a port twice"),
    ],
)  # fmt: skip
def test_warned_about(settle, as_document, arguments, fields, warning):
    files = {"/etc/k.yaml": as_document({**STANDALONE, **fields})}
    assert warning in settle("--config=/etc/k.yaml", *arguments, files=files).warnings


def test_a_kubeconfig_that_is_still_to_be_made_is_fine(settle):
    files = {"/bootstrap": "kind: Config\n"}
    flags = ("--kubeconfig=/later", "--bootstrap-kubeconfig=/bootstrap", "--address=127.0.0.1")
    assert settle(*flags, files=files).flags.kubeconfig == "/later"
