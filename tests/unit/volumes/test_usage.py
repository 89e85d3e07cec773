import pytest

from klet.volumes.errors import VolumeSetupError
from klet.volumes.usage import fs_group, fs_user, nested_mount_points, used_volumes


def mount(name, path):
    return {"name": name, "mountPath": path}


def test_only_what_a_container_uses_counts(pod_with):
    pod = pod_with(
        {"name": "a", "emptyDir": {}},
        {"name": "b", "emptyDir": {}},
        {"name": "c", "emptyDir": {}},
        {"name": "d", "emptyDir": {}},
        {"name": "unused", "emptyDir": {}},
        mounts=[mount("a", "/a")],
        initContainers=[{"name": "i", "volumeMounts": [mount("b", "/b")]}],
        ephemeralContainers=[{"name": "e", "volumeMounts": [mount("c", "/c")]}],
    )
    assert used_volumes(pod) == {"a", "b", "c"}


def test_a_device_is_a_use(pod_with):
    pod = pod_with(
        {"name": "a", "emptyDir": {}}, containers=[{"name": "c", "volumeDevices": [{"name": "a", "devicePath": "/d"}]}]
    )
    assert used_volumes(pod) == {"a"}


@pytest.mark.parametrize(
    ("spec", "user"),
    [
        pytest.param({}, None, id="nobody says"),
        pytest.param({"securityContext": {"runAsUser": 7}}, 7, id="the pod says"),
        pytest.param(
            {"containers": [{"name": "a", "securityContext": {"runAsUser": 7}}, {"name": "b"}]},
            None,
            id="one container does not say",
        ),
        pytest.param(
            {
                "securityContext": {"runAsUser": 8},
                "containers": [
                    {"name": "a", "securityContext": {"runAsUser": 7}},
                    {"name": "b", "securityContext": {"runAsUser": 7}},
                ],
            },
            7,
            id="all containers agree, whatever the pod says",
        ),
        pytest.param(
            {
                "securityContext": {"runAsUser": 8},
                "initContainers": [{"name": "i"}],
                "containers": [{"name": "a", "securityContext": {"runAsUser": 7}}],
            },
            None,
            id="an init container is someone else",
        ),
        pytest.param({"securityContext": {"runAsUser": 0}}, 0, id="root is a user too"),
    ],
)
def test_the_user_that_all_containers_run_as(pod_with, spec, user):
    assert fs_user(pod_with(**spec)) == user


def test_the_group_of_the_files(pod_with):
    assert fs_group(pod_with(securityContext={"fsGroup": 5})) == 5
    assert fs_group(pod_with()) is None


@pytest.mark.parametrize(
    ("mounts", "points"),
    [
        pytest.param(
            [
                mount("v", "/dir"),
                mount("a", "/dir/nested"),
                mount("b", "/dir/nested/double"),
                mount("c", "/dir/nested-vol"),
                mount("d", "/dir/nested.vol"),
                mount("e", "/dir/nested2"),
                mount("f", "/dir/nested2/double"),
                mount("g", "/ignore"),
            ],
            ["nested", "nested-vol", "nested.vol", "nested2"],
            id="what is below a nested one is not made",
        ),
        pytest.param(
            [mount("v", "/dir"), mount("v", "/other"), mount("a", "/dir/x"), mount("b", "/other/y")],
            ["x", "y"],
            id="a volume that is mounted twice",
        ),
        pytest.param([mount("v", "/dir/"), mount("a", "/dir//x/")], ["x"], id="paths are cleaned"),
        pytest.param([mount("v", "/dir"), mount("a", "/directory")], [], id="a longer name is not below"),
    ],
)
def test_nested_mount_points(pod_with, mounts, points):
    assert sorted(nested_mount_points(pod_with(mounts=mounts), "v")) == points


def test_a_mount_point_outside_of_the_container_is_refused(pod_with):
    pod = pod_with(mounts=[mount("v", "foo/../../dir")])
    with pytest.raises(VolumeSetupError, match=r"^invalid container mount point \.\./dir$"):
        nested_mount_points(pod, "v")
