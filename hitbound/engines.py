"""Which engines a command runs. They are imported here and only when they run: z3 and Hypothesis take time to load."""

from __future__ import annotations

import functools
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from hitbound.progress import Say
from model.policies import POLICIES
from model.policy import Policy
from model.ready_connectors import READY
from model.release import NEWEST
from properties.requirements import at_least, is_greatest, required_cells
from properties.verdict import ALL_CELLS, Cell, Result, Verdict

if TYPE_CHECKING:
    from solver.soundness.proof import Soundness

PROFILES = ("quick", "ci", "nightly")
"""How much is sampled; `properties.fuzz` says how much that is."""


def prove(policy: Policy, say: Say, also: tuple[Cell, ...] = ()) -> tuple[Result, ...]:
    """The proof in every cell of the matrix; `also` are required beside the cells that always are."""
    _let_interrupts_through()
    from solver.prove import prove
    from solver.soundness.remembered import remembered_soundness

    return prove(
        policy,
        cells=ALL_CELLS,
        required=(*required_cells(policy), *also),
        at_least=at_least(policy),
        greatest=is_greatest(policy),
        cache_soundness=remembered_soundness(say),
        progress=say,
    )


def prove_soundness(say: Say) -> Soundness:
    """The proof about the cache, decided anew; a cell that fails is traced."""
    _let_interrupts_through()
    from solver.soundness.proof import examine_soundness

    found = examine_soundness(progress=say)
    if found.verdict is not Verdict.CTI:
        return found
    from solver.soundness.tracing import Aim, traced

    return traced(found, Aim(POLICIES["reference"], NEWEST), say)


def _let_interrupts_through() -> None:
    import z3

    z3.set_param("ctrl_c", False)  # z3 would swallow an interrupt and answer "unknown"


def fuzz(policy: Policy, profile: str, seed: int, say: Say, leaf: str | None = None) -> tuple[Result, ...]:
    """Random runs of the model in the required cell; with a ready-made `leaf` among the connectors if one is named.

    Where these find nothing and the profile is long enough to meet every event, also of what the model has beyond.
    """
    from properties.fuzz import PROFILES, fuzz, fuzz_widely

    os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = _scratch().name  # else Hypothesis leaves a folder where the user is
    fixed_leaf = READY[leaf] if leaf else None
    results = fuzz(policy, PROFILES[profile], seed=seed, fixed_leaf=fixed_leaf, progress=say)
    found = any(result.required and result.verdict is Verdict.VIOLATED for result in results)
    if PROFILES[profile].needs_events and leaf is None and not found:
        results += fuzz_widely(policy, PROFILES[profile], seed=seed, progress=say)
    return results


def replay_corpus(policy: Policy, say: Say) -> tuple[Result, ...]:
    """The traces of the corpus."""
    from hitbound.corpus_check import check_corpus

    say(f"corpus {policy.name}")
    return check_corpus(policy)


def replay_folder(policy: Policy, folder: Path, say: Say) -> tuple[Result, ...]:
    """The traces of a folder of the user's."""
    from hitbound.corpus_check import check_folder

    say(f"{folder} {policy.name}")
    return check_folder(policy, folder)


def explore(policy: Policy, scopes: tuple[str, ...], say: Say) -> tuple[Result, ...]:
    """Every reachable state of the scopes that are named, else of all named scopes."""
    from hitbound.explore_command import explore_run

    return explore_run(scopes)(policy, say)


def seed_of(profile: str, asked: int | None) -> int:
    """The seed that runs of the profile use, so that the report can name it."""
    from properties.fuzz import PROFILES, seed_of

    return seed_of(PROFILES[profile], asked)


@functools.cache
def _scratch() -> tempfile.TemporaryDirectory[str]:
    """A directory that is gone when the process ends."""
    return tempfile.TemporaryDirectory(prefix="hitbound-")
