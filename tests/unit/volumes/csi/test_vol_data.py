"""The file next to a staged or published volume: upstream's bytes, and hostile ones."""

import pytest

from klet.volumes.csi.vol_data import LONGEST, BadVolumeData, VolumeData, decode_volume_data, encode_volume_data

EXAMPLE = VolumeData(
    attachment_id="csi-226e7d79e67064f378f061ac727505747e707ea102dbb7cf718c00cb7f939806",
    driver_name="ebs.csi.example.com",
    node_name="node-1",
    se_linux_mount_context="system_u:object_r:container_file_t:s0:c1,c2",
    spec_vol_id="pvc-7f3a",
    volume_handle="vol-0a1b",
    volume_lifecycle_mode="Persistent",
)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        pytest.param(
            EXAMPLE,
            b'{"attachmentID":"csi-226e7d79e67064f378f061ac727505747e707ea102dbb7cf718c00cb7f939806",'
            b'"driverName":"ebs.csi.example.com","nodeName":"node-1",'
            b'"seLinuxMountContext":"system_u:object_r:container_file_t:s0:c1,c2",'
            b'"specVolID":"pvc-7f3a","volumeHandle":"vol-0a1b","volumeLifecycleMode":"Persistent"}\n',
            id="a pod's volume",
        ),
        pytest.param(
            VolumeData(driver_name="ebs.csi.example.com", volume_handle="vol-0a1b"),
            b'{"driverName":"ebs.csi.example.com","volumeHandle":"vol-0a1b"}\n',
            id="a staged volume",
        ),
        pytest.param(
            VolumeData(driver_name="d", volume_handle="<a>&\u2028\u2029\n\t\x01é"),
            '{"driverName":"d","volumeHandle":"\\u003ca\\u003e\\u0026\\u2028\\u2029\\n\\t\\u0001é"}\n'.encode(),
            id="characters that Go escapes",
        ),
    ],
)
def test_the_bytes_are_upstreams(data, expected):
    assert encode_volume_data(data) == expected
    assert decode_volume_data(expected) == data


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        pytest.param(b"{}", VolumeData(), id="no key at all"),
        pytest.param(b'{"driverName":"d","other":"x"}', VolumeData(driver_name="d"), id="an unknown key"),
    ],
)
def test_files_of_other_versions_are_read(content, expected):
    assert decode_volume_data(content) == expected


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b'{"driverName":"d"', id="cut"),
        pytest.param(b"[]", id="a list"),
        pytest.param(b'{"driverName":1}', id="a number"),
        pytest.param(b'{"other":{}}', id="an object under an unknown key"),
        pytest.param(b'{"driverName":null}', id="null"),
        pytest.param(b"\xff\xfe", id="not UTF-8"),
        pytest.param(b'{"driverName":"\xff"}', id="a value that is not UTF-8"),
        pytest.param(b"[" * 100_000, id="too deep"),
        pytest.param(b'{"a":"' + b"x" * LONGEST + b'"}', id="too large"),
    ],
)
def test_hostile_files_are_refused(content):
    with pytest.raises(BadVolumeData) as caught:
        decode_volume_data(content)
    assert len(str(caught.value)) < 400


def test_a_file_that_could_not_be_read_again_is_not_written():
    with pytest.raises(BadVolumeData):
        encode_volume_data(VolumeData(volume_handle="x" * LONGEST))
