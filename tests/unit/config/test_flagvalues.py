from datetime import timedelta

import pytest

from klet.api.placement import Taint
from klet.api.quantity import Quantity
from klet.config import flagvalues
from klet.config.errors import ConfigError
from klet.config.sections import MemoryReservation, VModuleItem


def parse(kind, *texts):
    value = None
    for text in texts:
        value = kind.parse(text, value)
    return value


@pytest.mark.parametrize(
    ("kind", "texts", "expected"),
    [
        pytest.param(flagvalues.BOOL, ["T"], True, id="a short true"),
        pytest.param(flagvalues.BOOL, ["0"], False, id="zero is false"),
        pytest.param(flagvalues.INT32, ["0x10"], 16, id="hexadecimal"),
        pytest.param(flagvalues.INT32, ["017"], 15, id="octal"),
        pytest.param(flagvalues.INT32, ["+1_000"], 1000, id="underscores"),
        pytest.param(flagvalues.INT64, ["-9223372036854775808"], -(2**63), id="the least integer"),
        pytest.param(flagvalues.DURATION, ["1h2m3.5s"], timedelta(hours=1, minutes=2, seconds=3.5), id="a duration"),
        pytest.param(flagvalues.DURATION, ["0"], timedelta(), id="no duration"),
        pytest.param(flagvalues.QUANTITY, ["64Ki"], Quantity.parse("64Ki"), id="a quantity"),
        pytest.param(flagvalues.IP, ["::1"], "::1", id="an address"),
        pytest.param(flagvalues.IP, ["01.2.3.4"], "01.2.3.4", id="an address with a leading zero"),
        pytest.param(flagvalues.IP, [""], None, id="no address leaves the setting alone"),
        pytest.param(flagvalues.STRINGS, ["a,b", "", "c"], ("a", "b", "c"), id="a list grows"),
        pytest.param(flagvalues.STRINGS, [""], (), id="an empty list"),
        pytest.param(flagvalues.STRINGS, ['"a,b",c'], ("a,b", "c"), id="quotes keep a comma"),
        pytest.param(flagvalues.MAP, ["a=1, b = 2 ,", "a=3"], {"a": "3", "b": "2"}, id="a map grows"),
        pytest.param(flagvalues.MAP, [""], {}, id="an empty map"),
        pytest.param(flagvalues.MAP, ["a=b=c"], {"a": "b=c"}, id="the first equals sign counts"),
        pytest.param(flagvalues.OPTIONS, ["a=1,b=2"], {"a": "1,b=2"}, id="an option keeps its commas"),
        pytest.param(flagvalues.THRESHOLDS, ["memory.available<1Gi,nodefs.available<5%"],
                     {"memory.available": "1Gi", "nodefs.available": "5%"}, id="thresholds"),
        pytest.param(flagvalues.HEADERS, ["a:hello,b:again,c:world", "b:beautiful"],
                     {"a": ("hello",), "b": ("again", "beautiful"), "c": ("world",)}, id="headers repeat"),
        pytest.param(flagvalues.GATES, ["A=true,B=f", "A=false"], {"A": False, "B": False}, id="gates"),
        pytest.param(flagvalues.LABELS, ["a=b,c", "d=e"], {"a": "b", "c": "", "d": "e"}, id="labels"),
        pytest.param(flagvalues.RESERVED_MEMORY, ["0:memory=1Gi,hugepages-1Gi=2Gi", "1:memory=2Gi"],
                     (MemoryReservation(numa_node=0, limits={"memory": Quantity.parse("1Gi"),
                                                             "hugepages-1Gi": Quantity.parse("2Gi")}),
                      MemoryReservation(numa_node=1, limits={"memory": Quantity.parse("2Gi")})), id="reserved memory"),
        pytest.param(flagvalues.RESERVED_MEMORY, [""], None, id="no reserved memory leaves the setting alone"),
        pytest.param(flagvalues.TAINTS, ["a=b:NoSchedule,c:NoExecute"],
                     (Taint(key="a", value="b", effect="NoSchedule"), Taint(key="c", effect="NoExecute")), id="taints"),
        pytest.param(flagvalues.TAINTS, ["a:NoSchedule", "b:NoSchedule"], (Taint(key="b", effect="NoSchedule"),),
                     id="taints replace each other"),
        pytest.param(flagvalues.TAINTS, [""], (), id="no taints"),
        pytest.param(flagvalues.VMODULE, ["a=1,b*=2"], (VModuleItem(file_pattern="a", verbosity=1),
                                                        VModuleItem(file_pattern="b*", verbosity=2)), id="vmodule"),
    ],
)  # fmt: skip
def test_value(kind, texts, expected):
    assert parse(kind, *texts) == expected


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [
        (flagvalues.DURATION, "5", 'time: missing unit in duration "5"'),
        (flagvalues.DURATION, "5x", 'time: unknown unit "x" in duration "5x"'),
        (flagvalues.DURATION, "", 'time: invalid duration ""'),
        (flagvalues.QUANTITY, "5GG", "unable to parse quantity's suffix"),
        (flagvalues.INT32, "1.5", 'strconv.ParseInt: parsing "1.5": invalid syntax'),
        (flagvalues.INT32, "", 'strconv.ParseInt: parsing "": invalid syntax'),
        (flagvalues.LEVEL, "-1", 'strconv.ParseInt: parsing "-1": value out of range'),
        (flagvalues.IP, "localhost", '"localhost" is not a valid IP address'),
        (flagvalues.MAP, "a", "malformed pair, expect string=string"),
        (flagvalues.OPTIONS, "a", "malformed pair, expect string=string"),
        (flagvalues.THRESHOLDS, "memory.available>1Gi", "malformed pair, expect string<string"),
        (flagvalues.HEADERS, "a=b", "malformed pair, expect string:string"),
        (flagvalues.GATES, "A", "malformed pair, expect string=bool"),
        (flagvalues.GATES, "A=x", 'invalid value of A: x, err: strconv.ParseBool: parsing "x": invalid syntax'),
        (flagvalues.STRINGS, 'a"b,"c', "parse error on line 1: "),
        (
            flagvalues.RESERVED_MEMORY,
            "memory=1Gi",
            (
                "the reserved memory has incorrect format, expected "
                "numaNodeID:type=quantity[,type=quantity...], got memory=1Gi"
            ),
        ),
        (flagvalues.RESERVED_MEMORY, "x:memory=1Gi", "failed to convert the NUMA node ID, exptected integer, got x"),
        (
            flagvalues.RESERVED_MEMORY,
            "0:memory",
            ("the reserved limit has incorrect value, expected type=quantatity, got memory"),
        ),
        (flagvalues.RESERVED_MEMORY, "0:cpu=1", 'memory type conversion error, unknown type: "cpu"'),
        (flagvalues.RESERVED_MEMORY, "0:memory=x", "failed to parse the quantatity, expected quantatity, got x"),
        (flagvalues.TAINTS, "a=b", "invalid taint spec: a=b"),
        (flagvalues.TAINTS, "a=b=c:NoSchedule", "invalid taint spec: a=b=c:NoSchedule"),
        (flagvalues.TAINTS, "a=b:Never", "invalid taint effect: Never, unsupported taint effect"),
        (flagvalues.TAINTS, "a=-:NoSchedule", "invalid taint spec: a=-:NoSchedule, a valid label must be"),
        (flagvalues.TAINTS, "a:NoExecute,a:NoExecute", "duplicated taints with the same key and effect: a:NoExecute"),
        (flagvalues.VMODULE, "a", '"a" does not have the pattern=N format'),
        (flagvalues.VMODULE, "a=x", 'parsing verbosity in "a=x": strconv.ParseUint: parsing "x": invalid syntax'),
        (flagvalues.VERSION, "x", 'strconv.ParseBool: parsing "x": invalid syntax'),
    ],
)
def test_mistake(kind, text, message):
    with pytest.raises(ConfigError) as caught:
        parse(kind, text)
    assert str(caught.value).startswith(message)
