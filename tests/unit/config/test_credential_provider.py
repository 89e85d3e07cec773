import hashlib
import json
from datetime import timedelta

import pytest

from klet.config.credential_provider import (
    decode_credential_providers,
    find_pattern_problem,
    load_credential_providers,
    select_config_files,
    validate_credential_providers,
)
from klet.config.errors import ConfigError

PLUGIN = "credentialprovider.kubelet.k8s.io/v1"
GOOD = {"name": "ecr", "matchImages": ["*.example.com"], "defaultCacheDuration": "12h", "apiVersion": PLUGIN}
TOKEN = {"serviceAccountTokenAudience": "aud", "requireServiceAccount": True, "cacheType": "Token"}


def text(*providers, version="v1", **more):
    fields = {
        "kind": "CredentialProviderConfig",
        "apiVersion": f"kubelet.config.k8s.io/{version}",
        "providers": list(providers),
    }
    return json.dumps({**fields, **more}).encode()


def problems(provider, *, use_tokens=True, more=()):
    config = decode_credential_providers(text(provider, *more))
    return [str(problem) for problem in validate_credential_providers(config, use_tokens=use_tokens)]


def test_every_field_is_read():
    provider = {**GOOD, "args": ["get"], "env": [{"name": "A", "value": "b"}], "tokenAttributes": {
        **TOKEN, "requiredServiceAccountAnnotationKeys": ["example.com/a"],
        "optionalServiceAccountAnnotationKeys": ["example.com/b"]}}  # fmt: skip
    (read,) = decode_credential_providers(text(provider)).providers
    assert (read.name, read.match_images, read.api_version, read.args) == ("ecr", ("*.example.com",), PLUGIN, ("get",))
    assert read.default_cache_duration == timedelta(hours=12)
    assert [(item.name, item.value) for item in read.env] == [("A", "b")]
    token = read.token_attributes
    assert token is not None
    assert (token.service_account_token_audience, token.cache_type) == ("aud", "Token")
    assert token.require_service_account is True
    assert token.required_service_account_annotation_keys == ("example.com/a",)
    assert token.optional_service_account_annotation_keys == ("example.com/b",)
    assert problems(provider) == []


@pytest.mark.parametrize("version", ["v1", "v1beta1", "v1alpha1"])
def test_versions(version):
    assert len(decode_credential_providers(text(GOOD, version=version)).providers) == 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(text(GOOD, kind="Pod"), 'failed to decode "Pod" (wrong Kind)', id="another kind"),
        pytest.param(text(GOOD, kind=""), "Object 'Kind' is missing", id="no kind"),
        pytest.param(text(GOOD, apiVersion=""), "Object 'apiVersion' is missing", id="no version"),
        pytest.param(text(GOOD, apiVersion="x/v1"), "failed to decode CredentialProviderConfig, unexpected Group: x",
                     id="another group"),
        pytest.param(text(GOOD, version="v2"), 'no kind "CredentialProviderConfig" is registered for version',
                     id="another version"),
        pytest.param(text({**GOOD, "colour": 1}), 'strict decoding error: unknown field "providers[0].colour"',
                     id="an unknown field"),
        pytest.param(text({**GOOD, "tokenAttributes": TOKEN}, version="v1beta1"),
                     'strict decoding error: unknown field "providers[0].tokenAttributes"', id="a field of v1 only"),
        pytest.param(text({**GOOD, "name": 5}), 'field "providers[0].name": expected a string, got a number',
                     id="a number for a name"),
        pytest.param(b"kind: CredentialProviderConfig\nkind: CredentialProviderConfig\n"
                     b"apiVersion: kubelet.config.k8s.io/v1\n", 'strict decoding error: duplicate field "kind"',
                     id="a field written twice"),
    ],
)  # fmt: skip
def test_bad_file(content, message):
    with pytest.raises(ConfigError) as caught:
        load_credential_providers([("/c.yaml", content)], use_tokens=True)
    assert str(caught.value).startswith(f'error decoding config "/c.yaml": {message}')


def without(name):
    return {key: value for key, value in GOOD.items() if key != name}


def token(**changes):
    fields = {**TOKEN, **changes}
    return {**GOOD, "tokenAttributes": {key: value for key, value in fields.items() if value is not None}}


T = "providers.tokenAttributes"


@pytest.mark.parametrize(
    ("provider", "expected"),
    [
        ({**GOOD, "name": "a/b"}, ["providers.name: Invalid value: \"a/b\": provider name cannot contain '/'"]),
        ({**GOOD, "name": "a b"}, ['providers.name: Invalid value: "a b": provider name cannot contain spaces']),
        ({**GOOD, "name": "."}, ["providers.name: Invalid value: \".\": provider name cannot be '.'"]),
        ({**GOOD, "name": ".."}, ["providers.name: Invalid value: \"..\": provider name cannot be '..'"]),
        (without("apiVersion"), ["providers.apiVersion: Required value"]),
        ({**GOOD, "apiVersion": "x"}, [
            ('providers.apiVersion: Unsupported value: "x": supported values: "credentialprovider.kubelet.k8s.io/v1", '
            '"credentialprovider.kubelet.k8s.io/v1alpha1", "credentialprovider.kubelet.k8s.io/v1beta1"')]),
        (without("matchImages"), ["providers.matchImages: Required value: at least 1 item in matchImages is required"]),
        ({**GOOD, "matchImages": ["%invalid%"]}, [
            ('providers.matchImages: Invalid value: "%invalid%": match image is invalid: parse "https://%invalid%": '
            'invalid URL escape "%in"')]),
        (without("defaultCacheDuration"), ["providers.defaultCacheDuration: Required value"]),
        ({**GOOD, "defaultCacheDuration": "-1m"}, [
            'providers.defaultCacheDuration: Invalid value: "-1m0s": must be greater than or equal to 0']),
        (token(serviceAccountTokenAudience=None), [f"{T}.serviceAccountTokenAudience: Required value"]),
        (token(requireServiceAccount=None), [f"{T}.requireServiceAccount: Required value"]),
        ({**token(), "apiVersion": f"{PLUGIN}beta1"}, [
            f"{T}: Forbidden: tokenAttributes is only supported for {PLUGIN} API version"]),
        (token(requireServiceAccount=False, requiredServiceAccountAnnotationKeys=["a"]), [
            (f"{T}.requiredServiceAccountAnnotationKeys: Forbidden: requireServiceAccount cannot be false when "
            "requiredServiceAccountAnnotationKeys is set")]),
        (token(optionalServiceAccountAnnotationKeys=["a", "a"]), [
            f'{T}.optionalServiceAccountAnnotationKeys: Duplicate value: "a"']),
        (token(requiredServiceAccountAnnotationKeys=["a"], optionalServiceAccountAnnotationKeys=["a"]), [
            f'{T}: Invalid value: ["a"]: annotation keys cannot be both required and optional']),
        (token(cacheType=None), [
            (f"{T}.cacheType: Required value: cacheType is required to be set when tokenAttributes is specified. "
            "Supported values are: ServiceAccount, Token")]),
        (token(cacheType="x"), [
            f'{T}.cacheType: Unsupported value: "x": supported values: "ServiceAccount", "Token"']),
    ],
)  # fmt: skip
def test_rule(provider, expected):
    assert problems(provider) == expected


def test_annotation_keys_are_qualified_names():
    (problem,) = problems(token(requiredServiceAccountAnnotationKeys=["-bad"]))
    assert problem.startswith(
        f'{T}.requiredServiceAccountAnnotationKeys: Invalid value: "-bad": name part must consist'
    )


def test_token_attributes_need_their_gate():
    assert problems(token(), use_tokens=False) == [
        (
            f"{T}: Forbidden: tokenAttributes is not supported when KubeletServiceAccountTokenForCredentialProviders "
            "feature gate is disabled"
        )
    ]


def test_no_providers():
    with pytest.raises(ConfigError, match="providers: Required value: at least 1 item in plugins is required"):
        load_credential_providers([("/c", text())], use_tokens=True)


def test_files_are_concatenated_and_hashed():
    first, second = text(GOOD), text({**GOOD, "name": "gcr"})
    loaded = load_credential_providers([("/a", first), ("/b", second)], use_tokens=True)
    assert [provider.name for provider in loaded.config.providers] == ["ecr", "gcr"]
    prefixed = b"".join(len(content).to_bytes(8, "big") + content for content in (first, second))
    assert loaded.hash == f"sha256:{hashlib.sha256(prefixed).hexdigest()}"


def test_a_provider_is_named_once():
    with pytest.raises(ConfigError, match=r'duplicate provider name "ecr" found in configuration file\(s\)'):
        load_credential_providers([("/a", text(GOOD)), ("/b", text(GOOD))], use_tokens=True)


def test_several_problems_are_reported_together():
    with pytest.raises(ConfigError) as caught:
        load_credential_providers([("/a", text({"name": "x"}))], use_tokens=True)
    assert str(caught.value) == (
        "failed to validate credential provider config: [providers.apiVersion: Required value, providers.matchImages: "
        "Required value: at least 1 item in matchImages is required, providers.defaultCacheDuration: Required value]"
    )


def test_files_of_a_directory():
    names = ["b.yaml", "a.json", "c.yml", "note.txt", "d.yaml.bak"]
    assert select_config_files(names, directory="/d/") == ("/d/a.json", "/d/b.yaml", "/d/c.yml")


def test_directory_without_files():
    with pytest.raises(ConfigError, match='no configuration files found in directory "/d"'):
        select_config_files(["note.txt"], directory="/d")


@pytest.mark.parametrize("pattern", ["*.k8s.io", "host:5000/path", "*", "a.b/c/d", "[::1]:5000/x", "host/%41"])
def test_good_pattern(pattern):
    assert find_pattern_problem(pattern) == ""


@pytest.mark.parametrize(
    ("pattern", "part"),
    [
        ("a b", 'invalid character " " in host name'),
        ("host:x/y", 'invalid port ":x" after host'),
        ("host/%4", 'invalid URL escape "%4"'),
        ("ho\nst", "invalid control character in URL"),
    ],
)
def test_bad_pattern(pattern, part):
    assert part in find_pattern_problem(pattern)
