"""The rules of device plugins and DRA drivers, and the order of CSI versions."""

import pytest
from msgspec.structs import replace

from klet.model.csi import CsiVersion
from klet.model.plugins import (
    DraVersion,
    PluginInfo,
    PluginType,
    VersionProblem,
    choose_dra_service,
    find_device_plugin_problem,
)

DEVICE = PluginInfo(
    type=PluginType.DEVICE, name="example.com/gpu", endpoint="/gpu.sock", versions=("v1alpha", "v1beta1")
)
DRA = PluginInfo(type=PluginType.DRA, name="gpu.example.com", endpoint="/plugins/gpu/dra.sock")


@pytest.mark.parametrize(
    ("plugin", "expected"),
    [
        pytest.param(DEVICE, None, id="one that fits"),
        pytest.param(
            replace(DEVICE, versions=("v1alpha", "v1")),
            "manager version, v1beta1, is not among plugin supported versions [v1alpha v1]",
            id="other versions",
        ),
        pytest.param(
            replace(DEVICE, versions=()),
            "manager version, v1beta1, is not among plugin supported versions []",
            id="no version",
        ),
        pytest.param(
            replace(DEVICE, name="gpu"),
            'invalid name of device plugin socket: the ResourceName "gpu" is invalid',
            id="a name without a domain",
        ),
        pytest.param(
            replace(DEVICE, name="kubernetes.io/gpu"),
            'invalid name of device plugin socket: the ResourceName "kubernetes.io/gpu" is invalid',
            id="a name of Kubernetes itself",
        ),
        pytest.param(
            replace(DEVICE, name="example.com/../../etc"),
            'invalid name of device plugin socket: the ResourceName "example.com/../../etc" is invalid',
            id="a path",
        ),
    ],
)
def test_device_plugins(plugin, expected):
    assert find_device_plugin_problem(plugin) == expected


@pytest.mark.parametrize(
    ("versions", "expected"),
    [
        pytest.param(("v1.DRAPlugin",), DraVersion("v1.DRAPlugin"), id="the newest service"),
        pytest.param(("v1beta1.DRAPlugin",), DraVersion("v1beta1.DRAPlugin"), id="the older service"),
        pytest.param(
            ("v2.DRAPlugin", "v1beta1.DRAPlugin", "v1.DRAPlugin"),
            DraVersion("v1beta1.DRAPlugin"),
            id="the first of the plugin's own order",
        ),
        pytest.param(
            (),
            VersionProblem(
                "invalid supported gRPC versions of DRA driver plugin gpu.example.com at endpoint "
                "/plugins/gpu/dra.sock: empty list of supported gRPC services (aka supported versions)"
            ),
            id="none",
        ),
        pytest.param(
            ("v1alpha3.Node", "1.0.0"),
            VersionProblem(
                "invalid supported gRPC versions of DRA driver plugin gpu.example.com at endpoint "
                '/plugins/gpu/dra.sock: none of services supported by the plugin (["v1alpha3.Node" "1.0.0"]) are '
                'supported by the kubelet (["v1.DRAPlugin" "v1beta1.DRAPlugin"])'
            ),
            id="others",
        ),
    ],
)
def test_dra_drivers(versions, expected):
    assert choose_dra_service(replace(DRA, versions=versions)) == expected


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        pytest.param((1, 0), (1, 1), True, id="a smaller number"),
        pytest.param((1, 9), (1, 10), True, id="numbers, not texts"),
        pytest.param((1, 0), (1, 0, 0), False, id="a missing number is zero"),
        pytest.param((1, 0), (1, 0, 1), True, id="and less than one"),
        pytest.param((1, 2, 3), (1, 2), False, id="a longer one is newer"),
        pytest.param((1, 0), (1, 0), False, id="the same is not older"),
    ],
)
def test_versions_are_compared_number_by_number(one, other, expected):
    assert CsiVersion(one).is_older_than(CsiVersion(other)) is expected
