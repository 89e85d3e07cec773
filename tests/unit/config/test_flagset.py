import pytest

from klet.config.errors import ConfigError
from klet.config.flagset import Flag, parse_flags
from klet.config.flagvalues import BOOL, INT32, LEVEL, STRING, STRINGS, VERSION

FLAGS = (
    Flag("max-pods", INT32, "", ""),
    Flag("register-node", BOOL, "", ""),
    Flag("help", BOOL, "", "", shorthand="h"),
    Flag("v", LEVEL, "", "", shorthand="v"),
    Flag("cluster-dns", STRINGS, "", ""),
    Flag("name", STRING, "", "", deprecated="use another."),
    Flag("version", VERSION, "", ""),
)


@pytest.mark.parametrize(
    ("arguments", "values", "positional"),
    [
        pytest.param([], {}, (), id="nothing"),
        pytest.param(["--max-pods=7"], {"max-pods": 7}, (), id="a value after an equals sign"),
        pytest.param(["--max-pods", "7"], {"max-pods": 7}, (), id="a value as the next word"),
        pytest.param(["--max_pods=7"], {"max-pods": 7}, (), id="underscores"),
        pytest.param(["--max-pods", "-7"], {"max-pods": -7}, (), id="a value that looks like a flag"),
        pytest.param(["--max-pods=1", "--max-pods=2"], {"max-pods": 2}, (), id="the last one counts"),
        pytest.param(["--register-node"], {"register-node": True}, (), id="a switch"),
        pytest.param(["--register-node=false"], {"register-node": False}, (), id="a switch that is off"),
        pytest.param(["--register-node", "false"], {"register-node": True}, ("false",),
                     id="a switch does not take the next word"),
        pytest.param(["--name="], {"name": ""}, (), id="an empty value"),
        pytest.param(["--name=a=b"], {"name": "a=b"}, (), id="an equals sign in the value"),
        pytest.param(["--name", ""], {"name": ""}, (), id="an empty next word"),
        pytest.param(["-v", "3"], {"v": 3}, (), id="a letter and the next word"),
        pytest.param(["-v3"], {"v": 3}, (), id="a letter and its value"),
        pytest.param(["-v=3"], {"v": 3}, (), id="a letter and an equals sign"),
        pytest.param(["--v=3"], {"v": 3}, (), id="the long form of a letter"),
        pytest.param(["-hv3"], {"help": True, "v": 3}, (), id="letters in one word"),
        pytest.param(["--cluster-dns=a,b", "--cluster-dns", "c"], {"cluster-dns": ("a", "b", "c")}, (),
                     id="lists grow"),
        pytest.param(["a", "--max-pods=1", "b"], {"max-pods": 1}, ("a", "b"), id="other words may stand between"),
        pytest.param(["--max-pods=1", "--", "--register-node", "x"], {"max-pods": 1}, ("--register-node", "x"),
                     id="two dashes end the flags"),
        pytest.param(["-"], {}, ("-",), id="a dash is a word"),
        pytest.param(["--version"], {"version": True}, (), id="version"),
        pytest.param(["--version=raw"], {"version": "raw"}, (), id="raw version"),
    ],
)  # fmt: skip
def test_parse_flags(arguments, values, positional):
    parsed = parse_flags(arguments, FLAGS)
    assert (parsed.values, parsed.positional) == (values, positional)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param(["--nope"], "unknown flag: --nope", id="an unknown flag"),
        pytest.param(["--no_pe=1"], "unknown flag: --no_pe", id="an unknown flag as it was written"),
        pytest.param(["-x"], "unknown shorthand flag: 'x' in -x", id="an unknown letter"),
        pytest.param(["-hx"], "unknown shorthand flag: 'x' in -hx", id="an unknown letter after a known one"),
        pytest.param(["--max-pods"], "flag needs an argument: --max-pods", id="no value"),
        pytest.param(["-v"], "flag needs an argument: 'v' in -v", id="no value for a letter"),
        pytest.param(["--=1"], "bad flag syntax: --=1", id="no name"),
        pytest.param(["---max-pods=1"], "bad flag syntax: ---max-pods=1", id="three dashes"),
        pytest.param(["--max-pods=x"], 'invalid argument "x" for "--max-pods" flag: strconv.ParseInt: parsing "x": '
                     "invalid syntax", id="a word for a number"),
        pytest.param(["--max-pods=2147483648"], 'invalid argument "2147483648" for "--max-pods" flag: '
                     'strconv.ParseInt: parsing "2147483648": value out of range', id="too large"),
        pytest.param(["--register-node=maybe"], 'invalid argument "maybe" for "--register-node" flag: '
                     'strconv.ParseBool: parsing "maybe": invalid syntax', id="a word for a switch"),
        pytest.param(["-v=x"], 'invalid argument "x" for "-v, --v" flag: strconv.ParseInt: parsing "x": invalid syntax',
                     id="a flag with a letter is named with it"),
        pytest.param(["-v="], 'invalid argument "=" for "-v, --v" flag: strconv.ParseInt: parsing "=": invalid syntax',
                     id="a letter and only an equals sign"),
    ],
)  # fmt: skip
def test_mistakes(arguments, message):
    with pytest.raises(ConfigError) as caught:
        parse_flags(arguments, FLAGS)
    assert str(caught.value) == message


def test_a_deprecated_flag_warns_once():
    parsed = parse_flags(["--name=a", "--name=b"], FLAGS)
    assert parsed.warnings == ("Flag --name has been deprecated, use another.",)
