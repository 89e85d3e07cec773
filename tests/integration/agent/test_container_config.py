"""Environments and mounts as processes in real containers see them."""

import pytest

from klet.host.mounts import has_mounts_under, unmount_tree

FOREVER = "trap 'exit 0' TERM; while true; do sleep 1000 & wait $!; done"
NAME = {"name": "NAME", "valueFrom": {"fileKeyRef": {"volumeName": "vars", "path": "app.env", "key": "NAME"}}}


@pytest.fixture(autouse=True)
def _no_mounts_left(node):
    """A test that fails half-way leaves mounts, which would keep its directory from being removed."""
    yield
    unmount_tree(node.root, lazy=True)


async def test_an_environment_of_all_kinds_and_parts_of_volumes(node, manifest):
    pod = manifest(
        "web",
        init={"setup": "printf \"NAME='Ada\\nLovelace'  # who\\n\" > /vars/app.env; echo hello > /vars/greeting"},
        main=f'echo x > /home/here; echo "$NAME|$CPU|$MEMORY|$POD|$1"; cat /greeting; {FOREVER}',
        spec={"volumes": [{"name": "vars", "emptyDir": {}}]},
    )
    [setup], [main] = pod["spec"]["initContainers"], pod["spec"]["containers"]
    setup["volumeMounts"] = [{"name": "vars", "mountPath": "/vars"}]
    main["env"] = [
        NAME,
        {"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1m"}}},
        {"name": "MEMORY", "valueFrom": {"resourceFieldRef": {"resource": "requests.memory"}}},
        {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
    ]
    main["args"] = ["sh", "in $(POD)"]
    main["resources"] = {"limits": {"cpu": "250m"}, "requests": {"memory": "1Mi"}}
    main["volumeMounts"] = [
        {"name": "vars", "mountPath": "/greeting", "subPath": "greeting"},
        {"name": "vars", "mountPath": "/home", "subPathExpr": "homes/$(POD)"},
    ]
    async with node.run() as agent:
        node.write("web", pod)
        await agent.recorded("web", "Started", "Started", "Ready")
        said = await agent.said("web", "main", until="hello\n")
        assert said.splitlines()[:3] == ["Ada", "Lovelace|250|1048576|web-node|in web-node", "hello"]
        uid = (await agent.pod("web")).metadata.uid
        directory = node.root / "pods" / uid
        volume = directory / "volumes/kubernetes.io~empty-dir/vars"
        assert (volume / "homes/web-node/here").read_text() == "x\n"
        assert has_mounts_under(directory / "volume-subpaths")
        node.remove("web")
        await agent.recorded("web", "Finished", "Removed")
        assert not directory.exists()
        assert not has_mounts_under(node.root / "pods")


async def test_what_this_runtime_or_node_does_not_have_is_said(node, manifest):
    volumes = [{"name": "data", "emptyDir": {}}]
    locked = manifest("locked", main=FOREVER, spec={"volumes": volumes})
    mount = {"name": "data", "mountPath": "/data", "readOnly": True, "recursiveReadOnly": "Enabled"}
    locked["spec"]["containers"][0]["volumeMounts"] = [mount]
    async with node.run() as agent:
        node.write("locked", locked)
        node.write("users", manifest("users", main=FOREVER, spec={"hostUsers": False}))
        node.write("class", manifest("class", main=FOREVER, spec={"runtimeClassName": "kata"}))
        [failed] = await agent.recorded("locked", "Failed")
        assert failed["message"].endswith("but it is not supported by the runtime")
        [users] = await agent.recorded("users", "FailedCreatePodSandBox")
        assert users["message"] == (
            "Failed to create pod sandbox: can't set `spec.hostUsers: false`, runtime does not support user namespaces"
        )
        [unknown] = await agent.recorded("class", "FailedCreatePodSandBox")
        assert unknown["message"] == 'Failed to create pod sandbox: runtimeclass.node.k8s.io "kata" not found'
