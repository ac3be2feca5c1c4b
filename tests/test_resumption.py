"""What happens between an answer and the run: a load that completed, a preemption, a request that is not to read."""

from __future__ import annotations

import attrs
import pytest

from model.actions import Action, Arrive, Drain, EndLoad, LeafAnswers, Preempt, ScriptedAnswer, Step
from model.configuration import Configuration
from model.connector import Contract, Leaf
from model.release import Release
from model.rules.loads import AfterLoad
from model.rules.lookup import SkippedReading
from model.rules.scheduling import Resumption
from model.tokens import Segment
from tests.small_runs import FILLED, V028, hybrid, run

STORE = Leaf("store", claims=False, contract=Contract.ENDPOINT)


def under(release: Release, budget: int = 8) -> Configuration:
    return attrs.evolve(hybrid(STORE, budget=budget), release=release)


def arrive(name: str, *answers: ScriptedAnswer, own: int = 3, output: int = 3, skip: bool = False) -> Arrive:
    prompt = (Segment("x", 4), Segment(name, own))
    return Arrive(name, prompt, (Segment(f"{name}-out", output),), (LeafAnswers("store", answers),), skip)


def violated(release: Release, *actions: Action) -> set[str]:
    return {violation.property for violation in run(V028, under(release), *actions).violations}


LATER = ScriptedAnswer(4, asynchronous=True)
NOTHING = ScriptedAnswer(0)
LOADED = (arrive("r", LATER, ScriptedAnswer(2)), Step(), EndLoad("r"), Step())


def test_a_connector_is_not_asked_about_a_request_that_was_loaded() -> None:
    """Record 40 (vllm #18232)."""
    assert not violated(Release(), *LOADED, Drain())
    assert "LOAD-SOURCE" in violated(Release(after_load=AfterLoad.ASKED_AGAIN), *LOADED)


@pytest.mark.parametrize("later", [True, False])
def test_what_is_answered_after_a_load_is_loaded_as_well(later: bool) -> None:
    second = ScriptedAnswer(2, asynchronous=later)
    actions = (arrive("r", LATER, second, NOTHING), Step(), EndLoad("r"), Step())
    system = run(V028, under(Release(after_load=AfterLoad.ASKED_AGAIN)), *actions).observations[-1].after
    request = system.scheduler.requests["r"]
    if later:
        assert (request.status.value, request.computed) == ("loading", 6)
    else:
        assert request.computed == 7


RELOADED = (
    arrive("r", NOTHING, ScriptedAnswer(7, asynchronous=True)),
    Step(),
    Step(),
    Preempt(),
    Step(),
    EndLoad("r"),
    Step(),
)


def test_a_request_that_is_loaded_after_a_preemption_keeps_its_output() -> None:
    """Record 45 (vllm #31583)."""
    assert not violated(Release(), *RELOADED, Drain())
    assert violated(Release(resumption=Resumption.AS_NEW), *RELOADED, Drain()) >= {"STATE-LABEL"}


def test_a_request_that_is_not_to_read_reads_nothing() -> None:
    actions = (*FILLED, arrive("r", ScriptedAnswer(2), skip=True), Step(), Step())
    for rule, external in ((SkippedReading.NOTHING, 0), (SkippedReading.EXTERNAL, 2)):
        replayed = run(V028, under(Release(skipped_reading=rule)), *actions)
        assert replayed.violations == ()
        assert (replayed.admissions[-1].local, replayed.admissions[-1].external) == (0, external)
