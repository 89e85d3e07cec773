import pytest

from klet.api.validation import formats

[HEADER] = formats.http_header_name("a b")
L = "spec.containers[0].livenessProbe"
R = "spec.containers[0].readinessProbe"
H = "spec.containers[0].lifecycle"
TCP = {"tcpSocket": {"port": 80}}


@pytest.mark.parametrize(
    ("probe", "expected"),
    [
        pytest.param({"exec": {"command": ["x"]}}, [], id="a command"),
        pytest.param({"grpc": {"port": 80}}, [], id="a gRPC service"),
        pytest.param({}, [f"{L}: Required value: must specify a handler type"], id="no handler"),
        pytest.param(
            {"grpc": {"port": 0}, "tcpSocket": {"port": 0}, "httpGet": {"port": 0}, "exec": {}},
            [
                f"{L}.exec.command: Required value",
                f"{L}.httpGet: Forbidden: may not specify more than 1 handler type",
                f"{L}.tcpSocket: Forbidden: may not specify more than 1 handler type",
                f"{L}.grpc: Forbidden: may not specify more than 1 handler type",
            ],
            id="only the first handler counts",
        ),
        pytest.param(
            {"httpGet": {"port": 0, "scheme": "ftp", "httpHeaders": [{"name": "a b", "value": "x"}]}},
            [
                f"{L}.httpGet.port: Invalid value: 0: must be between 1 and 65535, inclusive",
                f'{L}.httpGet.scheme: Unsupported value: "ftp": supported values: "HTTP", "HTTPS"',
                f'{L}.httpGet.httpHeaders: Invalid value: "a b": {HEADER}',
            ],
            id="an http request",
        ),
        pytest.param(
            {"tcpSocket": {"port": "80"}},
            [f'{L}.tcpSocket.port: Invalid value: "80": must contain at least one letter (a-z)'],
            id="a port name",
        ),
        pytest.param(
            {"grpc": {"port": 65536}},
            [f"{L}.grpc.port: Invalid value: 65536: must be between 1 and 65535, inclusive"],
            id="a gRPC port",
        ),
        pytest.param(
            TCP
            | {
                "initialDelaySeconds": -1,
                "timeoutSeconds": -1,
                "periodSeconds": -1,
                "successThreshold": -1,
                "failureThreshold": -1,
            },
            [
                f"{L}.initialDelaySeconds: Invalid value: -1: must be greater than or equal to 0",
                f"{L}.timeoutSeconds: Invalid value: -1: must be greater than or equal to 0",
                f"{L}.periodSeconds: Invalid value: -1: must be greater than or equal to 0",
                f"{L}.successThreshold: Invalid value: -1: must be greater than or equal to 0",
                f"{L}.failureThreshold: Invalid value: -1: must be greater than or equal to 0",
                f"{L}.successThreshold: Invalid value: -1: must be 1",
            ],
            id="negative numbers",
        ),
        pytest.param(
            TCP | {"terminationGracePeriodSeconds": 0},
            [f"{L}.terminationGracePeriodSeconds: Invalid value: 0: must be greater than 0"],
            id="no grace",
        ),
        pytest.param(
            TCP | {"successThreshold": 2},
            [f"{L}.successThreshold: Invalid value: 2: must be 1"],
            id="one success is enough to live",
        ),
    ],
)
def test_liveness_probe(container_errors, probe, expected):
    assert container_errors({"livenessProbe": probe}) == expected


def test_an_http_request_needs_a_path(container_errors):
    found = container_errors({"livenessProbe": {"httpGet": {"port": 80, "scheme": "HTTP"}}}, defaults=False)
    assert f"{L}.httpGet.path: Required value" in found


def test_startup_probes_have_the_rules_of_liveness_probes(container_errors):
    path = "spec.containers[0].startupProbe"
    assert container_errors({"startupProbe": TCP | {"successThreshold": 2}}) == [
        f"{path}.successThreshold: Invalid value: 2: must be 1"
    ]


@pytest.mark.parametrize(
    ("probe", "expected"),
    [
        pytest.param(TCP | {"successThreshold": 2}, [], id="several successes"),
        pytest.param(
            TCP | {"terminationGracePeriodSeconds": 5},
            [f"{R}.terminationGracePeriodSeconds: Invalid value: 5: must not be set for readinessProbes"],
            id="readiness kills nobody",
        ),
    ],
)
def test_readiness_probe(container_errors, probe, expected):
    assert container_errors({"readinessProbe": probe}) == expected


@pytest.mark.parametrize(
    ("lifecycle", "spec", "expected"),
    [
        pytest.param({"preStop": {"sleep": {"seconds": 30}}}, {}, [], id="sleeping all of the grace period"),
        pytest.param({"preStop": {"sleep": {"seconds": 0}}}, {}, [], id="not sleeping at all"),
        pytest.param(
            {"postStart": {}, "preStop": {"sleep": {"seconds": 31}}},
            {},
            [
                f"{H}.postStart: Required value: must specify a handler type",
                (
                    f"{H}.preStop.sleep: Invalid value: 31: must be non-negative and less than "
                    "terminationGracePeriodSeconds (30)"
                ),
            ],
            id="sleeping too long",
        ),
        pytest.param(
            {"preStop": {"sleep": {"seconds": -1}}},
            {},
            [
                (
                    f"{H}.preStop.sleep: Invalid value: -1: must be non-negative and less than "
                    "terminationGracePeriodSeconds (30)"
                )
            ],
            id="sleeping backwards",
        ),
        pytest.param(
            {"preStop": {"tcpSocket": {"port": 1}, "sleep": {"seconds": 1}}},
            {},
            [f"{H}.preStop.sleep: Forbidden: may not specify more than 1 handler type"],
            id="one hook",
        ),
        pytest.param(
            {"stopSignal": "SIGTERM"},
            {},
            [f"{H}.stopSignal: Forbidden: may not be set for containers with empty `spec.os.name`"],
            id="a stop signal needs an operating system",
        ),
        pytest.param({"stopSignal": "SIGRTMIN+3"}, {"os": {"name": "linux"}}, [], id="a stop signal of Linux"),
        pytest.param(
            {"stopSignal": "SIGHUP"},
            {"os": {"name": "windows"}},
            [f'{H}.stopSignal: Unsupported value: "SIGHUP": supported values: "SIGKILL", "SIGTERM"'],
            id="a stop signal of Windows",
        ),
    ],
)
def test_lifecycle(container_errors, lifecycle, spec, expected):
    assert container_errors({"lifecycle": lifecycle}, spec) == expected
