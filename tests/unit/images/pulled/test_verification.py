"""Which pods may use an image that is there: the table of MustAttemptImagePull, and what records learn."""

from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from klet.config.image_policy import POLICIES
from klet.images.pulled.format import ImagePullCredentials, new_record
from klet.images.pulled.verification import (
    MOST_LEARNED,
    Check,
    build_rules,
    check_credentials,
    check_record,
    credentials_of,
    merge_credentials,
    merge_record,
    needs_verification,
)
from klet.images.sources import ImagePullSecret, ImagePullServiceAccount, NodeWide

NOW = datetime(2025, 1, 2, 3, 4, 5, tzinfo=UTC)
IMAGE = "registry.example.com/team/app:1"
REPOSITORY = "registry.example.com/team/app"
SECRET = ImagePullSecret("u1", "ns", "regcred", "hash-1")
OTHER = ImagePullSecret("u2", "ns", "other", "hash-2")
ACCOUNT = ImagePullServiceAccount("u9", "ns", "builder")
BY_SECRET = ImagePullCredentials(kubernetes_secrets=(SECRET,))
BY_ACCOUNT = ImagePullCredentials(kubernetes_service_accounts=(ACCOUNT,))
BY_NODE = ImagePullCredentials(node_pods_accessible=True)
POLICY, FOUND, MUST = Check.POLICY_ALLOWED, Check.RECORD_FOUND, Check.MUST_AUTHENTICATE
NEVER, PRELOADED, LISTED, ALWAYS = POLICIES


def rules(policy=PRELOADED, *allowlist):
    return build_rules(policy, allowlist)


def check(record, *offered, policy=PRELOADED, is_pulled_here=None, image=IMAGE):
    """The whole table in one question."""
    is_pulled_here = record is not None if is_pulled_here is None else is_pulled_here
    found = check_record(rules(policy), image, REPOSITORY, record, is_pulled_here=is_pulled_here)
    if isinstance(found, Check):
        return found, None
    compared = check_credentials(found, offered)
    return compared.outcome, compared.learned


def recorded(credentials, repository=REPOSITORY):
    return new_record("sha256:1", {repository: credentials}, now=NOW)


@pytest.mark.parametrize(
    ("record", "offered", "expected"),
    [
        pytest.param(recorded(BY_SECRET), [SECRET], (FOUND, None), id="recorded with the pod's exact secret"),
        pytest.param(recorded(BY_SECRET), [], (MUST, None), id="recorded, the pod has no secrets"),
        pytest.param(recorded(BY_SECRET), [replace(SECRET, credential_hash="new")],
                     (FOUND, replace(SECRET, credential_hash="new")), id="same secret, different hash: updated"),
        pytest.param(recorded(BY_SECRET), [replace(SECRET, uid="u8", credential_hash="new")], (MUST, None),
                     id="same name, different uid"),
        pytest.param(recorded(BY_SECRET), [replace(OTHER, credential_hash="hash-1")],
                     (FOUND, replace(OTHER, credential_hash="hash-1")), id="different secret, same hash: added"),
        pytest.param(recorded(BY_SECRET), [OTHER], (MUST, None), id="a different secret"),
        pytest.param(recorded(BY_SECRET), [OTHER, SECRET], (FOUND, None), id="one of several secrets"),
        pytest.param(recorded(BY_SECRET), [NodeWide()], (MUST, None), id="the login of the node is nobody's secret"),
        pytest.param(recorded(BY_SECRET, "docker.io/library/app"), [SECRET], (MUST, None),
                     id="recorded under another image name"),
        pytest.param(new_record("sha256:1", {}, now=NOW), [SECRET], (MUST, None), id="empty credential mapping"),
        pytest.param(recorded(ImagePullCredentials()), [SECRET], (MUST, None), id="nobody in the mapping"),
        pytest.param(None, [SECRET], (POLICY, None), id="no record at all"),
        pytest.param(recorded(BY_NODE), [], (FOUND, None), id="node accessible"),
        pytest.param(recorded(BY_ACCOUNT), [ACCOUNT], (FOUND, None), id="recorded with the pod's service account"),
        pytest.param(recorded(BY_ACCOUNT), [replace(ACCOUNT, uid="u8")], (MUST, None), id="a new service account"),
        pytest.param(recorded(BY_ACCOUNT), [SECRET], (MUST, None), id="a secret where an account is recorded"),
        pytest.param(recorded(replace(BY_SECRET, kubernetes_secrets=(replace(SECRET, credential_hash=""),))),
                     [replace(OTHER, credential_hash="")], (MUST, None), id="no hash is equal to no hash"),
    ],
)  # fmt: skip
def test_with_the_default_policy(record, offered, expected):
    assert check(record, *offered) == expected


@pytest.mark.parametrize(("policy", "expected"), [(NEVER, POLICY), (PRELOADED, MUST), (LISTED, MUST), (ALWAYS, MUST)])
def test_only_an_intent(policy, expected):
    assert check(None, SECRET, policy=policy, is_pulled_here=True) == (expected, None)


@pytest.mark.parametrize(("policy", "expected"), [(NEVER, POLICY), (PRELOADED, POLICY), (LISTED, MUST), (ALWAYS, MUST)])
def test_an_image_that_was_never_pulled_here(policy, expected):
    assert check(None, SECRET, policy=policy) == (expected, None)


@pytest.mark.parametrize("policy", [PRELOADED, LISTED, ALWAYS])
def test_every_stricter_policy_takes_what_is_recorded(policy):
    assert check(recorded(BY_SECRET), SECRET, policy=policy) == (FOUND, None)
    assert check(recorded(BY_SECRET), OTHER, policy=policy) == (MUST, None)


@pytest.mark.parametrize(
    ("pattern", "image", "expected"),
    [
        ("registry.example.com/team/app", "registry.example.com/team/app", False),
        ("registry.example.com/team/app", IMAGE, True),
        ("registry.example.com/team/*", IMAGE, False),
        ("registry.example.com/team/*", "registry.example.com/teams/app:1", True),
        ("registry.example.com/*", IMAGE, False),
        ("docker.io/library/nginx", "nginx", True),
        ("docker.io/library/nginx", "docker.io/library/nginx", False),
    ],
)
def test_the_allowlist_compares_the_image_as_the_pod_names_it(pattern, image, expected):
    assert needs_verification(rules(LISTED, "quay.io/x", pattern), image, is_pulled_here=True) is expected


def test_an_empty_allowlist_allows_nothing():
    assert needs_verification(rules(LISTED), IMAGE, is_pulled_here=False)


def test_a_full_record_learns_no_more_and_takes_no_changed_secret():
    full = ImagePullCredentials(
        kubernetes_secrets=(SECRET, *(replace(OTHER, name=f"s{number}") for number in range(MOST_LEARNED - 1)))
    )
    changed = replace(SECRET, credential_hash="new")
    assert check(recorded(full), changed) == (MUST, None)
    assert check(recorded(full), replace(OTHER, uid="u7", credential_hash="hash-1")) == (FOUND, None)
    assert check(recorded(full), SECRET) == (FOUND, None)
    less = replace(full, kubernetes_secrets=full.kubernetes_secrets[:-1])
    assert check(recorded(less), changed) == (FOUND, changed)


@pytest.mark.parametrize(
    ("source", "expected"),
    [(None, BY_NODE), (NodeWide(), BY_NODE), (SECRET, BY_SECRET), (ACCOUNT, BY_ACCOUNT)],
)
def test_what_a_pull_proves(source, expected):
    assert credentials_of(source) == expected


@pytest.mark.parametrize(
    ("known", "new", "expected"),
    [
        pytest.param(BY_NODE, BY_SECRET, BY_NODE, id="what all may use stays so"),
        pytest.param(BY_SECRET, BY_NODE, BY_NODE, id="what all may use needs no list"),
        pytest.param(BY_SECRET, BY_SECRET, BY_SECRET, id="nothing new"),
        pytest.param(BY_SECRET, credentials_of(OTHER), ImagePullCredentials(kubernetes_secrets=(OTHER, SECRET)),
                     id="sorted by namespace, name and uid"),
        pytest.param(BY_SECRET, credentials_of(replace(SECRET, credential_hash="new")),
                     credentials_of(replace(SECRET, credential_hash="new")), id="a new hash replaces the old one"),
        pytest.param(BY_SECRET, credentials_of(replace(SECRET, namespace="a")),
                     ImagePullCredentials(kubernetes_secrets=(replace(SECRET, namespace="a"), SECRET)),
                     id="another namespace is another secret"),
        pytest.param(BY_SECRET, BY_ACCOUNT,
                     ImagePullCredentials(kubernetes_secrets=(SECRET,), kubernetes_service_accounts=(ACCOUNT,)),
                     id="secrets and accounts"),
    ],
)  # fmt: skip
def test_merging(known, new, expected):
    assert merge_credentials(known, new) == expected


def test_a_record_that_learns_nothing_is_the_same_record():
    record = recorded(BY_SECRET)
    assert merge_record(record, REPOSITORY, BY_SECRET) is record
    assert merge_record(record, "quay.io/a", BY_NODE).credential_mapping == {
        REPOSITORY: BY_SECRET, "quay.io/a": BY_NODE,
    }  # fmt: skip
