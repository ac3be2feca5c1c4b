"""REACH: what sparse retention keeps, what draft models reach, and where a hit stays below what it could be.

Expected values come from the reports named, scaled down to blocks of 2 or 4 tokens.
"""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest

from hitbound.corpus_check import check_folder
from hitbound.gate import judge
from model.actions import Action, Arrive, Drain, Evict, Step
from model.configuration import Configuration, ConfigurationClass, Eviction, Group, GroupKind, WorkerOrder
from model.connector import Contract, Leaf
from model.errors import ConfigurationError
from model.policies import POLICIES
from model.policies.vllm import Vllm028
from model.policy import GroupView
from model.release import NEWEST, Release
from model.rules.lookup import DraftGroups, JunctionRule, PromptTail, ReplayBoundaries
from model.system import System, apply, initial
from model.tokens import Segment
from model.trace import Trace
from properties.fuzz import WIDE, Outcome, _violated
from properties.judge import violations
from properties.machine import Campaign
from properties.machines import machine_for
from properties.replay import replay
from properties.requirements import concerns, is_required
from properties.trace_document import dump_trace
from properties.twin import new_twin
from properties.verdict import Case, Cell, Result, Verdict

TARGET = Group(GroupKind.FULL_ATTENTION, 4)
DRAFT = attrs.evolve(TARGET, draft=True)
MAMBA = Group(GroupKind.MAMBA, 4)
MAMBA_OF_2 = Group(GroupKind.MAMBA, 2)
WINDOW = Group(GroupKind.SLIDING_WINDOW, 4, window=5)

PROMPT_END = Release(replay_boundaries=ReplayBoundaries.PROMPT_END, prompt_tail=PromptTail.WITHIN_PROMPT)
EVERY_GROUP = Release(draft_groups=DraftGroups.EVERY_GROUP)
SHARED = Release(junction_rule=JunctionRule.SHARED_BY_DENSE_GROUPS)


@attrs.frozen
class Run:
    """What a run came to: the hit of the last admission, what REACH said, and the system at the end."""

    hit: int
    reach: tuple[str, ...]
    system: System

    def states(self, group: int) -> list[int]:
        """Boundaries at which something is cached of a group, in tokens."""
        cached = self.system.scheduler.pool.cached
        return sorted({len(label.prefix) for label in cached if label.group == group})


def run(
    groups: tuple[Group, ...],
    *actions: Action,
    retention: int | None = None,
    release: Release = NEWEST,
    budget: int = 100,
) -> Run:
    configuration = Configuration(
        groups, 80, budget, eviction=Eviction.ADVERSARIAL, retention=retention, release=release
    )
    system, hits, said = initial(configuration), [0], []
    for action in actions:
        system, observations = apply(system, POLICIES["vllm-0.28"], action)
        for observation in observations:
            hits += [admission.decision.local for admission in observation.admissions]
            found = violations(observation)
            assert {violation.property for violation in found} <= {"REACH"}
            said += [violation.message for violation in found]
    return Run(hits[-1], tuple(said), system)


def request(name: str, shared: int, own: int = 0) -> Arrive:
    prompt = (Segment("x", shared),) + ((Segment(name, own),) if own else ())
    return Arrive(name, prompt, (Segment(f"{name}-out", 1),))


def twice(groups: tuple[Group, ...], tokens: int, *, retention: int | None, release: Release = NEWEST) -> Run:
    """The same prompt two times, each run in chunks as large as they may be."""
    return run(
        groups, request("a", tokens), Drain(), request("b", tokens), Drain(), retention=retention, release=release
    )


@pytest.mark.parametrize(
    ("retention", "states"), [(None, [4, 8, 12, 16]), (0, [16]), (4, [4, 8, 12, 16]), (8, [8, 16]), (12, [12, 16])]
)
def test_what_retention_keeps_of_the_states(retention: int | None, states: list[int]) -> None:
    """Each step ends on the grid, so a state exists at each boundary; 16 is where the prompt of 18 is replayed."""
    ran = run((TARGET, MAMBA), request("a", 18), *[Step(budget=4)] * 4, Drain(), retention=retention)
    assert ran.states(1) == states
    assert ran.states(0) == [4, 8, 12, 16]
    assert ran.reach == ()


@pytest.mark.parametrize(("retention", "windows"), [(None, [4, 8, 12, 16]), (0, [16]), (8, [8, 16])])
def test_what_retention_keeps_of_the_windows(retention: int | None, windows: list[int]) -> None:
    ran = run((TARGET, WINDOW), request("a", 18), Drain(), retention=retention)
    assert ran.states(1) == windows
    assert ran.reach == ()


def test_retention_is_a_multiple_of_the_scheduler_block() -> None:
    with pytest.raises(ConfigurationError, match="multiple of 4"):
        run((TARGET, MAMBA), retention=6)


def test_the_state_that_is_kept_lies_where_the_drop_leads() -> None:
    """vLLM #53504, repaired by #55760: 7 blocks and a half. Attention drops [24, 28) and resumes at 24; up to 0.29 the
    only state kept is that at 28."""
    before = twice((DRAFT, MAMBA), 30, retention=0, release=PROMPT_END)
    assert before.hit == 0
    assert any("24 tokens, which a hit at 24 needs (replay boundary)" in message for message in before.reach)
    after = twice((DRAFT, MAMBA), 30, retention=0)
    assert (after.hit, after.reach) == (24, ())


def test_only_groups_with_draft_layers_drop() -> None:
    """vLLM #57616: the target's block is 8, the draft's 2. Where every group is taken for one of the draft model, the
    target drops 8 tokens as well."""
    groups = (Group(GroupKind.FULL_ATTENTION, 8), Group(GroupKind.FULL_ATTENTION, 2, draft=True), MAMBA_OF_2)
    grown = (request("a", 11), Drain(), request("b", 11), Step())
    before = run(groups, *grown, release=EVERY_GROUP, budget=2)
    assert before.hit == 0
    assert any("the common hit is 0, though 8 is valid" in message for message in before.reach)
    assert run(groups, *grown, budget=2).hit == 8


def test_a_junction_is_what_all_dense_groups_share() -> None:
    """vLLM #56142: of 24 shared tokens the target has 24, the draft, less a block of 4, has 20, and Mamba has 16. The
    longest hit of one group is 24, where the draft group cannot resume."""
    groups = (Group(GroupKind.FULL_ATTENTION, 2), DRAFT, MAMBA_OF_2)
    fill = (request("a", 24), *[Step(budget=4)] * 6, Drain(), Evict(2, "a", 20), Evict(2, "a", 24))
    sibling = (request("b", 24, 6), Step(budget=100))
    before = run(groups, *fill, *sibling)
    assert before.hit == 16
    assert any("20 tokens, which a hit at 20 needs (shared-prefix junction)" in message for message in before.reach)
    assert 20 not in before.states(2)
    after = run(groups, *fill, *sibling, release=SHARED)
    assert after.hit == 16
    assert not any("junction" in message for message in after.reach)
    assert 20 in after.states(2)


def test_a_policy_that_falls_back_to_the_common_lookup_gets_its_junction() -> None:
    """Each group alone has 10 tokens of attention and no state; `reference` reports no such hit, but the common one."""
    configuration = Configuration(
        (Group(GroupKind.FULL_ATTENTION, 2), MAMBA),
        40,
        33,
        Leaf("leaf", claims=True, contract=Contract.ENDPOINT),
        hash_block=1,
    )
    actions = (request("a", 13), request("b", 10, 3), Step())
    seen = replay(Trace("", configuration, actions), POLICIES["reference"])
    assert seen.violations == ()
    plan = seen.observations[-1].plan
    assert plan is not None
    assert [chunk.end for chunk in plan.chunks] == [12, 8]


def test_a_drop_of_a_prefix_shorter_than_the_window_costs_a_whole_aligned_step() -> None:
    """The same in vLLM 0.33.0: 8 of 12 tokens and the block after them are cached, and 0 is reported."""
    groups = (Group(GroupKind.FULL_ATTENTION, 8), Group(GroupKind.SLIDING_WINDOW, 4, window=10, draft=True))
    ran = run(groups, request("a", 20), Drain(), request("b", 12, 3), Step())
    assert ran.hit == 0
    assert any("the common hit is 0, though 8 is valid" in message for message in ran.reach)


DROPS_TOO_MUCH = Trace(
    "",
    Configuration(
        (Group(GroupKind.FULL_ATTENTION, 8), Group(GroupKind.SLIDING_WINDOW, 4, window=10, draft=True)), 40, 100
    ),
    (request("a", 20), Drain(), request("b", 12, 3), Step()),
)
"""What the test above runs."""


class Timid(Vllm028):
    """Accepts a block less than each group finds."""

    name = "timid"

    def accept(self, group: GroupView, candidate: int) -> int:
        return group.find(max(0, min(candidate, group.find(candidate) - 4)))


def test_what_the_lookups_of_a_release_miss_is_said_of_it_and_not_of_a_policy() -> None:
    seen = [violation.case for violation in replay(DROPS_TOO_MUCH, POLICIES["reference"]).violations]
    assert seen == [Case.RELEASE]
    of_releases = [policy for policy in POLICIES.values() if concerns(policy, Case.RELEASE)]
    assert of_releases == [policy for name, policy in POLICIES.items() if name.startswith("vllm-")]


def test_a_policy_that_lowers_what_is_found_is_named_itself() -> None:
    groups = (TARGET, MAMBA)
    trace = Trace("", Configuration(groups, 40, 4), (request("a", 20), Drain(), request("b", 20), Step()))
    (violation,) = replay(trace, Timid()).violations
    assert (violation.property, violation.case) == ("REACH", None)
    assert "the common hit is 0, though 16 is valid" in violation.message
    assert concerns(Timid(), violation.case)


@pytest.mark.parametrize(("name", "verdict"), [("reference", Verdict.HOLDS_WITHIN), ("vllm-0.33", Verdict.VIOLATED)])
def test_a_folder_of_traces_holds_for_the_policy_if_only_the_release_falls_short(
    name: str, verdict: Verdict, tmp_path: Path
) -> None:
    (tmp_path / "trace.json").write_text(dump_trace(DROPS_TOO_MUCH))
    assert {result.verdict for result in check_folder(POLICIES[name], tmp_path)} == {verdict}


def test_runs_of_a_policy_do_not_note_what_only_the_release_misses() -> None:
    def noted(name: str) -> set[tuple[str, Case | None]]:
        cell = Cell(Contract.FULL, WorkerOrder.LOAD_BEFORE_COPY, ConfigurationClass.SECOND_ATTENTION_SPEC)
        campaign = Campaign(POLICIES[name], cell, Eviction.ADVERSARIAL)
        machine = machine_for(campaign)()
        machine.configuration = DROPS_TOO_MUCH.configuration
        machine.system, machine.twin = initial(machine.configuration), new_twin(machine.configuration)
        for action in DROPS_TOO_MUCH.actions:
            machine._act(action)
        return set(campaign.found)

    assert noted("reference") == set()
    assert noted("vllm-0.33") == {("REACH", Case.RELEASE)}


def test_a_violation_in_another_class_than_that_of_the_campaign_is_confirmed_there() -> None:
    """Where a window's block is wider than the hash unit no hit ends inside a block, whatever was asked for."""
    policy, (cell, features) = POLICIES["vllm-0.33"], WIDE[0]
    assert cell.configuration_class.partial_tails
    campaign = Campaign(policy, cell, Eviction.ADVERSARIAL, features=features)
    base = Result(property="", engine="fuzz", verdict=Verdict.HOLDS_WITHIN, required=False, cell=cell)
    found = Outcome(campaign, ((("REACH", Case.RELEASE), DROPS_TOO_MUCH),), 0)
    (violation,) = judge(policy, _violated(base, [found]), both_solvers=False)
    assert violation.verdict is Verdict.VIOLATED
    assert violation.result.cell is not None
    assert violation.result.cell.configuration_class is ConfigurationClass.SECOND_ATTENTION_SPEC


def test_how_far_hits_reach_is_reported_and_not_required() -> None:
    assert not is_required("REACH")
    assert is_required("PROGRESS")
