import io

import pytest

from klet.api.codec import DecodeError, decode
from klet.api.pod import Pod
from klet.cli.apply_plan import PodKey
from klet.cli.manifests import digest_of, expand_paths, read_input, read_manifests, read_signatures, split_documents

HEAD = "apiVersion: v1\nkind: Pod\n"
HELLO = HEAD + "metadata: {name: hello}\nspec:\n  containers: [{name: a, image: i}]\n"
POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\n"


def check_type(content):
    """The first part of what the agent checks: whether the manifest is a pod at all."""
    try:
        pod = decode(Pod, content)
    except DecodeError as error:
        return [str(error)]
    return () if pod.metadata.name else ["metadata.name: Required value"]


def read(text, check=check_type):
    return read_manifests("/f.yaml", text.encode() if isinstance(text, str) else text, check=check)


def test_one_pod():
    found = read(HELLO)
    (pod,) = found.origin.pods
    assert (pod.key, pod.document) == (PodKey("default", "hello"), 1)
    assert (found.errors, found.warnings, found.origin.is_complete) == ((), (), True)
    assert decode(Pod, pod.content).spec.containers[0].image == "i"


def test_several_documents_and_lists():
    found = read(
        f"---\n# nothing here\n---\n{HELLO}---\n"
        "apiVersion: v1\nkind: List\nitems:\n"
        "- {apiVersion: v1, kind: Pod, metadata: {name: b, namespace: web}}\n"
        "- {apiVersion: v1, kind: Pod, metadata: {name: c}}\n---\n"
        "apiVersion: v1\nkind: PodList\nitems: [{metadata: {name: d}}]\n"
    )
    assert [(str(pod.key), pod.document) for pod in found.origin.pods] == [
        ("default/hello", 1),
        ("web/b", 2),
        ("default/c", 2),
        ("default/d", 3),
    ]
    assert found.errors == ()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("a: b: c", "document 1: error converting YAML to JSON: yaml: line 1: ", id="not YAML"),
        pytest.param("just words", "document 1: the text is not an object", id="not an object"),
        pytest.param("a: 1", "document 1: kind: Required value", id="no kind"),
        pytest.param(
            "apiVersion: apps/v1\nkind: Deployment", "document 1: kind: apps/v1 Deployment is not", id="not a pod"
        ),
        pytest.param("apiVersion: v1\nkind: [Pod]", "document 1: kind: v1 ['Pod'] is not", id="a list as the kind"),
        pytest.param(
            "apiVersion: v1\nkind: {a: b}", "document 1: kind: v1 {'a': 'b'} is not", id="an object as the kind"
        ),
        pytest.param(HEAD + "metadata: {}", "document 1: metadata.name: Required value", id="no name"),
        pytest.param(
            HEAD + "metadata: {name: a}\nspec: {containers: [{name: a, ports: 5}]}",
            "document 1: spec.containers[0].ports: ",
            id="a known field of the wrong type",
        ),
        pytest.param(
            HEAD + "metadata: {name: a}\nspec: {containers: [{name: a, resources: {limits: {cpu: lots}}}]}",
            "document 1: spec.containers[0].resources.limits[cpu]: ",
            id="a bad quantity",
        ),
        pytest.param(
            "apiVersion: v1\nkind: List\nitems: [{apiVersion: v1, kind: Pod}]",
            "document 1: items[0].metadata.name: Required value",
            id="in a list",
        ),
        pytest.param(b"\xff", "not UTF-8 (byte 0)", id="not text"),
    ],
)
def test_errors_name_file_document_and_field(text, expected):
    found = read(text)
    (error,) = found.errors
    assert error.startswith(f"/f.yaml: {expected}")
    assert not found.origin.is_complete


def test_what_the_checker_says_is_placed():
    found = read(
        HELLO, check=lambda content: [f"spec.containers: Required value for {decode(Pod, content).metadata.name}"]
    )
    assert found.errors == ("/f.yaml: document 1: spec.containers: Required value for hello",)


def test_a_broken_document_does_not_hide_the_others_and_keeps_its_line():
    found = read(f"{HELLO}---\na: b: c\n---\n{HELLO.replace('hello', 'second')}")
    assert [pod.key.name for pod in found.origin.pods] == ["hello", "second"]
    (error,) = found.errors
    assert error.startswith("/f.yaml: document 2: error converting YAML to JSON: yaml: line 7: ")
    assert not found.origin.is_complete


def test_unknown_and_repeated_fields_are_warnings():
    found = read(HEAD + "metadata: {name: a, name: a}\nspec: {containers: [{name: a, imagePullPolcy: Always}]}")
    assert found.warnings == (
        "/f.yaml: document 1: metadata.name: written twice, the last one counts",
        "/f.yaml: document 1: spec.containers[0].imagePullPolcy: unknown field, did you mean 'imagePullPolicy'?",
    )
    assert found.errors == ()


def test_strictly_they_are_errors():
    text = HEAD + "metadata: {name: a}\nspec: {contaners: []}\n---\n" + HELLO
    found = read_manifests("/f.yaml", text.encode(), check=lambda _: (), is_strict=True)
    assert found.errors == ("/f.yaml: document 1: spec.contaners: unknown field, did you mean 'containers'?",)
    assert [pod.key.name for pod in found.origin.pods] == ["hello"]
    assert found.warnings == ()


def test_the_digest_follows_the_content_and_not_the_layout():
    def digest(text):
        return digest_of(read(text).origin.pods[0].content)

    assert digest(HELLO) == digest("# a comment\n" + HELLO.replace("spec:\n  containers", "spec:\n     containers"))
    assert digest(HELLO) != digest(HELLO.replace("image: i", "image: j"))


def test_the_digest_joins_the_users_annotations():
    found = read(HELLO.replace("{name: hello}", "{name: hello, annotations: {a: b}}"))
    assert set(decode(Pod, found.origin.pods[0].content).metadata.annotations) == {"a", "klet.dev/manifest"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("", [], id="nothing"),
        pytest.param("---\n---\n# only this\n", [], id="separators and comments"),
        pytest.param("a: 1\n--- # second\nb: 2\n", [("a: 1\n", 0), ("--- # second\nb: 2\n", 1)], id="a comment"),
        pytest.param("a: |\n  ---\n", [("a: |\n  ---\n", 0)], id="an indented line is content"),
        pytest.param("a: 1\n----\n", [("a: 1\n----\n", 0)], id="four dashes are none"),
    ],
)
def test_split_documents(text, expected):
    assert [(document.text, document.lines_before) for document in split_documents(text)] == expected


def test_expand_paths(tmp_path):
    for name in ("b.yaml", "a.json", "c.txt"):
        (tmp_path / name).touch()
    (tmp_path / "sub").mkdir()
    files, directories = expand_paths(["-", str(tmp_path), str(tmp_path / "c.txt"), str(tmp_path / "b.yaml")])
    assert files == ["-", *(str(tmp_path / name) for name in ("a.json", "b.yaml", "c.txt"))]
    assert directories == [str(tmp_path)]


def test_a_link_is_known_by_its_own_name_also_one_that_leads_nowhere(tmp_path):
    (tmp_path / "round").symlink_to("round")
    (tmp_path / "current.yaml").symlink_to("v1.yaml")
    names = [str(tmp_path / "round"), str(tmp_path / "current.yaml")]
    assert expand_paths(names) == (names, [])


def read_given(*arguments, stdin=b""):
    return read_input(arguments, check=lambda _: (), is_strict=False, stdin=io.BytesIO(stdin))


def test_files_directories_and_standard_input_together(tmp_path):
    file = tmp_path / "x.txt"
    file.write_text(POD % "a")
    directory = tmp_path / "d"
    directory.mkdir()
    (directory / "b.yaml").write_text(POD % "b")
    (directory / "notes").write_text("not read_given")
    given = read_given(str(file), str(directory), "-", stdin=(POD % "c").encode())
    assert [(origin.path, [pod.key.name for pod in origin.pods]) for origin in given.origins] == [
        (str(file), ["a"]),
        (str(directory / "b.yaml"), ["b"]),
        ("stdin", ["c"]),
    ]
    assert (given.errors, given.directories) == ((), (str(directory),))


@pytest.mark.parametrize("stdin", [b"", b"# only words\n---\n"], ids=["nothing", "no document"])
def test_standard_input_without_a_manifest_is_an_error_and_removes_nothing(stdin):
    given = read_given("-", stdin=stdin)
    assert given.errors == ("stdin: no manifest was written to it",)
    assert not given.origins[0].is_complete


def test_a_directory_without_manifests_is_an_error_and_removes_nothing(tmp_path):
    given = read_given(str(tmp_path))
    assert given.errors == (f"{tmp_path}: no manifest in this directory (*.yaml, *.yml, *.json)",)
    assert given.directories == ()


def test_an_empty_name_is_not_the_working_directory(tmp_path, monkeypatch):
    (tmp_path / "a.yaml").write_text(POD % "a")
    monkeypatch.chdir(tmp_path)
    given = read_given("")
    assert (given.origins, given.errors) == ((), ("FILE: an empty name means no file",))


def test_a_file_that_is_not_there(tmp_path):
    assert read_given(str(tmp_path / "x")).errors == (f"{tmp_path}/x: No such file or directory",)


def test_the_same_pod_twice_applies_nothing(tmp_path):
    for name in "fg":
        (tmp_path / name).write_text(POD % "a")
    given = read_given(str(tmp_path / "f"), str(tmp_path / "g"))
    assert given.origins == ()
    assert "already in" in given.errors[0]


def test_a_file_that_changes_changes_its_signature(tmp_path):
    file = tmp_path / "f"
    absent = read_signatures([str(file)])
    file.write_text("a")
    first = read_signatures([str(file)])
    file.write_text("bc")
    assert absent == {str(file): None}
    assert first not in (absent, read_signatures([str(file)]))
