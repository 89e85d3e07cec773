"""What `klet fit` prints, and its exit code."""

import io
import json
from datetime import UTC, datetime

import pytest

from klet.api.klet_v1 import ExplainedPod
from klet.api.klet_v1_fit import FitAnswer, FitPlacement, FitReason, FitResource, FitVictim
from klet.cli.fit import BadManifests, print_fit, render_fit

NOW = datetime(2030, 1, 1, tzinfo=UTC)
POD = ExplainedPod(namespace="default", name="web", uid="u")
MANIFEST = "apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\nspec: {containers: [{name: c, image: i}]}\n"
FITS = FitAnswer(
    pod=POD,
    now=NOW,
    source="static",
    fits=True,
    resources=(
        FitResource(resource="pods", requested="1", used="3", allocatable="110"),
        FitResource(resource="cpu", requested="500m", used="1", allocatable="2"),
    ),
)
REJECTED = FitAnswer(
    pod=POD,
    now=NOW,
    source="api",
    fits=False,
    reasons=(
        FitReason(reason="OutOfcpu", message="Node didn't have enough resource: cpu", why="the pod requests 3 of cpu"),
        FitReason(reason="NodeName", message="Predicate NodeName failed"),
    ),
    resources=(FitResource(resource="cpu", requested="3", used="0", allocatable="2", short=True),),
)


class Agent:
    """Answers for each manifest in turn."""

    def __init__(self, *answers):
        self.answers, self.asked = list(answers), []

    def fit(self, manifest, *, source):
        self.asked.append((json.loads(manifest)["metadata"]["name"], source))
        return self.answers.pop(0)


def run(agent, text, **options):
    given = {"source": "", "as_json": False, **options}
    return print_fit(agent, ["-"], stdin=io.BytesIO(text.encode()), **given)


def test_a_pod_that_fits():
    assert render_fit(FITS) == (
        "default/web fits: it would be admitted now.\n"
        "\n"
        "RESOURCE   REQUESTED   USED   NODE HAS\n"
        "pods       1           3      110\n"
        "cpu        500m        1      2\n"
    )


def test_a_pod_that_does_not_fit():
    assert render_fit(REJECTED) == (
        "default/web does not fit: it would be rejected now (OutOfcpu).\n"
        "  OutOfcpu: Node didn't have enough resource: cpu\n"
        "    the pod requests 3 of cpu\n"
        "  NodeName: Predicate NodeName failed\n"
        "\n"
        "RESOURCE   REQUESTED   USED   NODE HAS\n"
        "cpu        3           0      2          too little\n"
    )


def test_who_makes_room_and_where_it_would_be():
    answer = FitAnswer(
        pod=POD,
        now=NOW,
        source="static",
        fits=True,
        victims=(FitVictim(namespace="default", name="batch", uid="v", qos_class="BestEffort"),),
        replaces=POD,
        placement=(
            FitPlacement(container="main", cpus=(2, 3, 5), numa_nodes=(1,)),
            FitPlacement(container="side", numa_nodes=(0, 1)),
        ),
    )
    assert render_fit(answer).splitlines() == [
        "default/web fits: it would be admitted now, after 1 of the pods here have been stopped.",
        "  would be stopped: default/batch (BestEffort)",
        "  The pod of this name that is here was not counted: this one would take its place.",
        "container main: CPUs 2-3,5 for itself, NUMA nodes 1",
        "container side: shared CPUs, NUMA nodes 0-1",
    ]


@pytest.mark.parametrize(
    ("answers", "code"),
    [
        pytest.param((FITS, FITS), 0, id="all fit"),
        pytest.param((FITS, REJECTED), 1, id="one does not"),
    ],
)
def test_the_exit_code(answers, code, capsys):
    agent = Agent(*answers)
    assert run(agent, MANIFEST % "a" + "---\n" + MANIFEST % "b", source="static") == code
    assert agent.asked == [("a", "static"), ("b", "static")]
    assert capsys.readouterr().out.count("default/web") == 2


def test_json_has_every_field(capsys):
    assert run(Agent(REJECTED), MANIFEST % "a", as_json=True) == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["fits"], found["source"], found["victims"]) == (False, "api", [])
    assert found["reasons"][0] == {
        "reason": "OutOfcpu",
        "message": "Node didn't have enough resource: cpu",
        "why": "the pod requests 3 of cpu",
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("", "no manifest", id="nothing"),
        pytest.param("kind: Pod\nmetadata: {", "stdin", id="what is no YAML"),
        pytest.param("apiVersion: v1\nkind: Service\n", "klet runs v1 Pod", id="another kind of object"),
    ],
)
def test_what_is_no_pod(text, message):
    with pytest.raises(BadManifests, match=message):
        run(Agent(), text)
