import pytest

from klet.cli.apply_plan import (
    Applied,
    ManifestFile,
    PodKey,
    PodManifest,
    file_name,
    find_duplicates,
    plan_apply,
    read_applied,
)

A, B, C = (PodKey("default", name) for name in "abc")


def origin(path, *pods, complete=True):
    return ManifestFile(
        path,
        tuple(PodManifest(key, number, content) for number, (key, content) in enumerate(pods, start=1)),
        is_complete=complete,
    )


def plan(*origins, applied=None, present=None, directories=()):
    return plan_apply(origins, applied=Applied(origins=applied or {}), present=present or {}, directories=directories)


def test_a_first_file_is_written_and_remembered():
    result = plan(origin("/f", (A, b"1"), (B, b"2")))
    assert result.write == {"default_a.json": b"1", "default_b.json": b"2"}
    assert result.added == (A, B)
    assert result.applied.origins == {"/f": ("default/a", "default/b")}


ONE = {"applied": {"/f": ("default/a",)}, "present": {"default_a.json": b"1"}}


def test_the_same_file_again_changes_nothing():
    result = plan(origin("/f", (A, b"1")), **ONE)
    assert (result.write, result.remove, result.added, result.changed) == ({}, (), (), ())
    assert (result.unchanged, result.taken) == ((A,), {})


def test_a_changed_pod_is_written_again():
    result = plan(origin("/f", (A, b"2")), **ONE)
    assert (result.write, result.changed) == ({"default_a.json": b"2"}, (A,))


def test_a_pod_that_left_its_file_is_removed():
    result = plan(origin("/f", (B, b"2")), **ONE)
    assert (result.remove, result.removed, result.added) == (("default_a.json",), (A,), (B,))
    assert result.applied.origins == {"/f": ("default/b",)}


def test_pods_of_other_files_stay():
    result = plan(origin("/g", (B, b"2")), **ONE)
    assert result.remove == ()
    assert result.applied.origins == {"/f": ("default/a",), "/g": ("default/b",)}


def test_a_pod_that_moved_to_another_file_belongs_to_it():
    result = plan(origin("/g", (A, b"1")), **ONE)
    assert (result.write, result.remove) == ({}, ())
    assert result.applied.origins == {"/g": ("default/a",)}
    assert result.taken == {A: "/f"}
    again = plan(origin("/f"), applied=result.applied.origins, present=ONE["present"])
    assert again.remove == ()


def test_a_pod_that_moved_between_two_given_files_was_not_taken_from_anyone():
    assert plan(origin("/f"), origin("/g", (A, b"1")), **ONE).taken == {}


def test_the_short_name_of_a_pod():
    assert (A.label, PodKey("kube-system", "a").label) == ("a", "kube-system/a")


def test_a_file_with_errors_takes_nothing_away():
    result = plan(origin("/f", (B, b"2"), complete=False), **ONE)
    assert result.remove == ()
    assert result.applied.origins == {"/f": ("default/a", "default/b")}


def test_a_file_that_is_gone_from_a_directory_takes_its_pods_along():
    applied = {"/d/f": ("default/a",), "/e/g": ("default/b",)}
    result = plan(
        origin("/d/h", (C, b"3")),
        applied=applied,
        present={"default_a.json": b"1", "default_b.json": b"2"},
        directories=("/d",),
    )
    assert result.removed == (A,)
    assert result.applied.origins == {"/d/h": ("default/c",), "/e/g": ("default/b",)}


def test_a_manifest_that_is_gone_already_needs_no_removal():
    result = plan(origin("/f"), applied={"/f": ("default/a",)})
    assert (result.remove, result.removed) == ((), (A,))


def test_duplicates_name_both_places():
    assert find_duplicates([origin("/f", (A, b"1")), origin("/g", (B, b""), (A, b"2"))]) == [
        "/g: document 2: metadata.name: pod default/a is already in /f: document 1"
    ]
    assert find_duplicates([origin("/f", (A, b"1"))]) == []


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        pytest.param(PodKey("kube-system", "a.b-c"), "kube-system_a.b-c.json", id="plain"),
        pytest.param(PodKey("n", "x" * 248), "n_" + "x" * 248 + ".json", id="the longest that fits"),
    ],
)
def test_file_name(key, expected):
    assert file_name(key) == expected


def test_long_names_stay_apart():
    one, other = (file_name(PodKey("n" * 63, "x" * 252 + end)) for end in "yz")
    assert one != other
    assert len(one) <= 255


def test_a_damaged_memory_is_an_empty_one(tmp_path):
    path = tmp_path / "applied.json"
    assert read_applied(path) == Applied()
    path.write_text("{")
    assert read_applied(path) == Applied()
