from datetime import timedelta

import pytest

from klet.testing.fake_runtime import lives
from klet.testing.fake_runtime.lives import FOREVER, FileWrite, OutputLine
from klet.wire import cri_v1_pb2 as pb

SECOND = timedelta(seconds=1)
BRIEF = lives.runs_for(SECOND)


def config(name="main", attempt=0, image="busybox", command=(), args=()):
    return pb.ContainerConfig(
        metadata=pb.ContainerMetadata(name=name, attempt=attempt),
        image=pb.ImageSpec(image=image),
        command=command,
        args=args,
    )


def test_a_life_for_each_attempt_and_the_last_for_the_rest():
    choose = lives.crashes(2, exit_code=7, after=SECOND)
    assert [choose(config(attempt=attempt)) for attempt in range(4)] == [
        lives.runs_for(SECOND, 7),
        lives.runs_for(SECOND, 7),
        FOREVER,
        FOREVER,
    ]


@pytest.mark.parametrize(
    ("choose", "chosen", "other"),
    [
        pytest.param(lives.by_name({"a": lives.always(BRIEF)}), config("a"), config("b"), id="by name"),
        pytest.param(
            lives.by_image({"a:1": lives.always(BRIEF)}), config(image="a:1"), config(image="a:2"), id="by image"
        ),
        pytest.param(
            lives.by_command({("a", "b"): lives.always(BRIEF)}),
            config(command=["a"], args=["b"]),
            config(command=["a"]),
            id="by command and arguments",
        ),
    ],
)
def test_choosers(choose, chosen, other):
    assert choose(chosen) == BRIEF
    assert choose(other) == FOREVER


def test_the_image_that_the_user_named_counts():
    choose = lives.by_image({"busybox": lives.always(BRIEF)})
    image = pb.ImageSpec(image="sha256:abc", user_specified_image="busybox")
    assert choose(pb.ContainerConfig(image=image)) == BRIEF


def test_output_and_termination_message_are_added():
    life = lives.runs_for(2 * SECOND, 1).saying("one", "two", every=SECOND).leaving("why")
    assert life.logs == (OutputLine(at=timedelta(), text="one"), OutputLine(at=SECOND, text="two"))
    assert life.files == (FileWrite(at=2 * SECOND, path="/dev/termination-log", content=b"why"),)
