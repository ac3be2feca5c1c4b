"""The engine `fuzz` alone: it finds the faults of 0.24 and 0.27 unaided, and stays silent where there is none."""

import subprocess
import sys
from pathlib import Path

import attrs
import pytest

from hitbound.judgement import Judgement
from hitbound.report_text import events_of
from model.configuration import Eviction
from model.connector import Leaf
from model.policies import POLICIES
from model.policies.mutants import EQUIVALENT, FALLS, MUTANTS
from model.ready_connectors import DISHONEST
from properties.catalogue import EVENTS
from properties.features import Feature
from properties.fuzz import PROFILES, WIDE, Profile, findings, fuzz
from properties.machine import Campaign, EngineMachine, rules_of
from properties.policy_guard import guarded
from properties.replay import replay
from properties.requirements import is_required
from properties.verdict import REQUIRED_CELL, Case, Cell, Result, Verdict

CHECKOUT = Path(__file__).resolve().parents[1]

pytestmark = pytest.mark.slow

ONE_SERIES = attrs.evolve(PROFILES["ci"], series=1)


def violated(results: tuple[Result, ...], eviction: Eviction) -> set[tuple[str, Case | None]]:
    """What was violated under one eviction mode."""
    return {
        (result.property, result.case)
        for result in results
        if result.verdict is Verdict.VIOLATED and result.trace is not None
        if result.trace.configuration.eviction is eviction
    }


@pytest.fixture(scope="module", params=["vllm-0.24", "vllm-0.27"])
def faulty(request: pytest.FixtureRequest) -> tuple[str, tuple[Result, ...]]:
    return request.param, fuzz(POLICIES[request.param], PROFILES["ci"])


@pytest.mark.parametrize("eviction", Eviction)
def test_the_faults_of_the_releases_are_found_in_their_cases(
    faulty: tuple[str, tuple[Result, ...]], eviction: Eviction
) -> None:
    name, results = faulty
    resumes = {case for property, case in violated(results, eviction) if property == "HIT-RESUME"}
    assert resumes == ({Case.LOCAL, Case.EXTERNAL} if name == "vllm-0.24" else {Case.EXTERNAL})


def test_every_trace_is_short_and_violates_again(faulty: tuple[str, tuple[Result, ...]]) -> None:
    name, results = faulty
    for result in results:
        if result.verdict is Verdict.VIOLATED:
            assert result.trace is not None
            assert len(result.trace.actions) <= 8
            again = {(found.property, found.case) for found in replay(result.trace, POLICIES[name]).violations}
            assert (result.property, result.case) in again


@pytest.mark.parametrize("name", ["vllm-0.28", "reference"])
def test_a_policy_that_is_safe_in_the_required_cell_is_not_accused(name: str) -> None:
    results = fuzz(POLICIES[name], PROFILES["ci"])
    required = [result for result in results if is_required(result.property)]
    assert {result.verdict for result in required} == {Verdict.HOLDS_WITHIN}
    assert EVENTS.keys() & {result.property for result in results}


@pytest.mark.parametrize("name", ["vllm-0.28"])
def test_the_same_seed_gives_the_same_runs(name: str) -> None:
    first, second = (fuzz(POLICIES[name], PROFILES["quick"], seed=7) for _ in range(2))
    assert first == second


@pytest.mark.parametrize("name", ["vllm-0.28"])
def test_what_else_is_imported_does_not_matter(name: str) -> None:
    program = "import sys; from properties.fuzz import *; from model.policies import POLICIES; "
    program += "print(fuzz(POLICIES[sys.argv[1]], PROFILES['quick'])[0].scope)"
    run = [sys.executable, "-c", program, name]
    alone = subprocess.run(run, cwd=CHECKOUT, capture_output=True, text=True, check=True).stdout.strip()
    assert alone == fuzz(POLICIES[name], PROFILES["quick"])[0].scope


def test_another_seed_gives_other_runs() -> None:
    first, other = (fuzz(POLICIES["vllm-0.28"], PROFILES["quick"], seed=seed) for seed in (7, 8))
    assert first != other


@pytest.mark.parametrize(
    ("clause", "property"),
    [
        ("claim", "HIT-RESUME"),
        ("state", "HIT-RESUME"),
        ("attention", "HIT-COVER"),
        ("range", "HIT-LAST"),
        ("unassigned", "LOAD-SOURCE"),
    ],
)
def test_each_dishonest_leaf_is_found(clause: str, property: str) -> None:
    leaf: Leaf = DISHONEST[clause]
    campaign = Campaign(guarded(POLICIES["vllm-0.28"]), REQUIRED_CELL, Eviction.ADVERSARIAL, fixed_leaf=leaf)
    found = {property for (property, _), _ in findings(campaign, ONE_SERIES, seed=0)}
    assert property in found


def test_a_too_short_campaign_is_vacuous_not_successful() -> None:
    hopeless = attrs.evolve(PROFILES["ci"], runs=2, actions=2)
    results = fuzz(POLICIES["vllm-0.28"], hopeless)
    assert {result.verdict for result in results} == {Verdict.VACUOUS}
    assert all("never" in result.reason for result in results)


@pytest.mark.parametrize("missed", ["events", "rules"])
def test_a_campaign_goes_on_until_all_has_happened(missed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    series: list[int] = []

    def run_series(machine: type[EngineMachine], profile: Profile, seed: int) -> None:
        series.append(seed)
        campaign = machine.campaign
        if missed == "rules" or len(series) % 3 == 0:
            campaign.met.update(list(EVENTS))
        if missed == "events" or len(series) % 3 == 0:
            campaign.fired.update(rules_of(campaign.eviction, campaign.features))

    monkeypatch.setattr("properties.fuzz.run_series", run_series)
    results = fuzz(POLICIES["vllm-0.28"], PROFILES["ci"], seed=5)
    assert series == [5, 6, 7] * 2
    assert {result.verdict for result in results} == {Verdict.HOLDS_WITHIN}


def test_rare_events_of_stores_are_soon_met() -> None:
    """Where not every run is drawn anew, seed 11 takes some 1,900 runs to that."""
    cell, features = next((cell, features) for cell, features in WIDE if Feature.STORES in features)
    campaign = Campaign(guarded(POLICIES["reference"]), cell, Eviction.ADVERSARIAL, features=features)
    assert findings(campaign, attrs.evolve(PROFILES["ci"], runs=50, series=24, varied=True), 11) == ()
    assert {"JOINED-HIT", "SAVE-FLUSHED", "SAVE-GIVEN-UP"} <= campaign.met.keys()
    assert campaign.runs < 600


@pytest.mark.nightly
@pytest.mark.mutants
@pytest.mark.parametrize("name", MUTANTS)
def test_each_mutant_is_found(name: str) -> None:
    def found(seed: int) -> set[str]:
        campaign = Campaign(guarded(MUTANTS[name]), REQUIRED_CELL, Eviction.ADVERSARIAL)
        return {property for (property, _), _ in findings(campaign, ONE_SERIES, seed)}

    assert any(found(seed) & set(FALLS[name]) for seed in range(12))


@pytest.mark.mutants
@pytest.mark.parametrize("name", EQUIVALENT)
def test_what_is_proved_equivalent_is_not_accused(name: str) -> None:
    assert {result.verdict for result in fuzz(EQUIVALENT[name], PROFILES["ci"])} == {Verdict.HOLDS_WITHIN}


@pytest.mark.parametrize("cell", [attrs.evolve(REQUIRED_CELL, contract=3)])
def test_other_cells_are_explored_but_nothing_is_required_of_them(cell: Cell) -> None:
    assert not any(result.required for result in fuzz(POLICIES["vllm-0.28"], PROFILES["quick"], cell=cell))


def test_the_report_says_which_events_happened() -> None:
    times = {"LOCAL-HIT": 3, "PREEMPTED": 0}
    results = [
        Result(
            property=name,
            engine="fuzz",
            verdict=Verdict.HOLDS_WITHIN,
            required=False,
            detail={"kind": "sometimes", "times": count},
        )
        for name, count in times.items()
    ]
    (line,) = events_of([Judgement("reference", result) for result in results])
    assert line == "fuzz met 1 of 2 events (`sometimes` properties); never PREEMPTED"
