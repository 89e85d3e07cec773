"""The environment variables by which containers find services (upstream: `envvars.FromServices`). Pure."""

from collections.abc import Iterable

from klet.api.service import Service, ServicePort

MASTER_NAMESPACE = "default"
MASTER_NAME = "kubernetes"


def build_service_environment(services: Iterable[Service], *, namespace: str, with_links: bool) -> dict[str, str]:
    """Return variables of the API server's service, and with links those of every service in the pod's namespace."""
    chosen: dict[str, Service] = {}
    for service in services:
        if not service.spec.cluster_ip or service.spec.cluster_ip == "None":
            continue
        name, home = service.metadata.name, service.metadata.namespace
        if home == namespace and with_links:
            chosen[name] = service
        elif (home, name) == (MASTER_NAMESPACE, MASTER_NAME):
            chosen.setdefault(name, service)
    variables: dict[str, str] = {}
    for service in chosen.values():
        variables.update(_variables(service))
    return variables


def _variables(service: Service) -> dict[str, str]:
    name = _name(service.metadata.name)
    address = service.spec.cluster_ip
    variables = {f"{name}_SERVICE_HOST": address}
    if not service.spec.ports:
        return variables
    first = service.spec.ports[0]
    variables[f"{name}_SERVICE_PORT"] = str(first.port)
    for port in service.spec.ports:
        if port.name:
            variables[f"{name}_SERVICE_PORT_{_name(port.name)}"] = str(port.port)
    variables[f"{name}_PORT"] = _url(address, first)
    for port in service.spec.ports:
        protocol = port.protocol or "TCP"
        prefix = f"{name}_PORT_{port.port}_{protocol.upper()}"
        variables[prefix] = _url(address, port)
        variables[f"{prefix}_PROTO"] = protocol.lower()
        variables[f"{prefix}_PORT"] = str(port.port)
        variables[f"{prefix}_ADDR"] = address
    return variables


def _url(address: str, port: ServicePort) -> str:
    host = f"[{address}]" if ":" in address else address
    return f"{(port.protocol or 'TCP').lower()}://{host}:{port.port}"


def _name(name: str) -> str:
    return name.replace("-", "_").upper()
