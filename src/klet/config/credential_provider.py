"""CredentialProviderConfig: which programs give credentials for which images; types, decoding, rules.

Upstream: `pkg/credentialprovider/plugin`. The paths in messages carry no index there, and so they do not here.
"""

import hashlib
import re
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Final

from msgspec import Struct

from klet.api.times import Duration
from klet.api.validation.errors import FieldErrors, duplicate, forbidden, invalid, not_supported, required
from klet.api.validation.fieldpath import FieldPath
from klet.api.validation.formats import label_key
from klet.config.decode import decode
from klet.config.document import JsonObject, parse_document
from klet.config.errors import ConfigError, prefixed
from klet.config.files import describe_strict_problems, without_type
from klet.config.sections import Section

GROUP: Final = "kubelet.config.k8s.io"
KIND: Final = "CredentialProviderConfig"
VERSIONS: Final = ("v1", "v1beta1", "v1alpha1")
PLUGIN_V1: Final = "credentialprovider.kubelet.k8s.io/v1"
PLUGIN_VERSIONS: Final = (PLUGIN_V1, f"{PLUGIN_V1}alpha1", f"{PLUGIN_V1}beta1")
SERVICE_ACCOUNT_CACHE: Final = "ServiceAccount"
TOKEN_CACHE: Final = "Token"  # noqa: S105 - a kind of cache
CACHE_TYPES: Final = (SERVICE_ACCOUNT_CACHE, TOKEN_CACHE)
CONFIG_EXTENSIONS: Final = (".json", ".yaml", ".yml")

_PROVIDERS: Final = FieldPath("providers")
_ESCAPE: Final = re.compile(r"%(?![0-9a-fA-F]{2}).{0,2}")
_PORT: Final = re.compile(r":[0-9]*")


class ExecEnvVar(Section, frozen=True, kw_only=True):
    name: str = ""
    value: str = ""


class ServiceAccountTokenAttributes(Section, frozen=True, kw_only=True):
    """The token that a provider wants from the pod's service account."""

    service_account_token_audience: str = ""
    cache_type: str = ""
    require_service_account: bool | None = None
    required_service_account_annotation_keys: tuple[str, ...] = ()
    optional_service_account_annotation_keys: tuple[str, ...] = ()


class CredentialProvider(Section, frozen=True, kw_only=True):
    """One program that gives credentials for the images it matches."""

    name: str = ""
    match_images: tuple[str, ...] = ()
    default_cache_duration: timedelta | None = None
    api_version: str = ""
    args: tuple[str, ...] = ()
    env: tuple[ExecEnvVar, ...] = ()
    token_attributes: ServiceAccountTokenAttributes | None = None


class CredentialProviderConfig(Section, frozen=True, kw_only=True):
    """All providers, in the order of their files."""

    providers: tuple[CredentialProvider, ...] = ()


class CredentialProviders(Struct, frozen=True, kw_only=True):
    """The checked configuration and the hash that is exported with it."""

    config: CredentialProviderConfig
    hash: str


def load_credential_providers(files: Sequence[tuple[str, bytes]], *, use_tokens: bool) -> CredentialProviders:
    """Turn the configuration files, already in order, into one checked configuration."""
    providers: list[CredentialProvider] = []
    digest = hashlib.sha256()
    for path, content in files:
        digest.update(len(content).to_bytes(8, "big"))
        digest.update(content)
        with prefixed(f'error decoding config "{path}": '):
            providers.extend(decode_credential_providers(content).providers)
    names = [provider.name for provider in providers]
    for index, name in enumerate(names):
        if name in names[:index]:
            raise ConfigError(f'duplicate provider name "{name}" found in configuration file(s)')
    config = CredentialProviderConfig(providers=tuple(providers))
    problems = tuple(str(problem) for problem in validate_credential_providers(config, use_tokens=use_tokens))
    if problems:
        joined = problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]"
        raise ConfigError(f"failed to validate credential provider config: {joined}")
    return CredentialProviders(config=config, hash=f"sha256:{digest.hexdigest()}")


def select_config_files(names: Iterable[str], *, directory: str) -> tuple[str, ...]:
    """Return the files of a configuration directory, in the order in which they count."""
    chosen = sorted(name for name in names if name.endswith(CONFIG_EXTENSIONS))
    if not chosen:
        raise ConfigError(f'no configuration files found in directory "{directory}"')
    return tuple(f"{directory.rstrip('/')}/{name}" for name in chosen)


def decode_credential_providers(content: bytes) -> CredentialProviderConfig:
    """Decode one file strictly: unknown and repeated fields are errors."""
    document = parse_document(content)
    version = _version(document.fields)
    decoded = decode(without_type(document.fields), CredentialProviderConfig)
    problems = describe_strict_problems(document, decoded)
    if problems:
        raise ConfigError(problems)
    for index, provider in enumerate(decoded.value.providers):
        if version != "v1" and provider.token_attributes is not None:
            raise ConfigError(f'strict decoding error: unknown field "providers[{index}].tokenAttributes"')
    return decoded.value


def validate_credential_providers(config: CredentialProviderConfig, *, use_tokens: bool) -> FieldErrors:
    """Name every broken rule, in upstream's order."""
    if not config.providers:
        yield required(_PROVIDERS, "at least 1 item in plugins is required")
    seen: set[str] = set()
    for provider in config.providers:
        yield from _name_errors(provider.name)
        if provider.name in seen:
            yield duplicate(_PROVIDERS.child("name"), provider.name)
        seen.add(provider.name)
        yield from _provider_errors(provider)
        if provider.token_attributes is not None:
            yield from _token_errors(provider, provider.token_attributes, use_tokens=use_tokens)


def _version(fields: JsonObject) -> str:
    kind, api_version = fields.get("kind"), fields.get("apiVersion")
    for name, value in (("Kind", kind), ("apiVersion", api_version)):
        if not isinstance(value, str) or not value:
            raise ConfigError(f"Object '{name}' is missing: write kind: {KIND}, apiVersion: {GROUP}/v1")
    group, _, version = str(api_version).rpartition("/")
    if kind != KIND:
        raise ConfigError(f'failed to decode "{kind}" (wrong Kind): write kind: {KIND}')
    if group != GROUP:
        raise ConfigError(f"failed to decode CredentialProviderConfig, unexpected Group: {group}")
    if version not in VERSIONS:
        raise ConfigError(f'no kind "{KIND}" is registered for version "{api_version}": write {GROUP}/v1')
    return version


def _name_errors(name: str) -> FieldErrors:
    where = _PROVIDERS.child("name")
    if "/" in name:
        yield invalid(where, name, "provider name cannot contain '/'")
    if " " in name:
        yield invalid(where, name, "provider name cannot contain spaces")
    if name in (".", ".."):
        yield invalid(where, name, f"provider name cannot be '{name}'")


def _provider_errors(provider: CredentialProvider) -> FieldErrors:
    if not provider.api_version:
        yield required(_PROVIDERS.child("apiVersion"))
    elif provider.api_version not in PLUGIN_VERSIONS:
        yield not_supported(_PROVIDERS.child("apiVersion"), provider.api_version, PLUGIN_VERSIONS)
    images = _PROVIDERS.child("matchImages")
    if not provider.match_images:
        yield required(images, "at least 1 item in matchImages is required")
    for pattern in provider.match_images:
        problem = find_pattern_problem(pattern)
        if problem:
            yield invalid(images, pattern, f"match image is invalid: {problem}")
    cache = _PROVIDERS.child("defaultCacheDuration")
    if provider.default_cache_duration is None:
        yield required(cache)
    elif provider.default_cache_duration < timedelta():
        shown = Duration.of(provider.default_cache_duration).wire()
        yield invalid(cache, shown, "must be greater than or equal to 0")


def _token_errors(
    provider: CredentialProvider, token: ServiceAccountTokenAttributes, *, use_tokens: bool
) -> FieldErrors:
    where = _PROVIDERS.child("tokenAttributes")
    if not use_tokens:
        gate = "KubeletServiceAccountTokenForCredentialProviders"
        yield forbidden(where, f"tokenAttributes is not supported when {gate} feature gate is disabled")
    if not token.service_account_token_audience:
        yield required(where.child("serviceAccountTokenAudience"))
    if token.require_service_account is None:
        yield required(where.child("requireServiceAccount"))
    if provider.api_version != PLUGIN_V1:
        yield forbidden(where, f"tokenAttributes is only supported for {PLUGIN_V1} API version")
    needed, wanted = token.required_service_account_annotation_keys, token.optional_service_account_annotation_keys
    needed_path = where.child("requiredServiceAccountAnnotationKeys")
    if token.require_service_account is False and needed:
        rule = "requireServiceAccount cannot be false when requiredServiceAccountAnnotationKeys is set"
        yield forbidden(needed_path, rule)
    yield from _annotation_errors(needed_path, needed)
    yield from _annotation_errors(where.child("optionalServiceAccountAnnotationKeys"), wanted)
    both = sorted(set(needed) & set(wanted))
    if both:
        yield invalid(where, both, "annotation keys cannot be both required and optional")
    yield from _cache_type_errors(where.child("cacheType"), token.cache_type)


def _annotation_errors(where: FieldPath, keys: Sequence[str]) -> FieldErrors:
    for index, key in enumerate(keys):
        for message in label_key(key.lower()):
            yield invalid(where, key, message)
        if key in keys[:index]:
            yield duplicate(where, key)


def _cache_type_errors(where: FieldPath, cache_type: str) -> FieldErrors:
    if not cache_type:
        values = ", ".join(CACHE_TYPES)
        rule = f"cacheType is required to be set when tokenAttributes is specified. Supported values are: {values}"
        yield required(where, rule)
    elif cache_type not in CACHE_TYPES:
        yield not_supported(where, cache_type, CACHE_TYPES)


def find_pattern_problem(pattern: str) -> str:
    """Return why a pattern is not a URL without its scheme; empty when it is one."""
    url = f"https://{pattern}"
    if any(character < " " or character == "\x7f" for character in pattern):
        return f'parse "{url}": net/url: invalid control character in URL'
    host, _, path = pattern.partition("/")
    for part in (host, path):
        broken = _ESCAPE.search(part)
        if broken:
            return f'parse "{url}": invalid URL escape "{broken.group()}"'
    if " " in host:
        return f'parse "{url}": invalid character " " in host name'
    colon = host.rfind(":")
    if colon >= 0 and "]" not in host[colon:] and not _PORT.fullmatch(host[colon:]):
        return f'parse "{url}": invalid port "{host[colon:]}" after host'
    return ""
