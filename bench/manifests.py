"""The pods that are started."""

IMAGE = "klet.local/busybox:1"
SCRIPT = "trap 'exit 0' TERM; while true; do sleep 1000 & wait $!; done"
WEB_SCRIPT = "mkdir /www; echo ok > /www/index.html; exec httpd -f -h /www -p 8080"
PROBE: dict[str, object] = {"httpGet": {"path": "/", "port": 8080}, "periodSeconds": 1}


def make_manifest(
    name: str,
    script: str = SCRIPT,
    *,
    policy: str = "Always",
    probe: dict[str, object] | None = None,
    image: str = IMAGE,
) -> dict[str, object]:
    """A pod of one busybox container."""
    container: dict[str, object] = {"name": "main", "image": image, "command": ["sh", "-c", script]}
    if probe is not None:
        container["readinessProbe"] = probe
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"restartPolicy": policy, "terminationGracePeriodSeconds": 1, "containers": [container]},
    }
