"""The parts of a fuzzer: what is judged, how growth is reported from noise, how inputs are made small and kept."""

from contextlib import contextmanager
from random import Random

import pytest

from klet.errors import KletError
from klet.testing.fuzz.corpus import (
    Corpus,
    CorpusError,
    FuzzFinding,
    NoCorpus,
    decode_recipe,
    encode_recipe,
    read_finding,
)
from klet.testing.fuzz.engine import Fuzzer, LineCoverage, examine
from klet.testing.fuzz.growth import count_lines, find_growth, is_steep
from klet.testing.fuzz.judge import judge
from klet.testing.fuzz.minimise import minimise
from klet.testing.fuzz.mutators import amplify_bytes, change_bytes, change_json, change_lines, choose_of, put_words
from klet.testing.fuzz.target import Flaw, FuzzTarget, Limits, Recipe

LIMITS = Limits(text=100, seconds=0.2, largest=8 << 10)


def target(run, **more):
    @contextmanager
    def opened():
        yield run

    return FuzzTarget(
        name="t",
        summary="s",
        seeds=lambda: [b"seed"],
        mutate=choose_of((change_bytes,)),
        amplify=amplify_bytes(),
        opened=opened,
        limits=LIMITS,
        **more,
    )


def raising(error):
    def run(_data):
        raise error

    return run


def forever(_data):
    while True:
        pass


@pytest.mark.parametrize(
    ("run", "flaw"),
    [
        pytest.param(len, "", id="a result"),
        pytest.param(raising(KletError("bad")), "", id="an error of klet's family"),
        pytest.param(raising(KletError("x" * 101)), "an error of more than 100 characters", id="an error without end"),
        pytest.param(raising(Flaw("wrong")), "wrong", id="what the target found"),
        pytest.param(raising(RecursionError()), "RecursionError at", id="another error"),
        pytest.param(forever, "took more than 0.2 s of processor time", id="no end"),
    ],
)
def test_an_input_is_judged(run, flaw):
    verdict = judge(run, b"", LIMITS)
    assert verdict.flaw.startswith(flaw)
    assert bool(verdict.flaw) == bool(flaw)


@pytest.mark.parametrize(
    ("costs", "expected"),
    [
        pytest.param((10, 10, 10, 10), False, id="nothing grows"),
        pytest.param((15, 20, 30, 50), False, id="linear, on top of something"),
        pytest.param((100, 220, 480, 1040), False, id="a logarithm more"),
        pytest.param((110, 140, 260, 740), True, id="quadratic, on top of something"),
        pytest.param((1, 8, 64, 512), True, id="cubic"),
        pytest.param((10, 20, 30, 500), False, id="one step, as at a limit"),
        pytest.param((10, 20, 90), False, id="too little to say"),
    ],
)
def test_what_grows_faster_than_its_input(costs, expected):
    assert is_steep(costs) == expected


def greedy(data):
    return len([bytes(1000) for _ in data])


@pytest.mark.parametrize(
    ("run", "flaw"),
    [
        pytest.param(lambda data: sum(1 for _ in data), "", id="linear"),
        pytest.param(lambda data: sum(1 for _ in range(len(data) ** 2 // 50)), "ran more than", id="quadratic"),
        pytest.param(greedy, "took more than 1 MiB and 10 bytes", id="a thousand times the memory"),
    ],
)
def test_growth_is_found(run, flaw):
    limits = Limits(largest=8 << 10, memory=1 << 20, memory_per_byte=10)
    found = find_growth(run, Recipe(b"<", b"ab", after=b">"), limits)
    assert found.startswith(flaw)
    assert bool(found) == bool(flaw)


def test_lines_are_counted_and_not_timed():
    def run(data):
        for _ in data:
            pass

    assert count_lines(run, bytes(2000)) - count_lines(run, bytes(1000)) == pytest.approx(2000, abs=10)


@pytest.mark.parametrize(
    ("recipe", "size", "expected"),
    [
        pytest.param(Recipe(b"<", b"ab", after=b">"), 8, b"<ababab>", id="repeated"),
        pytest.param(Recipe(b"", b"[", middle=b"1", closing=b"]"), 5, b"[[1]]", id="nested"),
        pytest.param(Recipe(b"long", b"x"), 1, b"longx", id="at least once"),
    ],
)
def test_a_recipe_makes_inputs_of_any_size(recipe, size, expected):
    assert recipe.make(size) == expected


def test_an_input_is_made_small():
    runs = []

    def shows(data):
        runs.append(data)
        return b"(" in data and b")" in data

    assert minimise(b"some text (with brackets) in it" * 20, shows) == b"()"
    assert len(runs) < 1500


def test_an_input_is_left_alone_when_its_runs_are_used_up():
    assert len(minimise(bytes(range(256)) * 4, lambda data: len(set(data)) > 200, most=3)) > 200


@pytest.mark.parametrize(
    "step", [change_bytes, change_lines, put_words((b"word",)), change_json(("a", "b"))], ids=lambda step: step.__name__
)
def test_one_seed_makes_one_change(step):
    data = b'{"a": [1, "b", {"c": null}]}\nline\r\n'
    changed = [[step(Random(seed), data, [b"other"]) for seed in range(200)] for _ in range(2)]
    assert changed[0] == changed[1]
    assert len(set(changed[0])) > 20
    assert all(isinstance(step(Random(seed), b"", []), bytes) for seed in range(50))


def test_new_lines_are_seen_once(tmp_path):
    file = tmp_path / "module.py"
    file.write_text("def run(data):\n    if data:\n        return 1\n    return 2\n")
    names = {}
    exec(compile(file.read_text(), str(file), "exec"), names)
    coverage = LineCoverage(homes=(str(tmp_path),), besides=("/none/",))
    seen = []
    for data in (b"", b"", b"x", b"x"):
        with coverage.watching():
            names["run"](data)
        seen.append(coverage.take_fresh())
    assert seen == [True, False, True, False]
    assert coverage.seen == 3


def test_a_fuzzer_finds_keeps_and_shrinks(tmp_path):
    def run(data):
        if b"\xff" in data:
            raise ValueError(data)
        return len(data) > 8

    corpus = Corpus(directory=tmp_path, target="t")
    fuzzer = Fuzzer(target=target(run), seed=1, keeper=corpus)
    progress = fuzzer.run(is_over=lambda progress: progress.findings or progress.executions > 20_000)
    assert [finding.data for finding in progress.findings] == [b"\xff"]
    [note] = (tmp_path / "t" / "findings").glob("*.txt")
    assert f"scripts/fuzz t --replay {note.with_suffix('')}" in note.read_text()
    assert read_finding(note.with_suffix("")) == b"\xff"
    assert b"seed" in corpus.load()


def test_one_seed_makes_one_sequence():
    def sequence(seed):
        seen = []

        def run(data):
            seen.append(data)
            return len(data)

        Fuzzer(target=target(run), seed=seed, keeper=NoCorpus(), growth_every=10**9).run(
            is_over=lambda progress: progress.executions >= 500
        )
        return seen

    assert sequence(1) == sequence(1) != sequence(2)


def test_growth_is_a_finding_that_can_be_run_again(tmp_path):
    def run(data):
        for _ in range(data.count(b"x") ** 2 // 50):
            pass

    fuzzed = target(run)
    [finding] = examine(run, Recipe(b"a", b"x"), fuzzed)
    file = Corpus(directory=tmp_path, target="t").save(finding)
    recipe = read_finding(file)
    assert recipe == Recipe(b"a", b"x")
    assert [again.flaw for again in examine(run, recipe, fuzzed)] == [finding.flaw]


def test_what_is_kept_is_read_back(tmp_path):
    corpus = Corpus(directory=tmp_path, target="t")
    assert corpus.load() == []
    corpus.keep(b"one")
    corpus.keep(b"two")
    corpus.keep(b"one")
    assert sorted(corpus.load()) == [b"one", b"two"]


def test_a_file_that_is_no_finding(tmp_path):
    with pytest.raises(CorpusError, match="cannot read"):
        read_finding(tmp_path / "none")
    with pytest.raises(CorpusError, match="not the file of a finding"):
        decode_recipe(b"{")
    assert decode_recipe(encode_recipe(Recipe(b"\xff", b"\x00"))) == Recipe(b"\xff", b"\x00")
    assert NoCorpus().save(FuzzFinding("f", b"")) is None
