"""Compare what klet and upstream's kubelet report of the same pods on the same node: /metrics* and /stats/summary.

  scripts/compare-metrics                        record both, and report what differs
  scripts/compare-metrics --output DIRECTORY     keep the recordings there
  scripts/compare-metrics --compare DIRECTORY    only compare what was recorded there
  scripts/compare-metrics --keep-reference       write the shape of upstream's recording to tests/data/

Needs root, and upstream's programs (scripts/upstream). Upstream's kubelet starts the pods, klet takes them over, so the
series of both have the same labels. Values agree on a machine that has nothing else to do. What may differ, and why, is
in tests/data/metrics/accepted.json. Exit code: 0 if nothing else differs, 1 if something does, 3 if it could not run.
"""

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Final

import msgspec

from klet.aio.clock import SystemClock
from klet.errors import KletError
from klet.testing.metrics_comparison.differences import Acceptance, Judgement, compare_recordings, judge_differences
from klet.testing.metrics_comparison.recordings import Recording, read_recording, write_recording
from klet.testing.metrics_comparison.shapes import shape_of
from klet.testing.metrics_comparison.stage import KLET, UPSTREAM, set_up
from klet.testing.metrics_comparison.value_rules import compare_values
from klet.testing.metrics_comparison.visitors import drop_visitors

DATA: Final = Path("tests/data/metrics")
REFERENCE: Final = DATA / "upstream_shape.json"
ACCEPTED: Final = DATA / "accepted.json"
_DIFFERENT, _UNABLE = 1, 3


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    with tempfile.TemporaryDirectory(prefix="klet-compare-") as temporary:
        directory = options.compare or options.output or Path(temporary)
        try:
            if options.compare is None:
                asyncio.run(record_both(directory, seconds=options.seconds))
            upstream, klet = drop_visitors(*(read_recording(directory / agent) for agent in (UPSTREAM, KLET)))
        except (KletError, OSError) as error:
            sys.stderr.write(f"compare-metrics: {error}\n")
            return _UNABLE
    if options.keep_reference:
        keep_reference(upstream)
    judgement = judge(upstream, klet)
    sys.stdout.write(render(judgement))
    return _DIFFERENT if judgement.open else 0


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/compare-metrics", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, help="where to keep the recordings")
    parser.add_argument("--compare", type=Path, metavar="DIRECTORY", help="compare recordings that are there")
    parser.add_argument("--seconds", type=float, default=60.0, help="between the two rounds of an agent")
    parser.add_argument("--keep-reference", action="store_true", help=f"write {REFERENCE}")
    return parser.parse_args(arguments)


async def record_both(directory: Path, *, seconds: float) -> None:
    """Record upstream's kubelet, then klet, with the same pods."""
    async with set_up(clock=SystemClock(), report=say) as stage:
        await stage.create_pods()
        for agent in (UPSTREAM, KLET):
            recording = await stage.record(agent, between=timedelta(seconds=seconds))
            write_recording(recording, directory / agent)


def judge(upstream: Recording, klet: Recording) -> Judgement:
    found = [*compare_recordings(upstream, klet), *compare_values(upstream, klet)]
    return judge_differences(found, read_acceptances(ACCEPTED))


def read_acceptances(path: Path) -> list[Acceptance]:
    return msgspec.json.decode(path.read_bytes(), type=list[Acceptance])


def keep_reference(upstream: Recording) -> None:
    DATA.mkdir(parents=True, exist_ok=True)
    REFERENCE.write_bytes(msgspec.json.format(msgspec.json.encode(shape_of(upstream)), indent=1) + b"\n")


def render(judgement: Judgement) -> str:
    lines = [f"{each.route}: {each.kind}: {each.subject}  {each.detail}".rstrip() for each in judgement.open]
    lines += [f"accepted, but not seen: {each.route}: {each.kind}: {each.subject}" for each in judgement.idle]
    lines.append(f"{len(judgement.open)} differences, and {len(judgement.accepted)} that are accepted")
    return "".join(f"{line}\n" for line in lines)


def say(text: str) -> None:
    sys.stderr.write(f"compare-metrics: {text}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
