import pytest

M = "spec.containers[0].volumeMounts"
D = "spec.containers[0].volumeDevices"
VOLUMES = {
    "volumes": [
        {"name": "v"},
        {"name": "w"},
        {"name": "claim", "persistentVolumeClaim": {"claimName": "c"}},
    ]
}
BLOCK = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"


@pytest.mark.parametrize(
    ("mounts", "expected"),
    [
        pytest.param([{"name": "v", "mountPath": "/a", "subPath": "b"}], [], id="good"),
        pytest.param(
            [{"name": "", "mountPath": ""}],
            [f"{M}[0].name: Required value", f'{M}[0].name: Not found: ""', f"{M}[0].mountPath: Required value"],
            id="name and path are needed",
        ),
        pytest.param([{"name": "x", "mountPath": "/a"}], [f'{M}[0].name: Not found: "x"'], id="an unknown volume"),
        pytest.param(
            [{"name": "v", "mountPath": "/a"}, {"name": "w", "mountPath": "/a"}],
            [f'{M}[1].mountPath: Invalid value: "/a": must be unique'],
            id="one volume at a path",
        ),
        pytest.param(
            [{"name": "v", "mountPath": "/a", "subPath": "/b"}],
            [f'{M}.subPath: Invalid value: "/b": must be a relative path'],
            id="an absolute sub-path, printed without position",
        ),
        pytest.param(
            [{"name": "v", "mountPath": "/a", "subPath": "b", "subPathExpr": "../$(X)"}],
            [
                f'{M}[0].subPathExpr: Invalid value: "../$(X)": subPathExpr and subPath are mutually exclusive',
                f"{M}.subPathExpr: Invalid value: \"../$(X)\": must not contain '..'",
            ],
            id="two sub-paths",
        ),
        pytest.param(
            [{"name": "v", "mountPath": "/a", "mountPropagation": "x"}],
            [
                (
                    f'{M}.mountPropagation: Unsupported value: "x": supported values: '
                    '"Bidirectional", "HostToContainer", "None"'
                )
            ],
            id="an unknown propagation",
        ),
        pytest.param(
            [{"name": "v", "mountPath": "/a", "mountPropagation": "Bidirectional"}],
            [
                (
                    f"{M}.mountPropagation: Forbidden: Bidirectional mount propagation is available only to privileged "
                    "containers"
                )
            ],
            id="propagation to the host",
        ),
        pytest.param(
            [{"name": "v", "mountPath": "/a", "recursiveReadOnly": "x"}],
            [f'{M}.recursiveReadOnly: Unsupported value: "x": supported values: "Disabled", "Enabled", "IfPossible"'],
            id="an unknown recursive mode",
        ),
        pytest.param(
            [{"name": "v", "mountPath": "/a", "recursiveReadOnly": "Enabled", "mountPropagation": "HostToContainer"}],
            [
                f"{M}.recursiveReadOnly: Forbidden: may only be specified when readOnly is true",
                (
                    f"{M}.recursiveReadOnly: Forbidden: may only be specified when mountPropagation "
                    "is None or not specified"
                ),
            ],
            id="recursive read-only needs read-only and no propagation",
        ),
        pytest.param(
            [{"name": "v", "mountPath": "/a", "recursiveReadOnly": "Disabled"}], [], id="recursive read-only, disabled"
        ),
    ],
)
def test_volume_mounts(container_errors, mounts, expected):
    assert container_errors({"volumeMounts": mounts}, VOLUMES) == expected


def test_privileged_containers_may_propagate_to_the_host(container_errors):
    mounts = [{"name": "v", "mountPath": "/a", "mountPropagation": "Bidirectional"}]
    assert container_errors({"volumeMounts": mounts, "securityContext": {"privileged": True}}, VOLUMES) == []


@pytest.mark.parametrize(
    ("devices", "expected"),
    [
        pytest.param([{"name": "claim", "devicePath": "/dev/x"}], [], id="good"),
        pytest.param(
            [{"name": "", "devicePath": ""}],
            [f"{D}[0].name: Required value", f'{D}[0].name: Not found: ""', f"{D}[0].devicePath: Required value"],
            id="name and path are needed",
        ),
        pytest.param(
            [{"name": "v", "devicePath": "/x"}], [f'{D}[0].name: Invalid value: "v": {BLOCK}'], id="a directory"
        ),
        pytest.param([{"name": "x", "devicePath": "/x"}], [f'{D}[0].name: Not found: "x"'], id="an unknown volume"),
        pytest.param(
            [{"name": "claim", "devicePath": "/x"}] * 2,
            [
                f'{D}[1].name: Invalid value: "claim": must be unique',
                f'{D}[1].devicePath: Invalid value: "/x": must be unique',
            ],
            id="names and paths are unique",
        ),
        pytest.param(
            [{"name": "claim", "devicePath": "/x/../y"}],
            [f"{D}[0].devicePath: Invalid value: \"/x/../y\": can not contain backsteps ('..')"],
            id="backsteps",
        ),
    ],
)
def test_volume_devices(container_errors, devices, expected):
    assert container_errors({"volumeDevices": devices}, VOLUMES) == expected


def test_a_volume_is_mounted_or_a_device_but_not_both(container_errors):
    container = {
        "volumeMounts": [{"name": "claim", "mountPath": "/x"}],
        "volumeDevices": [{"name": "claim", "devicePath": "/x"}],
    }
    assert container_errors(container, VOLUMES) == [
        f'{M}[0].name: Invalid value: "claim": must not already exist in volumeDevices',
        f'{M}[0].mountPath: Invalid value: "/x": must not already exist as a path in volumeDevices',
        f'{D}[0].name: Invalid value: "claim": must not already exist in volumeMounts',
        f'{D}[0].devicePath: Invalid value: "/x": must not already exist as a path in volumeMounts',
    ]
