"""What others would put into a cluster: accounts of namespaces (controllers), bootstrap tokens (kubeadm)."""

from typing import Final

from klet.api.base import ApiObject
from klet.api.config import ConfigMap, Secret, ServiceAccount
from klet.api.meta import ObjectMeta
from klet.api.rbac import ClusterRoleBinding, RoleRef, Subject
from klet.kube.client import KubeClient
from klet.kube.errors import AlreadyExists

TOKEN_GROUP: Final = "system:bootstrappers:kubeadm:default-node-token"  # noqa: S105  # a group's name, no secret
_CLIENTS: Final = "system:certificates.k8s.io:certificatesigningrequests"
_BINDINGS: Final = (
    ("kubeadm:kubelet-bootstrap", "system:node-bootstrapper", TOKEN_GROUP),
    ("kubeadm:node-autoapprove-bootstrap", f"{_CLIENTS}:nodeclient", TOKEN_GROUP),
    ("kubeadm:node-autoapprove-certificate-rotation", f"{_CLIENTS}:selfnodeclient", "system:nodes"),
)


async def create_default_objects(client: KubeClient, authority: str, namespace: str = "default") -> None:
    """Make what every pod of a namespace needs: its account, and the certificate of the cluster's authority."""
    await _ensure(client, ServiceAccount(metadata=ObjectMeta(name="default")), namespace)
    roots = ConfigMap(metadata=ObjectMeta(name="kube-root-ca.crt"), data={"ca.crt": authority})
    await _ensure(client, roots, namespace)


async def allow_bootstrap(client: KubeClient, token: str) -> None:
    """Let nodes join with a token of the form `id.secret`, as `kubeadm init` does."""
    name, _, secret = token.partition(".")
    fields = {
        "token-id": name,
        "token-secret": secret,
        "usage-bootstrap-authentication": "true",
        "auth-extra-groups": TOKEN_GROUP,
    }
    stored = Secret(
        metadata=ObjectMeta(name=f"bootstrap-token-{name}"),
        type="bootstrap.kubernetes.io/token",
        data={key: value.encode() for key, value in fields.items()},
    )
    await _ensure(client, stored, "kube-system")
    for binding, role, group in _BINDINGS:
        made = ClusterRoleBinding(
            metadata=ObjectMeta(name=binding),
            role_ref=RoleRef(api_group="rbac.authorization.k8s.io", kind="ClusterRole", name=role),
            subjects=(Subject(api_group="rbac.authorization.k8s.io", kind="Group", name=group),),
        )
        await _ensure(client, made)


async def _ensure(client: KubeClient, obj: ApiObject, namespace: str = "") -> None:
    try:
        await client.create(obj, namespace)
    except AlreadyExists:
        return
