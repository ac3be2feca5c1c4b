"""`hitbound reproduce --unaided`: an engine finds what a record is about without the record's trace, under the rules
before the fix and, with the same budget, not under those after it."""

from __future__ import annotations

import time
from collections.abc import Callable

import attrs

from hitbound.progress import Say
from model.trace import Trace
from properties.case_document import Case, Engine, Unaided, Variant
from properties.verdict import Cell, Result, Verdict

SEED = 0

RUNS_OF_A_SERIES = 100

ACTIONS = 18
"""Rules of one run, at most."""


@attrs.frozen
class Search:
    """What one engine found under one variant. `effort` is what it did, `seconds` the processor time it took."""

    verdict: Verdict
    effort: str
    seconds: float
    trace: Trace | None = None


@attrs.frozen
class Hunt:
    """Both searches of one case."""

    case: Case
    unaided: Unaided
    budget: str
    before: Search
    after: Search

    @property
    def verdict(self) -> Verdict:
        """What is known after the fix; VACUOUS if the search did not find the violation before it."""
        if self.after.verdict is Verdict.VIOLATED or self.before.verdict is Verdict.VIOLATED:
            return self.after.verdict
        return Verdict.VACUOUS

    @property
    def found(self) -> bool:
        """Whether the violation was found before the fix, and the same search is silent after it."""
        return self.verdict in (Verdict.PROVED, Verdict.HOLDS_WITHIN)


def hunt(case: Case, say: Say) -> Hunt | None:
    """Search under both variants; None for a case that names no engine."""
    if case.unaided is None:
        return None
    searches: dict[Engine, tuple[str, Callable[[Unaided, Variant], Search]]] = {
        Engine.FUZZ: (f"{case.unaided.runs} runs of {ACTIONS} actions, seed {SEED}", _fuzzed),
        Engine.PROVE: ("every size, in one cell", _proved),
    }
    budget, search = searches[case.unaided.engine]
    found = []
    for name, variant in (("before", case.before), ("after", case.after)):
        say(f"{case.unaided.engine.value} {case.name}, {name} the fix")
        started = time.process_time()
        found.append(attrs.evolve(search(case.unaided, variant), seconds=time.process_time() - started))
    return Hunt(case, case.unaided, budget, *found)


def _fuzzed(unaided: Unaided, variant: Variant) -> Search:
    from properties.fuzz import Profile, seek
    from properties.machine import Campaign
    from properties.policy_guard import guarded

    configuration = variant.trace.configuration
    campaign = Campaign(
        guarded(variant.rules),
        _cell(unaided, variant),
        configuration.eviction,
        features=frozenset(unaided.features),
        release=configuration.release,
        connector=configuration.connector if unaided.connector else None,
        says=unaided.says,
    )
    runs = min(unaided.runs, RUNS_OF_A_SERIES)
    profile = Profile("unaided", runs, ACTIONS, -(-unaided.runs // runs), SEED, needs_events=False)
    trace = seek(campaign, (unaided.property, unaided.case), profile, SEED)
    verdict = Verdict.HOLDS_WITHIN if trace is None else Verdict.VIOLATED
    return Search(verdict, f"{campaign.runs} runs, {campaign.actions} actions", 0.0, trace)


def _proved(unaided: Unaided, variant: Variant) -> Search:
    from solver.prove import prove

    results = prove(variant.rules, cells=(_cell(unaided, variant),))
    sought = [each for each in results if (each.property, each.case) == (unaided.property, unaided.case)]
    result = next((each for each in sought if _is_told(unaided, each)), None)
    if result is None:
        return Search(Verdict.UNKNOWN, "no such obligation", 0.0)
    return Search(result.verdict, f"{result.detail['obligations']} obligations", 0.0, result.trace)


def _is_told(unaided: Unaided, result: Result) -> bool:
    return result.verdict is not Verdict.VIOLATED or unaided.says in result.reason


def _cell(unaided: Unaided, variant: Variant) -> Cell:
    configuration = variant.trace.configuration
    return Cell(unaided.contract, configuration.worker_order, configuration.configuration_class)
