"""The pods that both agents report on: fixed loads of each kind that a statistic counts."""

from typing import Any, Final

from klet.host.images import BUSYBOX_IMAGE

NAMESPACE: Final = "default"
CONFIG_MAP: Final = "settings"
_REST: Final = "trap 'exit 0' TERM; sleep 100000 & wait $!"
_BURN: Final = "while true; do :; done"
_HOLD: Final = "x=$(head -c 33554432 /dev/zero | tr '\\0' x); while true; do sleep 1000; done"
# Few packets: how many of many are sent depends on what else the machine does.
_TALK: Final = "exec ping -q -s 8000 -i 1 $(ip route | awk '/default/ {print $3}')"
_SERVE: Final = "mkdir /www; echo ok > /www/index.html; exec httpd -f -h /www -p 8080"
_WRITE: Final = (
    "head -c 8388608 /dev/zero > /data/file; head -c 4194304 /dev/zero > /layer; "
    "head -c 2097152 /dev/zero > /memory/file; "
    f"""awk 'BEGIN {{ for (i = 0; i < 20000; i++) print "line " i }}'; {_REST}"""
)
HALF_DONE: Final = "half-done"


def container(name: str, script: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "image": BUSYBOX_IMAGE, "command": ["sh", "-c", script], **fields}


def pod(name: str, *containers: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "automountServiceAccountToken": False,
            "dnsPolicy": "Default",
            "terminationGracePeriodSeconds": 1,
            "containers": list(containers),
            **spec,
        },
    }


def make_workload() -> list[dict[str, Any]]:
    """Return the pods that are created through the API server."""
    quota = {"limits": {"cpu": "200m", "memory": "32Mi"}}
    probe = {"periodSeconds": 2, "timeoutSeconds": 5}
    web = {"httpGet": {"path": "/", "port": 8080}, **probe}
    mounts = [{"name": name, "mountPath": f"/{name}"} for name in ("data", "memory", "settings")]
    volumes = [
        {"name": "data", "emptyDir": {}},
        {"name": "memory", "emptyDir": {"medium": "Memory", "sizeLimit": "8Mi"}},
        {"name": "settings", "configMap": {"name": CONFIG_MAP}},
    ]
    return [
        pod("burner", container("main", _BURN, resources=quota)),
        pod("holder", container("main", _HOLD, resources={"requests": {"cpu": "50m", "memory": "48Mi"}})),
        pod("talker", container("main", _TALK)),
        pod(
            "probed",
            container(
                *("main", _SERVE),
                startupProbe=web,
                livenessProbe=web,
                readinessProbe={"exec": {"command": ["true"]}, **probe},
            ),
        ),
        pod(
            "several",
            *(container(name, _REST, resources={"requests": {"cpu": "10m"}}) for name in ("one", "two", "three")),
            initContainers=[container("first", "true"), container("side", _REST, restartPolicy="Always")],
        ),
        pod("files", container("main", _WRITE, volumeMounts=mounts), volumes=volumes),
        pod("host-network", container("main", _REST), hostNetwork=True),
        pod("account", container("main", _REST), automountServiceAccountToken=True),
        pod(HALF_DONE, container("ended", "true"), container("main", _REST), restartPolicy="Never"),
    ]


def make_passing_pod() -> dict[str, Any]:
    """Return the pod that each agent starts and ends before it is asked."""
    mounts = [{"name": "settings", "mountPath": "/settings"}]
    volumes = [{"name": "settings", "configMap": {"name": CONFIG_MAP}}]
    return pod("passing", container("main", _REST, volumeMounts=mounts), volumes=volumes)


def make_static_pod() -> dict[str, Any]:
    """Return the one that comes from a file of the node.

    It has a UID: the one that upstream would make of the file's content is a hash that only Go can compute, and with
    two UIDs it would be two pods.
    """
    made = pod("static", container("main", _REST), restartPolicy="Always")
    return {**made, "metadata": {**made["metadata"], "uid": "f2b8a1d05c6e4f3799a04d1c2e7b8f60"}}
