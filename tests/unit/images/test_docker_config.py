"""Logins in the formats that Docker has for them."""

import base64
import json

import pytest

from klet.images.docker_config import BadDockerConfig, RegistryLogin, parse_docker_config_json, parse_dockercfg

AUTH_ERROR = "unable to parse auth field, must be formatted as base64(username:password)"
BAD_BASE64 = "unable to parse auth field, illegal base64 data"


def coded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


@pytest.mark.parametrize(
    ("entry", "login"),
    [
        pytest.param({"username": "u", "password": "p", "email": "e"}, ("u", "p", "e"), id="three fields"),
        pytest.param({"auth": coded("user:pass")}, ("user", "pass"), id="both in one field, padded or not"),
        pytest.param({"auth": coded("user:pass").rstrip("=")}, ("user", "pass"), id="without its padding"),
        pytest.param({"auth": coded("u:p")}, ("u", "p"), id="that needs no padding"),
        pytest.param({"auth": coded("us:p:a:ss")}, ("us", "p:a:ss"), id="a password with colons"),
        pytest.param({"auth": coded("user:")}, ("user", ""), id="an empty password"),
        pytest.param({"auth": coded("u" * 60 + ":pw")[:40] + "\n" + coded("u" * 60 + ":pw")[40:]}, ("u" * 60, "pw"),
                     id="with line ends"),
        pytest.param({"auth": coded("a:b"), "username": "x", "password": "y"}, ("a", "b"), id="the one field wins"),
        pytest.param({"auth": "", "username": "x", "password": "y"}, ("x", "y"), id="an empty field says nothing"),
        pytest.param({"username": None, "password": None, "auth": None}, ("", ""), id="null says nothing"),
        pytest.param({"identitytoken": "t"}, ("", ""), id="what is not known is passed over"),
        pytest.param(None, ("", ""), id="nothing at all"),
    ],
)  # fmt: skip
def test_a_login(entry, login):
    whole = json.dumps({"auths": {"r": entry}, "credsStore": "desktop"}).encode()
    assert parse_docker_config_json(whole) == {"r": RegistryLogin(*login)}
    assert parse_dockercfg(json.dumps({"r": entry}).encode()) == {"r": RegistryLogin(*login)}


@pytest.mark.parametrize("text", [b"{}", b"null", b'{"auths":null}', b'{"auths":{}}'])
def test_a_document_without_logins(text):
    assert parse_docker_config_json(text) == {}


@pytest.mark.parametrize("text", [b"{}", b"null"])
def test_an_older_document_without_logins(text):
    assert parse_dockercfg(text) == {}


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        pytest.param({"auth": coded("secretpass")}, AUTH_ERROR, id="no colon"),
        pytest.param({"auth": "secretpass%"}, BAD_BASE64, id="not base64"),
        pytest.param({"auth": "secretpass="}, BAD_BASE64, id="padding of another length"),
        pytest.param({"auth": "secretpass123"}, BAD_BASE64, id="a length that does not exist"),
        pytest.param({"auth": coded("u:p") + " "}, BAD_BASE64, id="a blank at its end"),
        pytest.param({"password": 7, "username": "secretpass"}, "Expected `str | null`, got `int`", id="a number"),
        pytest.param(["secretpass"], "Expected `object | null`, got `array`", id="a list"),
    ],
)
def test_a_login_that_cannot_be_read_is_not_shown(entry, why):
    for parse, document in ((parse_docker_config_json, {"auths": {"r": entry}}), (parse_dockercfg, {"r": entry})):
        with pytest.raises(BadDockerConfig) as caught:
            parse(json.dumps(document).encode())
        assert str(caught.value) == why
        assert caught.value.__cause__ is None


@pytest.mark.parametrize("text", [b"", b"secretpass", b'{"auths": {"password": "secretpass\xff"}}', b"[]", b'"x"'])
@pytest.mark.parametrize("parse", [parse_docker_config_json, parse_dockercfg])
def test_what_is_no_document_is_not_shown(parse, text):
    with pytest.raises(BadDockerConfig) as caught:
        parse(text)
    assert "secret" not in str(caught.value)


def test_a_password_is_in_no_text():
    login = RegistryLogin("user", "secretpass")
    assert "secretpass" not in f"{login} {login!r}"
