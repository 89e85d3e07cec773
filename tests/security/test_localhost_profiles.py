"""Profiles without a name (CVE-2023-2431): a container that asked to be confined must not start unconfined.

The API server refuses such pods; a node does not rely on it.
"""

from klet.testing.builders import IMAGE

REFUSED = "CreateContainerConfigError"
NAMELESS = (
    {"seccompProfile": {"type": "Localhost", "localhostProfile": ""}},
    {"seccompProfile": {"type": "Localhost"}},
    {"seccompProfile": {"type": "localhost", "localhostProfile": "strict.json"}},
    {"seccompProfile": {"type": "Stricter"}},
    {"appArmorProfile": {"type": "Localhost", "localhostProfile": ""}},
    {"appArmorProfile": {"type": "Localhost"}},
    {"appArmorProfile": {"type": "Stricter"}},
)


def refuses(name, container):
    """Whether a pod was rejected, as without AppArmor on the host, or its container cannot be created."""

    def holds(pods) -> bool:
        status = pods[name].status if name in pods else None
        if status is None or status.reason == "AppArmor":
            return status is not None and status.phase == "Failed"
        every = (*status.init_container_statuses, *status.container_statuses)
        waiting = [each.state.waiting for each in every if each.name == container]
        return any(state is not None and state.reason == REFUSED for state in waiting)

    return holds


async def test_no_container_of_the_api_server_starts_without_its_profile(attack):
    async with attack(cluster=True) as target:
        for number, context in enumerate(NAMELESS):
            own = {"name": "main", "image": IMAGE, "securityContext": context}
            plain = {"name": "main", "image": IMAGE}
            await target.cluster.slip_in(f"own-{number}", {"containers": [own]})
            await target.cluster.slip_in(f"shared-{number}", {"containers": [plain], "securityContext": context})
            await target.cluster.slip_in(
                f"init-{number}", {"containers": [plain], "initContainers": [own | {"name": "i"}]}
            )
            for pod, container in ((f"own-{number}", "main"), (f"shared-{number}", "main"), (f"init-{number}", "i")):
                await target.agent.until(refuses(pod, container), what=f"{pod} is refused")
        assert target.created() == []


async def test_such_a_manifest_is_no_pod(attack, pod):
    async with attack() as target:
        contexts = (*NAMELESS[1:], {"seccompProfile": {"type": "Localhost", "localhostProfile": "../../escape.json"}})
        for number, context in enumerate(contexts):
            target.node.write(f"web{number}", pod(f"web{number}", main={"securityContext": context}))
        await target.start(pod("zz-last"))
        assert set(await target.agent.pods()) == {"zz-last"}
        # An empty name is not missing, by the API's rules.
        target.node.write("empty", pod("empty", nameless={"securityContext": NAMELESS[0]}))
        await target.waiting("empty", "nameless", reason=REFUSED)
        assert target.created("nameless") == []


async def test_a_profile_with_a_name_is_passed_on(attack, pod):
    """Without this the refusals would prove nothing."""
    async with attack() as target:
        named = {"seccompProfile": {"type": "Localhost", "localhostProfile": "strict.json"}}
        await target.start(pod("web", main={"securityContext": named}))
        [config] = target.created("main")
        profile = config.linux.security_context.seccomp
        assert profile.localhost_ref == str(target.node.root / "seccomp" / "strict.json")
