"""The judge sees what is wrong: hand-made mutants of vLLM's scheduler, each found by the shadow memory alone, without
the model beside it, within few traces. The release itself shows none of it in these traces."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest

from model.configuration import Eviction, GroupKind
from properties.features import Feature
from properties.verdict import Case
from subjects.conform import run_on
from subjects.courses import PLAIN, TAILS, Course, policy_of, run_of
from subjects.process import SubjectProcess
from tests.installed import REQUIRED, installed_subject
from tests.subject.changed_tree import changed

NEWEST = REQUIRED[-1]
FEW = 6
"""Traces of at most 25 actions."""

pytestmark = [pytest.mark.subject, pytest.mark.nightly]

MANAGERS, MANAGER = "single_type_kv_cache_manager.py", "kv_cache_manager.py"


@attrs.frozen
class Mutant:
    """`old`, in `file` below vllm/v1/core, becomes `new`; then `shows` is violated in traces that draw `features`."""

    file: str
    old: str
    new: str
    shows: tuple[str, Case | None]
    features: frozenset[Feature] = PLAIN
    second_attention: GroupKind | None = None


MUTANTS = {
    "no deferral": Mutant(
        MANAGERS,
        "and new_computed_blocks[-1].block_hash in self.cached_blocks_this_step",
        "and False",
        ("HIT-RESUME", Case.LOCAL),
    ),
    "copy dropped": Mutant(
        MANAGER, "return copies, retained_blocks", "return [], retained_blocks", ("STATE-LABEL", None), TAILS
    ),
    "hash not moved": Mutant(
        MANAGERS,
        "self.block_pool.move_block_hashes(source_block, cow_block)",
        "pass",
        ("STATE-LABEL", None),
        TAILS,
    ),
    "early free": Mutant(
        MANAGERS, "return num_computed_tokens - 1\n", "return num_computed_tokens\n", ("HIT-RESUME", Case.LOCAL)
    ),
    "window off by one block": Mutant(
        MANAGERS,
        "num_computed_tokens - self.sliding_window + 1 - self.extra_retained_tokens,",
        "num_computed_tokens - self.sliding_window + 1 + self.block_size,",
        ("HIT-COVER", Case.LOCAL),
        second_attention=GroupKind.SLIDING_WINDOW,
    ),
    "no chunk split": Mutant(
        "sched/scheduler.py",
        "        if start >= prefill_end:\n            return num_new_tokens\n\n        block_size",
        "        return num_new_tokens\n        block_size",
        ("STATE-LABEL", None),
    ),
    "missing touch": Mutant(MANAGERS, "self.block_pool.touch(new_computed_blocks)", "pass", ("OWN-EXCLUSIVE", None)),
    "premature publication": Mutant(
        MANAGER,
        "total_computed_tokens + num_new_tokens,\n            request.num_tokens,\n        )\n        self.coordinator",
        "request.num_tokens,\n            request.num_tokens,\n        )\n        self.coordinator",
        ("NO-ENGINE-ERROR", None),
    ),
    "maximum over groups": Mutant(
        MANAGER, "min(per_group_hits) < num_local", "max(per_group_hits) < num_local", ("HIT-RESUME", Case.LOCAL)
    ),
}


def shown(process: SubjectProcess, mutant: Mutant) -> set[tuple[str, Case | None]]:
    """What is violated in the traces that are run for the mutant."""
    policy = policy_of(NEWEST)
    course = Course(mutant.second_attention, Eviction.ADVERSARIAL, mutant.features, FEW)
    return {
        (violation.property, violation.case)
        for seed in range(FEW)
        for violation in run_on(run_of(course, seed, policy, NEWEST, 25).trace, policy, process).violations
    }


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_shows(name: str, tmp_path: Path) -> None:
    mutant = MUTANTS[name]
    subject = changed(installed_subject(NEWEST), tmp_path, mutant.file, mutant.old, mutant.new)
    with SubjectProcess(subject) as process:
        assert mutant.shows in shown(process, mutant)


@pytest.mark.parametrize("process", [NEWEST], indirect=True)
def test_the_release_itself_shows_none_of_it(process: SubjectProcess) -> None:
    assert not [name for name, mutant in MUTANTS.items() if mutant.shows in shown(process, mutant)]
