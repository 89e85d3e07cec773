import pytest

from klet.journal.evidence import Evidence, plain_error


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("", "", id="nothing"),
        pytest.param("no space left on device", "no space left on device", id="a plain error"),
        pytest.param(
            "Error: failed to create containerd task: failed to create shim task: OCI runtime create failed: runc "
            'create failed: unable to start container process: exec: "/x": no such file or directory: unknown',
            'exec: "/x": no such file or directory',
            id="a program that is not there",
        ),
        pytest.param(
            'Back-off pulling image "a:1": ErrImagePull: failed to pull and unpack image "a:1": failed to resolve '
            'reference "a:1": failed to do request: dial tcp: refused',
            "dial tcp: refused",
            id="an image that cannot be pulled",
        ),
        pytest.param(
            'Failed to create pod sandbox: rpc error: code = X desc = failed to setup network for sandbox "s": no',
            "no",
            id="a network that cannot be set up",
        ),
        pytest.param("rpc error: code = NotFound desc = gone", "gone", id="an answer of the runtime"),
    ],
)
def test_plain_error(text, expected):
    assert plain_error(text) == expected


def test_records_are_chosen_by_subject_decision_and_time(recorded):
    first, second = recorded(9, "Started", container="a"), recorded(8, "Killing", container="a")
    third, fourth = recorded(7, "Started", container="a"), recorded(6, "Started")
    records = Evidence((first, second, third, fourth))
    assert records.about("a").causes == (first, second, third)
    assert records.about("").causes == (fourth,)
    assert records.of("Started").causes == (first, third, fourth)
    assert records.newest_of("Started", "Killing") == fourth
    assert records.after(second).causes == (third, fourth)
    assert records.before(second).causes == (first,)
    assert records.after(None) == records.before(None) == records
    assert Evidence(()).first is Evidence(()).newest is None
