"""The engine `fuzz`: series of Hypothesis runs, each new finding minimised, replayed and reported as a trace."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator

import attrs
import hypothesis
from hypothesis.stateful import run_state_machine_as_test

from model.configuration import ConfigurationClass, Eviction, WorkerOrder
from model.connector import Contract, Leaf
from model.errors import IllegalAction
from model.policy import Policy
from model.rules.scheduling import PreemptedChunk
from model.trace import Expectation, Trace
from properties.catalogue import INVARIANTS, Setting, Status, applicable_events
from properties.features import Feature
from properties.invariant import Violation
from properties.machine import Campaign, EngineMachine, Signature, rules_of
from properties.machines import machine_for
from properties.minimise import minimise, size
from properties.policy_guard import PolicyLoops, guarded
from properties.repeatable import repeatable_draws, varied_draws
from properties.replay import replay
from properties.requirements import about, is_required, release_of
from properties.verdict import REQUIRED_CELL, Cell, Result, Verdict

ENGINE = "fuzz"


@attrs.frozen
class Profile:
    """How much to run: up to `series` times `runs` runs of at most `actions` rules each. One series is enough where
    nothing is found, and every rule has fired and every event is met. Without a `seed` of its own a profile draws one.

    `needs_events` if a run that misses an event counts as vacuous; too short a profile cannot meet them all. Where
    runs are `varied`, each is drawn anew.
    """

    name: str
    runs: int
    actions: int
    series: int
    seed: int | None
    needs_events: bool
    varied: bool = False


PROFILES = {
    profile.name: profile
    for profile in (
        Profile("quick", runs=150, actions=14, series=1, seed=0, needs_events=False),
        Profile("ci", runs=300, actions=18, series=4, seed=0, needs_events=True),
        Profile("nightly", runs=6000, actions=30, series=4, seed=None, needs_events=True),
    )
}


WIDE = (
    (
        Cell(
            Contract.FULL,
            WorkerOrder.LOAD_BEFORE_COPY,
            ConfigurationClass.SECOND_ATTENTION_SPEC_PARTIAL_TAILS,
        ),
        frozenset(
            {
                Feature.PARTIAL_TAILS,
                Feature.DRAFT_MODEL,
                Feature.SPARSE_RETENTION,
                Feature.CHUNKED_LOCAL,
                Feature.INTERNAL_CHECKPOINT,
                Feature.CONTEXT_PARALLEL,
            }
        ),
    ),
    (
        Cell(Contract.ENDPOINT, WorkerOrder.LOAD_BEFORE_COPY, ConfigurationClass.ONE_ATTENTION_SPEC),
        frozenset({Feature.STORES, Feature.PEERS, Feature.EVERY_STATE}),
    ),
    (
        Cell(Contract.BACKED, WorkerOrder.LOAD_BEFORE_COPY, ConfigurationClass.ONE_ATTENTION_SPEC),
        frozenset(
            {
                Feature.STEPS_IN_FLIGHT,
                Feature.SPECULATION,
                Feature.FAILED_BLOCKS,
                Feature.SKIPPED_READING,
                Feature.AUXILIARY_OUTPUTS,
                Feature.PREFIX_REPLAY,
            }
        ),
    ),
    (
        Cell(Contract.FULL, WorkerOrder.LOAD_BEFORE_COPY, ConfigurationClass.SECOND_ATTENTION_SPEC),
        frozenset({Feature.SPECULATION, Feature.DRAFT_MODEL, Feature.PRIORITIES}),
    ),
)
"""What the longer profiles run beside the plain model: features that go together, each in the widest cell where vLLM's
newest policy holds."""


def seed_of(profile: Profile, asked: int | None) -> int:
    """The seed that was asked for, that of the profile, or a random one for a profile that has none."""
    seeds = (asked, profile.seed, random.SystemRandom().randrange(2**32))
    return next(seed for seed in seeds if seed is not None)


def fuzz(
    policy: Policy,
    profile: Profile,
    *,
    seed: int | None = None,
    cell: Cell = REQUIRED_CELL,
    fixed_leaf: Leaf | None = None,
    features: frozenset[Feature] = frozenset(),
    progress: Callable[[str], None] = lambda _: None,
) -> tuple[Result, ...]:
    """Run the profile under both eviction modes: a result per finding, per property that held, and per event.

    Outside REQUIRED_CELL nothing is required. With a `fixed_leaf`, events are not: there is less variety then. Only
    `features` are drawn beyond the plain model.
    """
    campaigns = [
        Campaign(guarded(policy), cell, eviction, fixed_leaf, features, release_of(policy)) for eviction in Eviction
    ]
    needs_events = cell == REQUIRED_CELL and profile.needs_events and fixed_leaf is None
    return _fuzzed(
        campaigns, profile, seed, required=cell == REQUIRED_CELL, needs_events=needs_events, progress=progress
    )


def fuzz_widely(
    policy: Policy,
    profile: Profile,
    *,
    seed: int | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> tuple[Result, ...]:
    """Run what the model has beyond the plain one, where every release since 0.28 holds. What is found is reported, not
    required; but where nothing is found every event has to be met: there are more series for that, which are shorter.
    Hashes of a preempted chunk are withdrawn: that no release does so is known, and no policy can mend it
    (docs/findings/hash-of-a-preempted-chunk.md).
    """
    results: tuple[Result, ...] = ()
    shorter = attrs.evolve(profile, runs=profile.runs // 6, series=profile.series * 6, varied=True)
    rules = attrs.evolve(release_of(policy), preempted_chunk=PreemptedChunk.WITHDRAWN)
    for cell, features in WIDE:
        campaign = Campaign(guarded(policy), cell, Eviction.ADVERSARIAL, None, features, rules)
        results += _fuzzed(
            [campaign], shorter, seed, required=False, needs_events=profile.needs_events, progress=progress
        )
    return results


def _fuzzed(
    campaigns: list[Campaign],
    profile: Profile,
    seed: int | None,
    *,
    required: bool,
    needs_events: bool,
    progress: Callable[[str], None],
) -> tuple[Result, ...]:
    """The results of campaigns in one cell together."""
    chosen = seed_of(profile, seed)
    outcomes: list[Outcome] = []
    for campaign in campaigns:
        progress(f"fuzz {campaign.policy.name}, {campaign.words}")
        try:
            found = findings(campaign, profile, chosen)
        except PolicyLoops as loops:
            return (
                Result(
                    property="POLICY-TOTAL", engine=ENGINE, verdict=Verdict.UNKNOWN, required=True, reason=str(loops)
                ),
            )
        outcomes.append(Outcome(campaign, found, chosen))
    base = Result(
        property="",
        engine=ENGINE,
        verdict=Verdict.HOLDS_WITHIN,
        required=required,
        cell=campaigns[0].cell,
        scope="; ".join(each.scope for each in outcomes),
    )
    violated = tuple(_violated(base, outcomes))
    # Findings cut runs short, but for those that are not required: what such runs did not meet says nothing.
    cut_short = any(is_required(result.property) for result in violated)
    events = () if cut_short else _events(base, outcomes, needs_events)
    return (*violated, *_held(base, outcomes), *events)


@attrs.frozen
class Outcome:
    """All runs of one campaign, and what was found in them."""

    campaign: Campaign
    findings: tuple[tuple[Signature, Trace], ...]
    seed: int

    @property
    def scope(self) -> str:
        campaign = self.campaign
        needed = rules_of(campaign.eviction, campaign.features)
        fired = len(needed & set(campaign.fired))
        kinds = f"all {fired} kinds" if fired == len(needed) else f"{fired} of {len(needed)} kinds"
        sampled = f"{campaign.runs} runs with {campaign.actions} actions of {kinds}"
        return f"{sampled}, {campaign.words}, seed {self.seed}"


def _violated(base: Result, outcomes: list[Outcome]) -> Iterator[Result]:
    """What was found, in the class of its trace: a campaign may draw others than that of its cell."""
    for each in outcomes:
        for (property, case), trace in each.findings:
            yield attrs.evolve(
                about(base, property),
                cell=attrs.evolve(each.campaign.cell, configuration_class=trace.configuration.configuration_class),
                case=case,
                verdict=Verdict.VIOLATED,
                scope=each.scope,
                reason=trace.title,
                trace=trace,
            )


def _held(base: Result, outcomes: list[Outcome]) -> Iterator[Result]:
    """Checked properties without a finding; vacuous if a rule never fired."""
    violated = {property for each in outcomes for (property, _), _ in each.findings}
    idle = {
        rule
        for each in outcomes
        for rule in rules_of(each.campaign.eviction, each.campaign.features) - set(each.campaign.fired)
    }
    for invariant in INVARIANTS.values():
        if invariant.status is Status.CHECKED and invariant.id not in violated:
            held = about(base, invariant.id)
            if idle:
                reason = f"these rules never fired: {', '.join(sorted(idle))}"
                held = attrs.evolve(held, verdict=Verdict.VACUOUS, reason=reason)
            yield held


def _events(base: Result, outcomes: list[Outcome], needed: bool) -> Iterator[Result]:
    """Events that had to be reached under at least one eviction mode to which they apply."""
    met = sum((each.campaign.met for each in outcomes), Counter[str]())
    for name in sorted(set().union(*(_applicable(each.campaign) for each in outcomes))):
        result = attrs.evolve(base, property=name, required=needed, detail={"kind": "sometimes", "times": met[name]})
        if not met[name]:
            result = attrs.evolve(result, verdict=Verdict.VACUOUS, reason="never happened in these runs; run more")
        yield result


def findings(campaign: Campaign, profile: Profile, seed: int) -> tuple[tuple[Signature, Trace], ...]:
    """Run the campaign: each finding with the smallest trace that was found for it.

    Further series of runs follow while they find something new that is required, or until every rule has fired and
    every event was met, as many as the profile allows.
    """
    rules = rules_of(campaign.eviction, campaign.features)
    needed = _applicable(campaign) if profile.needs_events else frozenset()
    for number in range(profile.series):
        known = _required(campaign)
        run_series(machine_for(campaign), profile, seed + number)
        found = _required(campaign)
        enough = rules <= campaign.fired.keys() and needed <= campaign.met.keys()
        if found == known and (found or enough):
            break
    return tuple(
        (signature, _smallest(campaign.policy, signature, "", examples))
        for signature, examples in campaign.found.items()
    )


def _required(campaign: Campaign) -> set[Signature]:
    """What was found so far that counts."""
    return {signature for signature in campaign.found if is_required(signature[0])}


def seek(campaign: Campaign, sought: Signature, profile: Profile, seed: int) -> Trace | None:
    """Run the campaign, whatever else it finds, until `sought` was found; without a case in it, in any case."""
    for number in range(profile.series):
        run_series(machine_for(campaign), profile, seed + number)
        for found, examples in campaign.found.items():
            if found[0] == sought[0] and sought[1] in (None, found[1]):
                return _smallest(campaign.policy, found, campaign.says, examples)
    return None


def run_series(machine: type[EngineMachine], profile: Profile, seed: int) -> None:
    """One series of runs of `machine`."""
    settings = hypothesis.settings(
        max_examples=profile.runs,
        stateful_step_count=profile.actions,
        database=None,
        deadline=None,
        print_blob=False,
        suppress_health_check=list(hypothesis.HealthCheck),
        # Nothing fails in a run: findings are noted, and shrunk by replaying them, far cheaper than drawing them again.
        phases=(hypothesis.Phase.generate,),
    )
    with hypothesis.reporting.with_reporter(lambda _: None), repeatable_draws(), varied_draws(profile.varied):
        run_state_machine_as_test(hypothesis.seed(seed)(machine), settings=settings)


def _applicable(campaign: Campaign) -> frozenset[str]:
    """Events that the campaign has to meet: with features, those that only they bring about."""
    plain = Setting(campaign.policy, campaign.cell.configuration_class, campaign.eviction)
    if not campaign.features:
        return applicable_events(plain)
    return applicable_events(attrs.evolve(plain, features=campaign.features)) - applicable_events(plain)


def _smallest(policy: Policy, signature: Signature, says: str, examples: list[Trace]) -> Trace:
    """The smallest of the minimised examples; each violates the same again when it is replayed."""

    def told(candidate: Trace) -> tuple[Violation, ...]:
        try:
            return replay(candidate, policy).violations
        except IllegalAction:
            return ()

    def as_sought(violation: Violation) -> bool:
        return (violation.property, violation.case) == signature and says in violation.message

    minimal = min((minimise(example, lambda each: any(map(as_sought, told(each)))) for example in examples), key=size)
    violated = told(minimal)
    names = tuple(sorted({violation.property for violation in violated}))
    return attrs.evolve(
        minimal,
        title=next(violation.message for violation in violated if as_sought(violation)),
        source=ENGINE,
        expectations=(Expectation(policy.name, violates=names),),
    )
