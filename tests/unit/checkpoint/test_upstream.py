import json

import pytest

from klet.checkpoint.errors import CheckpointDamaged
from klet.checkpoint.upstream import (
    CpuManagerFormat,
    CpuManagerState,
    DeviceManagerFormat,
    DeviceManagerState,
    DraManagerFormat,
    MemoryManagerFormat,
    MemoryManagerState,
    PodDevices,
    PodStateFormat,
)

UID = "11111111-2222-3333-4444-555555555555"
NODE_0 = '{"numberOfAssignments":1,"memoryMap":{"hugepages-2Mi":{"total":0,"systemReserved":0,"allocatable":0,"reserved":0,"free":0},"memory":{"total":8589934592,"systemReserved":1073741824,"allocatable":7516192768,"reserved":1073741824,"free":6442450944}},"cells":[0]}'  # noqa: E501 - a file as it is
NODE_1 = '{"numberOfAssignments":0,"memoryMap":{"hugepages-2Mi":{"total":0,"systemReserved":0,"allocatable":0,"reserved":0,"free":0},"memory":{"total":8589934592,"systemReserved":0,"allocatable":8589934592,"reserved":0,"free":8589934592}},"cells":[1]}'  # noqa: E501 - a file as it is
POD_DATA = f'{{"entries":{{"{UID}":{{"ContainerResources":{{"app":{{"limits":{{"cpu":"500m","memory":"256Mi"}},"requests":{{"cpu":"250m","memory":"128Mi"}}}}}},"PodLevelResources":null}}}}}}'  # noqa: E501 - a file as it is
DRA_HEAD = '{"kind":"DRACheckpoint","apiVersion":"checkpoint.dra.kubelet.k8s.io/v1","ClaimInfoStateList":'
DRA_CLAIM = DRA_HEAD + (
    '[{"ClaimUID":"067798be-454e-4be4-9047-1aa06aea63f7","ClaimName":"example","Namespace":"default",'
    '"PodUIDs":{"139cdb46-f989-4f17-9561-ca10cfb509a6":{}},"DriverState":{"test-driver.cdi.k8s.io":{"Devices":'
    '[{"PoolName":"worker-1","DeviceName":"dev-1","ShareID":null,"RequestNames":["test request"],'
    '"CDIDeviceIDs":["example.com/example=cdi-example"]}]}}}]}'
)


def with_data(data, checksum, *, capital=False):
    keys = ("Data", "Checksum") if capital else ("data", "checksum")
    return json.dumps(dict(zip(keys, (data, checksum), strict=True)), separators=(",", ":"))


FILES = [
    pytest.param(
        CpuManagerFormat(), '{"policyName":"none","defaultCpuSet":"","checksum":1353318690}', id="CPU, default node"
    ),
    pytest.param(
        CpuManagerFormat(), '{"policyName":"static","defaultCpuSet":"0-7","checksum":14413152}', id="CPU, none assigned"
    ),
    pytest.param(
        CpuManagerFormat(),
        f'{{"policyName":"static","defaultCpuSet":"0-1,4-5","entries":{{"{UID}":{{"app":"2,6","web":"3,7"}}}},'
        '"checksum":3798591913}',
        id="CPU, two containers",
    ),
    pytest.param(
        CpuManagerFormat(), '{"policyName":"none","defaultCpuSet":"4-6","checksum":354655845}', id="CPU, some left"
    ),
    pytest.param(
        MemoryManagerFormat(), '{"policyName":"None","machineState":{},"checksum":4236770233}', id="memory, by default"
    ),
    pytest.param(
        MemoryManagerFormat(),
        f'{{"policyName":"Static","machineState":{{"0":{NODE_0},"1":{NODE_1}}},"entries":{{"{UID}":{{"app":'
        '[{"numaAffinity":[0],"type":"memory","size":1073741824}]}},"checksum":87500621}',
        id="memory, two NUMA nodes",
    ),
    pytest.param(
        DeviceManagerFormat(),
        '{"Data":{"PodDeviceEntries":null,"RegisteredDevices":{}},"Checksum":3467439661}',
        id="devices, none registered",
    ),
    pytest.param(
        DeviceManagerFormat(),
        '{"Data":{"PodDeviceEntries":null,"RegisteredDevices":{"example.com/gpu":["gpu0","gpu1"]}},'
        '"Checksum":2880766338}',
        id="devices, none used",
    ),
    pytest.param(
        DeviceManagerFormat(),
        f'{{"Data":{{"PodDeviceEntries":[{{"PodUID":"{UID}","ContainerName":"app","ResourceName":"example.com/gpu",'
        '"DeviceIDs":{"-1":["gpu0"]},"AllocResp":"CgoKA0ZPTxIDYmFy"}],'
        '"RegisteredDevices":{"example.com/gpu":["gpu0","gpu1"]}},"Checksum":3626665132}',
        id="devices, one used",
    ),
    pytest.param(PodStateFormat(), with_data(POD_DATA, 3513729483), id="pods, one"),
    pytest.param(PodStateFormat(), with_data("{}", 694314937), id="pods, none"),
    pytest.param(DraManagerFormat(), with_data(DRA_HEAD + "null}", 4010664294, capital=True), id="DRA, first start"),
    pytest.param(DraManagerFormat(), with_data(DRA_HEAD + "[]}", 2361995144, capital=True), id="DRA, no claims"),
    pytest.param(DraManagerFormat(), with_data(DRA_CLAIM, 2570581864, capital=True), id="DRA, one claim"),
]  # fmt: skip


@pytest.mark.parametrize(("form", "file"), FILES)
def test_a_file_of_the_go_kubelet_is_read_and_written_byte_for_byte(form, file):
    value = form.decode(file.encode())
    assert form.encode(value).decode() == file


@pytest.mark.parametrize(("form", "file"), FILES)
def test_white_space_and_unknown_keys_do_not_matter(form, file):
    loose = json.dumps({"unknown": 1, **json.loads(file)}, indent=2)
    assert form.decode(loose.encode()) == form.decode(file.encode())


@pytest.mark.parametrize(("form", "file"), FILES)
def test_a_wrong_checksum_is_found(form, file):
    parts = json.loads(file)
    parts["checksum" if "checksum" in parts else "Checksum"] += 1
    with pytest.raises(CheckpointDamaged, match="checkpoint is corrupted"):
        form.decode(json.dumps(parts).encode())


@pytest.mark.parametrize(
    "form",
    [CpuManagerFormat(), MemoryManagerFormat(), DeviceManagerFormat(), PodStateFormat(), DraManagerFormat()],
    ids=lambda form: type(form).__name__,
)
@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"\xff", b'{"checksum":"x","Checksum":"x"}', b'{"entries":1}'])
def test_what_is_no_such_file_is_damaged(form, data):
    with pytest.raises(CheckpointDamaged):
        form.decode(data)


def test_upstream_samples_of_the_cpu_manager():
    entries = {"pod": {"container1": "4-6", "container2": "1-3"}}
    state = CpuManagerState(policy_name="none", default_cpu_set="1-3", entries=entries)
    assert json.loads(CpuManagerFormat().encode(state))["checksum"] == 3610638499


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        pytest.param(
            '{"policyName":"none","defaultCPUSet":"1-3","entries":{"containerID1":"4-6","containerID2":"1-3"},'
            '"checksum":3680390589}',
            {"containerID1": "4-6", "containerID2": "1-3"},
            id="with containers, and a key in another case",
        ),
        pytest.param('{"policyName":"none","defaultCpuSet":"1-3","checksum":1694838852}', {}, id="without containers"),
    ],
)
def test_the_first_version_of_the_cpu_file(file, expected):
    state = CpuManagerFormat().decode(file.encode())
    assert state.container_entries == expected
    assert state.entries == {}
    assert state.default_cpu_set == "1-3"


def test_the_first_version_is_not_written():
    state = CpuManagerState(policy_name="none", default_cpu_set="", container_entries={"id": "1"})
    with pytest.raises(CheckpointDamaged, match="have to be migrated"):
        CpuManagerFormat().encode(state)


def test_an_old_cpu_file_without_checksum_is_taken():
    assert CpuManagerFormat().decode(b'{"policyName":"none","defaultCpuSet":"1","checksum":0}').default_cpu_set == "1"


def test_upstream_sample_of_the_memory_manager():
    table = '{"total":2048,"systemReserved":512,"allocatable":1536,"reserved":512,"free":1024}'
    file = (
        f'{{"policyName":"static","machineState":{{"0":{{"numberOfAssignments":0,"memoryMap":{{"memory":{table}}},'
        '"cells":[]}},"entries":{"pod":{"container1":[{"numaAffinity":[0],"type":"memory","size":512}]}},'
        '"checksum":4215593881}'
    )
    state = MemoryManagerFormat().decode(file.encode())
    assert state.machine_state[0].cells == ()
    assert state.entries["pod"]["container1"][0].size == 512
    # A null list prints differently from an empty one.
    with pytest.raises(CheckpointDamaged):
        MemoryManagerFormat().decode(file.replace('"cells":[]', '"cells":null').encode())


def test_upstream_sample_of_the_pod_states():
    data = '{"entries":{"pod1":{"ContainerResources":{"container1":{"requests":{"cpu":"1Ki","memory":"1Ki"}}}}}}'
    assert json.loads(PodStateFormat().encode(data))["checksum"] == 1178570812


def test_the_allocation_response_is_bytes():
    entry = PodDevices(pod_uid="u", container_name="c", resource_name="r", device_ids={0: ("d1",)}, alloc_resp=b"\x01")
    state = DeviceManagerState(pod_device_entries=(entry,), registered_devices={"r": ("d1", "d2")})
    form = DeviceManagerFormat()
    assert form.decode(form.encode(state)) == state


def test_an_empty_memory_state_can_be_built():
    state = MemoryManagerState(policy_name="None", machine_state={})
    assert json.loads(MemoryManagerFormat().encode(state))["checksum"] == 4236770233
