"""The security part of a container's configuration."""

from dataclasses import dataclass, field

import pytest
from msgspec.structs import replace

from klet.api.container import Container
from klet.api.pod import Pod
from klet.api.security import (
    AppArmorProfile,
    Capabilities,
    PodSecurityContext,
    SeccompProfile,
    SecurityContext,
    SELinuxOptions,
)
from klet.model.images import ImageUser
from klet.runtime.config.security import (
    MASKED_PATHS,
    READONLY_PATHS,
    SecuritySettings,
    build_security_context,
    check_non_root,
)
from klet.runtime.errors import StartError
from klet.testing.builders import make_container, make_pod
from klet.wire import cri_v1_pb2 as cri

PLAIN = SecuritySettings(seccomp_root="/root/seccomp")
PROFILE = cri.SecurityProfile
NOBODY = ImageUser()
WHERE = '(pod: "pod_default(uid-1)", container: c)'


@dataclass(frozen=True)
class Case:
    """A pod with one container, and both of their contexts."""

    own: SecurityContext | None = None
    shared: PodSecurityContext | None = None
    annotations: dict[str, str] = field(default_factory=dict)

    def pod(self) -> tuple[Pod, Container]:
        container = replace(make_container("c"), security_context=self.own)
        pod = make_pod(container)
        metadata = replace(pod.metadata, annotations=self.annotations)
        return replace(pod, metadata=metadata, spec=replace(pod.spec, security_context=self.shared)), container

    def built(self, user: ImageUser = NOBODY, settings: SecuritySettings = PLAIN) -> cri.LinuxContainerSecurityContext:
        return build_security_context(*self.pod(), user, settings)


NON_ROOT = SecurityContext(run_as_non_root=True)


@pytest.mark.parametrize(
    ("own", "shared", "user"),
    [
        pytest.param(None, None, ImageUser(uid=0), id="nobody asked"),
        pytest.param(
            SecurityContext(run_as_non_root=False),
            PodSecurityContext(run_as_non_root=True),
            ImageUser(),
            id="the container overrules the pod",
        ),
        pytest.param(NON_ROOT, None, ImageUser(uid=1000), id="the image has a user"),
        pytest.param(NON_ROOT, None, ImageUser(uid=2147483647), id="the largest user"),
        pytest.param(
            SecurityContext(run_as_non_root=True, run_as_user=1),
            None,
            ImageUser(name="app"),
            id="the container has a user",
        ),
        pytest.param(NON_ROOT, PodSecurityContext(run_as_user=7), ImageUser(), id="the pod has a user"),
    ],
)
def test_containers_that_may_run(own, shared, user):
    check_non_root(*Case(own, shared).pod(), user)


@pytest.mark.parametrize(
    ("own", "shared", "user", "message"),
    [
        pytest.param(
            SecurityContext(run_as_non_root=True, run_as_user=0),
            None,
            ImageUser(uid=5),
            f"container's runAsUser breaks non-root policy {WHERE}",
            id="the spec wants root",
        ),
        pytest.param(
            SecurityContext(run_as_user=0),
            PodSecurityContext(run_as_non_root=True, run_as_user=5),
            ImageUser(uid=5),
            f"container's runAsUser breaks non-root policy {WHERE}",
            id="the container overrules the pod's user",
        ),
        pytest.param(
            NON_ROOT,
            None,
            ImageUser(name="app"),
            f"container has runAsNonRoot and image has non-numeric user (app), cannot verify user is non-root {WHERE}",
            id="a name could be anyone",
        ),
        pytest.param(
            NON_ROOT,
            None,
            ImageUser(uid=0),
            f"container has runAsNonRoot and image will run as root {WHERE}",
            id="root",
        ),
        pytest.param(
            NON_ROOT, None, ImageUser(), f"container has runAsNonRoot and image will run as root {WHERE}", id="no user"
        ),
        pytest.param(
            NON_ROOT,
            None,
            ImageUser(uid=2147483648),
            "container has runAsNonRoot and image has an invalid user id (2147483648). (Must be 1-(2147483647)): "
            f"[must be between 0 and 2147483647, inclusive] {WHERE}",
            id="a user out of range",
        ),
    ],
)
def test_containers_that_would_run_as_root(own, shared, user, message):
    with pytest.raises(StartError) as caught:
        check_non_root(*Case(own, shared).pod(), user)
    assert (caught.value.reason, caught.value.message) == ("CreateContainerConfigError", message)


@pytest.mark.parametrize(
    ("own", "shared", "user", "uid", "name"),
    [
        pytest.param(
            SecurityContext(run_as_user=5), PodSecurityContext(run_as_user=6), ImageUser(uid=7), 5, "", id="own"
        ),
        pytest.param(None, PodSecurityContext(run_as_user=6), ImageUser(name="app"), 6, "", id="the pod's"),
        pytest.param(None, None, ImageUser(uid=7), 7, "", id="the image's"),
        pytest.param(None, None, ImageUser(name="app"), None, "app", id="the image's by name"),
        pytest.param(None, None, ImageUser(), 0, "", id="root is named"),
        pytest.param(
            SecurityContext(run_as_user=0), PodSecurityContext(run_as_user=6), ImageUser(), 0, "", id="zero is a user"
        ),
    ],
)
def test_user(own, shared, user, uid, name):
    context = Case(own, shared).built(user)
    assert (context.run_as_user.value if context.HasField("run_as_user") else None) == uid
    assert context.run_as_username == name


def test_group_and_groups():
    shared = PodSecurityContext(
        run_as_group=3, fs_group=10, supplemental_groups=(20, 30), supplemental_groups_policy="Strict"
    )
    context = Case(None, shared).built()
    assert context.run_as_group.value == 3
    assert list(context.supplemental_groups) == [10, 20, 30]
    assert context.supplemental_groups_policy == cri.Strict
    assert Case(SecurityContext(run_as_group=4), shared).built().run_as_group.value == 4


def test_a_container_without_any_context():
    context = Case().built()
    assert not context.HasField("run_as_group")
    assert not context.HasField("capabilities")
    assert not context.HasField("selinux_options")
    assert not context.HasField("apparmor")
    assert not context.privileged
    assert not context.readonly_rootfs
    assert not context.no_new_privs
    assert list(context.supplemental_groups) == []
    assert tuple(context.masked_paths) == MASKED_PATHS
    assert tuple(context.readonly_paths) == READONLY_PATHS


def test_what_a_container_sets_for_itself():
    own = SecurityContext(
        privileged=True,
        read_only_root_filesystem=True,
        allow_privilege_escalation=False,
        capabilities=Capabilities(add=("NET_ADMIN",), drop=("ALL",)),
        proc_mount="Unmasked",
        se_linux_options=SELinuxOptions(level="s0:c1"),
    )
    context = Case(own, PodSecurityContext(se_linux_options=SELinuxOptions(level="s0:c2"))).built()
    assert context.privileged
    assert context.readonly_rootfs
    assert context.no_new_privs
    assert list(context.capabilities.add_capabilities) == ["NET_ADMIN"]
    assert list(context.capabilities.drop_capabilities) == ["ALL"]
    assert list(context.masked_paths) == list(context.readonly_paths) == []
    assert context.selinux_options.level == "s0:c1"


@pytest.mark.parametrize(("allowed", "expected"), [(None, False), (True, False), (False, True)])
def test_no_new_privileges_only_when_escalation_is_forbidden(allowed, expected):
    assert Case(SecurityContext(allow_privilege_escalation=allowed)).built().no_new_privs is expected


RUNTIME_DEFAULT = SeccompProfile(type="RuntimeDefault")


@pytest.mark.parametrize(
    ("own", "shared", "default", "kind", "path"),
    [
        pytest.param(None, None, False, PROFILE.Unconfined, "", id="nothing said"),
        pytest.param(None, None, True, PROFILE.RuntimeDefault, "", id="nothing said on a node with a default"),
        pytest.param(None, RUNTIME_DEFAULT, False, PROFILE.RuntimeDefault, "", id="the pod's"),
        pytest.param(SeccompProfile(type="Unconfined"), RUNTIME_DEFAULT, True, PROFILE.Unconfined, "", id="its own"),
        pytest.param(
            SeccompProfile(type="Localhost", localhost_profile="a/b.json"),
            None,
            True,
            PROFILE.Localhost,
            "/root/seccomp/a/b.json",
            id="a file of the node",
        ),
    ],
)
def test_seccomp(own, shared, default, kind, path):
    case = Case(SecurityContext(seccomp_profile=own), PodSecurityContext(seccomp_profile=shared))
    settings = SecuritySettings(seccomp_default=default, seccomp_root="/root/seccomp")
    seccomp = case.built(settings=settings).seccomp
    assert (seccomp.profile_type, seccomp.localhost_ref) == (kind, path)


@pytest.mark.parametrize("name", [None, ""])
def test_a_local_seccomp_profile_needs_a_name(name):
    profile = SeccompProfile(type="Localhost", localhost_profile=name)
    with pytest.raises(StartError, match=r"^localhostProfile must be set if seccompProfile type is Localhost\.$"):
        Case(SecurityContext(seccomp_profile=profile)).built()


@pytest.mark.parametrize(
    ("context", "what"),
    [
        (SecurityContext(seccomp_profile=SeccompProfile(type="Stricter")), "seccomp"),
        (SecurityContext(app_armor_profile=AppArmorProfile(type="Stricter")), "AppArmor"),
    ],
)
def test_an_unknown_type_of_profile_is_not_taken_for_none(context, what):
    with pytest.raises(StartError, match=f'^unknown {what} profile type "Stricter"$'):
        Case(context).built()


ANNOTATION = "container.apparmor.security.beta.kubernetes.io/c"


@pytest.mark.parametrize(
    ("own", "annotation", "shared", "expected"),
    [
        pytest.param(None, "", None, None, id="nothing said"),
        pytest.param(
            "RuntimeDefault", "unconfined", "Unconfined", (PROFILE.RuntimeDefault, "", "runtime/default"), id="own"
        ),
        pytest.param(None, "localhost/x", "Unconfined", (PROFILE.Localhost, "x", "localhost/x"), id="the annotation"),
        pytest.param(
            None, "runtime/default", None, (PROFILE.RuntimeDefault, "", "runtime/default"), id="annotated default"
        ),
        pytest.param(None, "unconfined", None, (PROFILE.Unconfined, "", "unconfined"), id="annotated unconfined"),
        pytest.param(None, "odd", "Unconfined", (PROFILE.Unconfined, "", "unconfined"), id="an odd annotation is none"),
        pytest.param(None, "", "RuntimeDefault", (PROFILE.RuntimeDefault, "", "runtime/default"), id="the pod's"),
    ],
)
def test_apparmor(own, annotation, shared, expected):
    case = Case(
        SecurityContext(app_armor_profile=AppArmorProfile(type=own) if own else None),
        PodSecurityContext(app_armor_profile=AppArmorProfile(type=shared) if shared else None),
        {ANNOTATION: annotation} if annotation else {},
    )
    context = case.built()
    if expected is None:
        assert not context.HasField("apparmor")
        assert context.apparmor_profile == ""
    else:
        found = context.apparmor
        assert (found.profile_type, found.localhost_ref, context.apparmor_profile) == expected


def test_a_local_apparmor_profile_needs_a_name():
    with pytest.raises(StartError, match=r"^missing localhost apparmor profile name$"):
        Case(SecurityContext(app_armor_profile=AppArmorProfile(type="Localhost"))).built()


@pytest.mark.parametrize(
    ("proc_mount", "expected"),
    [
        pytest.param(None, [*MASKED_PATHS, "/sys/devices/system/cpu/cpu0/thermal_throttle"], id="masked by default"),
        pytest.param("Default", [*MASKED_PATHS, "/sys/devices/system/cpu/cpu0/thermal_throttle"], id="masked"),
        pytest.param("Unmasked", [], id="unmasked"),
    ],
)
def test_the_temperature_of_the_cpus_is_masked(proc_mount, expected):
    settings = SecuritySettings(thermal_paths=("/sys/devices/system/cpu/cpu0/thermal_throttle",))
    context = Case(own=SecurityContext(proc_mount=proc_mount)).built(settings=settings)
    assert list(context.masked_paths) == expected


def test_groups_of_volumes_follow_those_of_the_pod():
    pod, container = Case(shared=PodSecurityContext(fs_group=10, supplemental_groups=(20,))).pod()
    context = build_security_context(pod, container, NOBODY, PLAIN, extra_groups=(5555,))
    assert list(context.supplemental_groups) == [10, 20, 5555]
    context = build_security_context(*Case().pod(), NOBODY, PLAIN, extra_groups=(5555,))
    assert list(context.supplemental_groups) == [5555]
