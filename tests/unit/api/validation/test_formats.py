import pytest

from klet.api.validation import formats

LABEL = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    "an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
NAME_PART = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
VALUE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
KEY = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or "
    "'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)
HEADER = (
    "a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name', regex used for "
    "validation is '[-A-Za-z0-9]+')"
)
LABEL_1035 = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, "
    "and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is "
    "'[a-z]([-a-z0-9]*[a-z0-9])?')"
)
ENV = "a valid environment variable name must consist only of printable ASCII characters other than '='"
PORT_CHARACTERS = "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)"
PORT_LETTER = "must contain at least one letter (a-z)"
IP = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
CIDR = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"


@pytest.mark.parametrize(
    ("check", "value", "messages"),
    [
        pytest.param(formats.dns_label, "a-1", (), id="a label"),
        pytest.param(formats.dns_label, "1", (), id="a label may be a digit"),
        pytest.param(formats.dns_label, "A", (LABEL,), id="a label has no capitals"),
        pytest.param(formats.dns_label, "", (LABEL,), id="a label is not empty"),
        pytest.param(formats.dns_label, "a.b", ("must not contain dots",), id="a label that only has dots too much"),
        pytest.param(formats.dns_label, "a_.b", (LABEL,), id="a label with more wrong than dots"),
        pytest.param(formats.dns_label, "a" * 64, ("must be no more than 63 characters",), id="a long label"),
        pytest.param(
            formats.dns_label, "A" * 64, ("must be no more than 63 characters", LABEL), id="a long label with capitals"
        ),
        pytest.param(formats.dns_label, "a\n", (LABEL,), id="a label does not end in a newline"),
        pytest.param(formats.dns_subdomain, "a.b-c.1", (), id="a subdomain"),
        pytest.param(formats.dns_subdomain, "a..b", (SUBDOMAIN,), id="a subdomain with an empty part"),
        pytest.param(formats.dns_subdomain, "a" * 254, ("must be no more than 253 characters",), id="a long subdomain"),
        pytest.param(formats.dns_subdomain_with_underscore, "_tcp.a_b.c", (), id="underscores in a search domain"),
        pytest.param(formats.dns_1035_label, "a1", (), id="a service name"),
        pytest.param(formats.dns_1035_label, "1a", (LABEL_1035,), id="a service name starts with a letter"),
        pytest.param(formats.label_key, "a.b/C_d", (), id="a label key with a prefix"),
        pytest.param(formats.label_key, "A", (), id="a label key may have capitals"),
        pytest.param(formats.label_key, "-a", (NAME_PART,), id="a label key with a dash in front"),
        pytest.param(formats.label_key, "", ("name part must be non-empty", NAME_PART), id="an empty label key"),
        pytest.param(formats.label_key, "a" * 64, ("name part must be no more than 63 bytes",), id="a long label key"),
        pytest.param(
            formats.label_key, "/a", ("prefix part must be non-empty",), id="a label key with an empty prefix"
        ),
        pytest.param(formats.label_key, "A/a", (f"prefix part {SUBDOMAIN}",), id="a label key with a bad prefix"),
        pytest.param(
            formats.label_key,
            "a/b/c",
            (
                (
                    f"a valid label key {NAME_PART.removeprefix('name part ')} with an optional "
                    "DNS subdomain prefix and '/' "
                    "(e.g. 'example.com/MyName')"
                ),
            ),
            id="a label key with two slashes",
        ),
        pytest.param(formats.annotation_key, "A.B/c", (), id="annotation keys may have capitals in the prefix"),
        pytest.param(formats.label_value, "", (), id="a label value may be empty"),
        pytest.param(formats.label_value, "a b", (VALUE,), id="a label value has no blanks"),
        pytest.param(formats.label_value, "a" * 64, ("must be no more than 63 bytes",), id="a long label value"),
        pytest.param(formats.env_name, "a b!~-", (), id="environment names are relaxed"),
        pytest.param(formats.env_name, "a=b", (ENV,), id="environment names have no equals sign"),
        pytest.param(formats.env_name, "ä", (ENV,), id="environment names are ASCII"),
        pytest.param(formats.env_name, "", ("environment variable name must be non-empty",), id="no environment name"),
        pytest.param(formats.config_key, "a_B-.c", (), id="a config key"),
        pytest.param(formats.config_key, "a b", (KEY,), id="a config key has no blanks"),
        pytest.param(formats.config_key, ".", ("must not be '.'",), id="a config key is not a dot"),
        pytest.param(formats.config_key, "..", ("must not be '..'",), id="a config key is not two dots"),
        pytest.param(formats.config_key, "..a", ("must not start with '..'",), id="a config key is no hidden version"),
        pytest.param(formats.config_key, "a" * 254, ("must be no more than 253 characters",), id="a long config key"),
        pytest.param(formats.http_header_name, "X-A", (), id="a header"),
        pytest.param(formats.http_header_name, "a b", (HEADER,), id="a header has no blanks"),
        pytest.param(formats.port_name, "http-1", (), id="a port name"),
        pytest.param(formats.port_name, "a" * 16, ("must be no more than 15 characters",), id="a long port name"),
        pytest.param(formats.port_name, "A1", (PORT_CHARACTERS, PORT_LETTER), id="a port name in capitals"),
        pytest.param(formats.port_name, "80", (PORT_LETTER,), id="a port name of digits"),
        pytest.param(formats.port_name, "a--b", ("must not contain consecutive hyphens",), id="two hyphens"),
        pytest.param(formats.port_name, "-a", ("must not begin or end with a hyphen",), id="a hyphen in front"),
        pytest.param(formats.port_name, "a-", ("must not begin or end with a hyphen",), id="a hyphen at the end"),
        pytest.param(formats.port_number, 65535, (), id="the last port"),
        pytest.param(formats.port_number, 0, ("must be between 1 and 65535, inclusive",), id="port zero"),
        pytest.param(formats.port_number, 65536, ("must be between 1 and 65535, inclusive",), id="a port too far"),
        pytest.param(formats.user_or_group_id, 2147483647, (), id="the last user"),
        pytest.param(
            formats.user_or_group_id, -1, ("must be between 0 and 2147483647, inclusive",), id="a negative user"
        ),
        pytest.param(formats.ip_address, "10.0.0.1", (), id="an IPv4 address"),
        pytest.param(formats.ip_address, "010.000.0.1", (), id="leading zeros are decimal"),
        pytest.param(formats.ip_address, "2001:db8::1", (), id="an IPv6 address"),
        pytest.param(formats.ip_address, "fe80::1%eth0", (IP,), id="no zones"),
        pytest.param(formats.ip_address, "1.2.3", (IP,), id="a short address"),
        pytest.param(formats.ip_address, "", (IP,), id="no address"),
        pytest.param(formats.cidr, "10.0.0.0/8", (), id="a CIDR"),
        pytest.param(formats.cidr, "10.0.0.1", (CIDR,), id="an address is no CIDR"),
        pytest.param(formats.cidr, "10.0.0.0/33", (CIDR,), id="a CIDR with too many bits"),
        pytest.param(formats.local_path, "a/b", (), id="a local path"),
        pytest.param(formats.local_path, "/a", ("must be a relative path",), id="an absolute path"),
        pytest.param(formats.local_path, "a/../b", ("must not contain '..'",), id="a path with backsteps"),
        pytest.param(formats.local_path, "a..b", (), id="dots inside a name are no backstep"),
        pytest.param(
            formats.local_path, "/../a", ("must be a relative path", "must not contain '..'"), id="absolute backsteps"
        ),
        pytest.param(formats.local_unreserved_path, "..a", ("must not start with '..'",), id="a reserved name"),
        pytest.param(formats.local_unreserved_path, "../a", ("must not contain '..'",), id="a backstep is said once"),
        pytest.param(formats.path_segment_name, "system:node", (), id="an RBAC name"),
        pytest.param(formats.path_segment_name, "..", ("may not be '..'",), id="an RBAC name of dots"),
        pytest.param(
            formats.path_segment_name,
            "a/b%",
            ("may not contain '/'", "may not contain '%'"),
            id="an RBAC name in a URL",
        ),
    ],
)
def test_formats(check, value, messages):
    assert check(value) == messages


@pytest.mark.parametrize(
    ("name", "stem"),
    [
        pytest.param("web-", "wea", id="the dash and the character before it make room"),
        pytest.param("web", "web", id="without a dash nothing changes"),
        pytest.param("-", "-", id="a lone dash stays"),
    ],
)
def test_generate_name_stem(name, stem):
    assert formats.generate_name_stem(name) == stem
