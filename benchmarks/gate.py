"""How long the gate takes: the proof, the corpus and the `ci` profile of the policies that `hitbound check` covers.

    python -m benchmarks.gate

Each figure is processor time and wall time of this process, and the ratio to a fixed piece of pure Python that is timed
in the same run: the ratio can be compared between machines and days, the seconds cannot.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable
from importlib.metadata import version

import attrs
import click

from hitbound import engines
from model.policies import DEFAULT_POLICY, POLICIES
from model.policy import Policy
from properties.fuzz import PROFILES


@attrs.frozen
class Timing:
    """Seconds of processor and of wall time."""

    processor: float
    wall: float


def timed(work: Callable[[], object]) -> Timing:
    """How long one run of `work` takes."""
    wall, processor = time.perf_counter(), time.process_time()
    work()
    return Timing(time.process_time() - processor, time.perf_counter() - wall)


def peer() -> int:
    """The fixed piece of work: arithmetic, tuples and a dictionary, as in the model."""
    seen: dict[tuple[int, int], int] = {}
    for number in range(1_000_000):
        key = (number % 1013, number // 7 % 17)
        seen[key] = seen.get(key, 0) + number
    return len(seen)


def parts(policy: Policy) -> dict[str, Callable[[], object]]:
    """What `hitbound check` does for one policy in the `ci` profile."""

    def say(_: str) -> None:
        pass

    return {
        "prove": lambda: engines.prove(policy, say),
        "corpus": lambda: engines.replay_corpus(policy, say),
        "fuzz": lambda: engines.fuzz(policy, "ci", engines.seed_of("ci", None), say),
    }


def main() -> None:
    """Print the table."""
    versions = ", ".join(f"{name} {version(name)}" for name in ("z3-solver", "cvc5", "hypothesis", "attrs"))
    click.echo(f"Python {platform.python_version()}, {platform.machine()}; {versions}; ci: {PROFILES['ci'].runs} runs")
    reference = timed(peer)
    click.echo(f"{'peer':30}{reference.processor:8.2f} s cpu{reference.wall:8.2f} s wall")
    total = Timing(0.0, 0.0)
    for name in (DEFAULT_POLICY, "reference"):
        for part, work in parts(POLICIES[name]).items():
            took = timed(work)
            total = Timing(total.processor + took.processor, total.wall + took.wall)
            click.echo(line(f"{part} {name}", took, reference))
    click.echo(line("all", total, reference))


def line(name: str, took: Timing, reference: Timing) -> str:
    """One row of the table."""
    ratio = took.processor / reference.processor
    return f"{name:30}{took.processor:8.2f} s cpu{took.wall:8.2f} s wall{ratio:8.1f} x peer"


if __name__ == "__main__":
    main()
