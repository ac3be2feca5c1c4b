"""The rule-based state machine over the whole model: every rule is an action, every action is judged.

Hypothesis chooses configuration and actions; the machine keeps the trace, so that what it finds can be replayed.
"""

from __future__ import annotations

from collections import Counter

import attrs
import hypothesis.stateful
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from model.actions import (
    Abort,
    Action,
    Arrive,
    Drain,
    EndLoad,
    EndSaves,
    Evict,
    EvictObject,
    Execute,
    FailedBlock,
    Preempt,
    RejectedDrafts,
    Reset,
    Schedule,
    Step,
)
from model.configuration import Configuration, Eviction, Scheduling
from model.connector import Connector, Leaf
from model.errors import IllegalAction
from model.plan import Load
from model.policy import Policy
from model.release import NEWEST, Release
from model.request import Status
from model.speculation import drafts_of
from model.system import Observation, System, apply, initial
from model.tokens import Segment, begins
from model.trace import Trace
from properties.features import Feature
from properties.invariant import Violation
from properties.invariants.content import mislabelled, mislabelled_saves
from properties.judge import events, violations
from properties.policy_guard import PolicyRaised
from properties.requirements import concerns
from properties.strategies import answers, configurations, cut, longest_text, most_output, prompts
from properties.twin import TwinState, disagreement, end_load, execute, forget, new_twin, save
from properties.verdict import Case, Cell

_RARELY = st.sampled_from([False, False, True])
_PRIORITIES = st.sampled_from([1, 0, 2])

MOST_REQUESTS = 6
"""Requests that arrive in one run."""

EXAMPLES = 4
"""Traces of one finding that are kept: the one that is smallest once minimised is reported."""

Signature = tuple[str, Case | None]
"""What makes two violations the same finding: the property and the case."""


@attrs.define
class Campaign:
    """What a series of runs explores, with which features, and what it has met so far. With `says`, only violations
    count whose message contains it.

    Every configuration that is drawn follows the rules of `release` and has the `connector`, if one is given. `found`
    keeps the first EXAMPLES traces of each finding. `fired` counts rules and `met` events, `runs` and `actions`
    themselves.
    """

    policy: Policy
    cell: Cell
    eviction: Eviction
    fixed_leaf: Leaf | None = None
    features: frozenset[Feature] = frozenset()
    release: Release = NEWEST
    connector: Connector | None = None
    says: str = ""
    found: dict[Signature, list[Trace]] = attrs.Factory(dict)
    fired: Counter[str] = attrs.Factory(Counter)
    met: Counter[str] = attrs.Factory(Counter)
    runs: int = 0
    actions: int = 0

    @property
    def words(self) -> str:
        """How blocks are evicted, and what is drawn beyond the plain model."""
        drawn = f" with {', '.join(sorted(feature.value for feature in self.features))}" if self.features else ""
        return f"{self.eviction.value} eviction{drawn}"


class TwinDisagreement(Exception):
    """Shadow memory and numeric twin judge a step differently: one of the two is wrong, and no verdict can be given."""


class EngineMachine(hypothesis.stateful.RuleBasedStateMachine):
    """One run of the engine. `campaign` is set by the subclass that `machines.machine_for` makes."""

    campaign: Campaign

    def __init__(self) -> None:
        super().__init__()
        self.configuration: Configuration | None = None
        self.system: System | None = None
        self.actions: list[Action] = []
        self.texts: dict[str, tuple[Segment, ...]] = {}
        self.twin: TwinState
        self.over = False

    @initialize(data=st.data())
    def configure(self, data: st.DataObject) -> None:
        campaign = self.campaign
        drawn = configurations(campaign.cell, campaign.eviction, campaign.fixed_leaf, campaign.features)
        configuration = data.draw(drawn)
        rules = campaign.release
        if configuration.checkpoint_alignment is not None:
            own = configuration.release
            rules = attrs.evolve(
                rules, checkpoint_start=own.checkpoint_start, unreserved_checkpoint=own.unreserved_checkpoint
            )
        configuration = attrs.evolve(configuration, release=rules)
        if campaign.connector is not None:
            configuration = attrs.evolve(configuration, connector=campaign.connector)
        self.configuration = configuration
        self.system = initial(self.configuration)
        self.twin = new_twin(self.configuration)
        campaign.runs += 1

    def _act(self, action: Action) -> None:
        """Let `action` happen, judge it, and let the numeric twin do the same."""
        assert self.system is not None
        assert self.configuration is not None
        try:
            after, observations = apply(self.system, self.campaign.policy, action)
        except IllegalAction:
            return
        except PolicyRaised as raised:
            self.over = True
            self.actions.append(action)
            self._note(Violation("POLICY-TOTAL", None, str(raised)))
            return
        self.system = after
        self.actions.append(action)
        self.campaign.actions += 1
        self.campaign.fired[type(action).__name__] += 1
        self.over = bool(after.assertion)
        for observation in observations:
            self._follow(observation)
            self.campaign.met.update(events(observation))
            found = violations(observation)
            for violation in found:
                self._note(violation)
            if found and has_gone_wrong(observation):
                self.over = True
                return

    def _note(self, violation: Violation) -> None:
        """Keep the run so far as an example of what it violates."""
        assert self.configuration is not None
        if self.campaign.says not in violation.message or not concerns(self.campaign.policy, violation.case):
            return
        examples = self.campaign.found.setdefault((violation.property, violation.case), [])
        if len(examples) < EXAMPLES:
            examples.append(Trace(violation.message, self.configuration, tuple(self.actions)))

    def _follow(self, observation: Observation) -> None:
        """The numeric twin does the same; it must differ from a run without a cache exactly where a read was bad."""
        configuration = observation.after.configuration
        self.twin = save(self.twin, observation.flushed)
        if isinstance(observation.action, EndLoad) and not observation.after.assertion:
            for load in observation.before.scheduler.requests[observation.action.request].loads:
                self.twin = end_load(configuration, self.twin, load, observation.action.succeeded)
        if observation.plan is not None and observation.execution is not None:
            self.twin, outputs = execute(configuration, self.twin, observation.plan)
            flagged = {read.request for read in observation.execution.bad_reads}
            differences = disagreement(configuration, observation.plan, outputs, flagged)
            if differences:
                raise TwinDisagreement("; ".join(differences))
        if observation.saved or self.twin.objects:
            self.twin = forget(save(self.twin, observation.saved), observation.after.worker.objects.keys())

    @property
    def _alive(self) -> bool:
        return self.system is not None and not self.over

    @property
    def _requests(self) -> list[str]:
        return list(self.system.scheduler.requests) if self.system is not None else []

    def _with_status(self, *statuses: Status) -> list[str]:
        if self.system is None:
            return []
        requests = self.system.scheduler.requests
        return [name for name, request in requests.items() if request.status in statuses]

    @property
    def _can_arrive(self) -> bool:
        return self._alive and len(self.texts) < MOST_REQUESTS

    def _rarely(self, kind: type[Action]) -> bool:
        """What ends a promising run early may happen once, after a few actions."""
        return len(self.actions) >= 5 and not any(isinstance(action, kind) for action in self.actions)

    @precondition(lambda self: self._can_arrive)
    @rule(data=st.data())
    def arrive(self, data: st.DataObject) -> None:
        """A request arrives, mostly one that shares a prefix with an earlier one."""
        assert self.configuration is not None
        number = len(self.texts) + 1
        prompt = data.draw(prompts(self.configuration, tuple(self.texts.values()), f"t{number}"))
        output = (Segment(f"o{number}", data.draw(st.integers(1, most_output(self.configuration)))),)
        self.texts[f"r{number}"] = prompt + output
        skips = Feature.SKIPPED_READING in self.campaign.features and data.draw(_RARELY)
        answered = data.draw(answers(self.configuration))
        priority = data.draw(_PRIORITIES) if self.configuration.scheduling is Scheduling.PRIORITY else 0
        self._act(Arrive(f"r{number}", prompt, output, answered, skips, priority))

    @precondition(lambda self: self._can_arrive)
    @rule(data=st.data())
    def arrive_in_the_same_step(self, data: st.DataObject) -> None:
        """Two requests that may be admitted in one step."""
        self.arrive(data)
        if self._can_arrive:
            self.arrive(data)

    @precondition(lambda self: self._requests or not self._can_arrive)
    @rule()
    def step(self) -> None:
        """One step; also what remains to be done when nothing else is possible."""
        self._step()

    def _step(self) -> None:
        if self._alive:
            self._act(Execute() if self._in_flight else Step())

    @property
    def _in_flight(self) -> int:
        return 0 if self.system is None else len(self.system.scheduler.in_flight)

    @property
    def _may_schedule_ahead(self) -> bool:
        return self.configuration is not None and max(1, self._in_flight) < self.configuration.steps_in_flight

    @property
    def _loads_in_flight(self) -> bool:
        return self.system is not None and any(step.plan.loads for step in self.system.scheduler.in_flight)

    @precondition(lambda self: self._alive and (self._with_status(Status.WAITING) or self._loads_in_flight))
    @rule()
    def step_with_failing_loads(self) -> None:
        """A step in which every synchronous load fails, or of each only the last block."""
        assert self.system is not None
        while self._alive and self._may_schedule_ahead:
            self._act(Schedule())
        try:
            step = Execute() if self._in_flight else Step()
            _, observations = apply(self.system, self.campaign.policy, step)
        except PolicyRaised:
            return
        plan = observations[0].plan
        loads = plan.loads if plan is not None else ()
        if not loads:
            return
        if Feature.FAILED_BLOCKS in self.campaign.features and len(self.actions) % 2:
            self._act(attrs.evolve(step, failed_blocks=tuple(map(self._last_block, loads))))
        else:
            self._act(attrs.evolve(step, failed_loads=tuple(sorted({load.request for load in loads}))))

    def _last_block(self, load: Load) -> FailedBlock:
        """The block at the end of the load in one of the groups."""
        assert self.configuration is not None
        index = len(self.actions) // 2 % len(self.configuration.groups)
        return FailedBlock(load.request, index, load.columns(index, self.configuration.groups[index])[-1])

    @precondition(lambda self: self._alive and self._requests)
    @rule()
    def drain(self) -> None:
        self._act(Drain())

    @precondition(lambda self: self._alive and self.campaign.eviction is Eviction.ADVERSARIAL and self._evictable())
    @rule(data=st.data())
    def evict(self, data: st.DataObject) -> None:
        self._act(data.draw(st.sampled_from(self._evictable())))

    @precondition(lambda self: self._alive and self.campaign.eviction is Eviction.ADVERSARIAL and self._evictable())
    @rule()
    def evict_attention(self) -> None:
        """The deepest attention block goes, so that recurrent states may lie deeper than attention."""
        assert self.configuration is not None
        groups = self.configuration.groups
        attention = [evict for evict in self._evictable() if not groups[evict.group].recurrent]
        if attention:
            self._act(max(attention, key=lambda evict: evict.boundary))

    def _evictable(self) -> list[Evict]:
        assert self.system is not None
        pool = self.system.scheduler.pool
        return [
            Evict(label.group, request, len(label.prefix))
            for label, blocks in pool.cached.items()
            if not pool.refs[blocks[0]]
            for request in (self._spelling(label.prefix),)
            if request is not None
        ]

    @precondition(lambda self: self._alive and self._objects())
    @rule(data=st.data())
    def evict_object(self, data: st.DataObject) -> None:
        """A store loses one object, or one of two ranks its part, whatever else it has of the same prefix."""
        self._act(attrs.evolve(data.draw(st.sampled_from(self._objects())), rank=len(self.actions) % 2))

    @precondition(lambda self: self._can_arrive and self.campaign.eviction is Eviction.ADVERSARIAL and self._objects())
    @rule(data=st.data())
    def arrive_at_objects(self, data: st.DataObject) -> None:
        """The pool loses all beyond a boundary, a store perhaps the last object of a group, and an earlier text comes
        again, mostly with a token more."""
        assert self.configuration is not None
        beyond = data.draw(st.sampled_from([0, *sorted({evict.boundary for evict in self._evictable()})]))
        for evict in self._evictable():
            if evict.boundary > beyond:
                self._act(evict)
        for group, from_end in data.draw(st.sampled_from(self._losing)):
            of_group = sorted((evict for evict in self._objects() if evict.group == group), key=lambda e: e.boundary)
            if len(of_group) >= from_end:
                self._act(of_group[-from_end])
        number = len(self.texts) + 1
        shared = cut(data.draw(st.sampled_from(list(self.texts.values()))), longest_text(self.configuration) - 2)
        prompt = (*shared, Segment(f"t{number}", 1))
        if data.draw(_RARELY):
            length = sum(segment.length for segment in shared)
            unit = self.configuration.scheduler_block
            prompt = cut(shared, max(unit, length - length % unit))
        output = (Segment(f"o{number}", 1),)
        self.texts[f"r{number}"] = prompt + output
        self._act(Arrive(f"r{number}", prompt, output))
        self._act(Step())

    @property
    def _losing(self) -> list[tuple[tuple[int, int], ...]]:
        """Groups that lose an object, counted from the end: none, the last of one or of two, or the last of the first
        group and the last but one of the last: then the first may reach a boundary that the other lacks."""
        assert self.configuration is not None
        groups = range(len(self.configuration.groups))
        alike, apart = (((groups[0], 1), (groups[-1], from_end)) for from_end in (1, 2))
        return [(), *(((group, 1),) for group in groups), alike, apart, apart]

    @precondition(lambda self: self._alive and self._saving())
    @rule(data=st.data())
    def end_saves(self, data: st.DataObject) -> None:
        self._act(EndSaves(data.draw(st.sampled_from(self._saving()))))

    def _saving(self) -> list[str]:
        assert self.system is not None
        return [name for name, store in self.system.scheduler.stores.items() if store.pending]

    def _objects(self) -> list[EvictObject]:
        assert self.system is not None
        return [
            EvictObject(leaf, label.group, request, len(label.prefix))
            for leaf, label in self.system.worker.objects
            for request in (self._spelling(label.prefix),)
            if request is not None
        ]

    def _spelling(self, prefix: tuple[str, ...]) -> str | None:
        assert self.system is not None
        return next((name for name, text in self.system.texts.items() if begins(prefix, text)), None)

    @precondition(lambda self: self._alive and self._with_status(Status.LOADING, Status.ABORTED_LOADING))
    @rule(data=st.data(), succeeded=st.sampled_from([True, False]))
    def end_load(self, data: st.DataObject, succeeded: bool) -> None:
        loading = self._with_status(Status.LOADING, Status.ABORTED_LOADING)
        self._act(EndLoad(data.draw(st.sampled_from(loading)), succeeded))

    @precondition(lambda self: self._alive and self._rarely(Abort) and self._living)
    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        self._act(Abort(data.draw(st.sampled_from(self._living))))

    @property
    def _living(self) -> list[str]:
        return self._with_status(*(status for status in Status if status is not Status.ABORTED_LOADING))

    @precondition(lambda self: self._alive and self._rarely(Preempt) and self._with_status(Status.RUNNING))
    @rule()
    def preempt(self) -> None:
        self._act(Preempt())

    @precondition(lambda self: self._alive and self._rarely(Reset) and self.system.scheduler.pool.cached)
    @rule()
    def reset(self) -> None:
        self._act(Reset())


class InFlightMachine(EngineMachine):
    """A run in which steps may be scheduled ahead; other campaigns draw as if these rules did not exist."""

    @precondition(lambda self: self._alive and self._requests and self._may_schedule_ahead)
    @rule()
    def schedule(self) -> None:
        """A step is planned, and executed later."""
        self._act(Schedule())

    @precondition(lambda self: self._can_arrive and self._requests and self._may_schedule_ahead)
    @rule(data=st.data())
    def arrive_between_steps(self, data: st.DataObject) -> None:
        """A request arrives between two steps that are in flight together."""
        self._act(Schedule())
        self.arrive(data)
        if self._alive and self._may_schedule_ahead:
            self._act(Schedule())

    @precondition(
        lambda self: self._can_arrive and self._in_flight and self._may_schedule_ahead and self._loads_in_flight
    )
    @rule(data=st.data())
    def abort_in_flight(self, data: st.DataObject) -> None:
        """A request is aborted while a step that loads for it is in flight; the next one may get its blocks."""
        assert self.system is not None
        loading = [load.request for step in self.system.scheduler.in_flight for load in step.plan.loads]
        if loading[-1] not in self._living:
            return
        self._act(Abort(loading[-1]))
        self.arrive(data)
        self._act(Schedule())


class SpeculationMachine(EngineMachine):
    """A run in which steps may verify drafts."""

    @precondition(lambda self: self._alive and any(self._drafts.values()))
    @rule(data=st.data())
    def reject_drafts(self, data: st.DataObject) -> None:
        """A step in which some drafts are wrong; in others all are right, as far as the output goes."""
        wrong = [
            RejectedDrafts(name, data.draw(st.integers(0, drafts))) for name, drafts in self._drafts.items() if drafts
        ]
        rejected = tuple(each for each in wrong if each.drafts)
        self._act(Execute(rejected=rejected) if self._in_flight else Step(rejected=rejected))

    @property
    def _drafts(self) -> dict[str, int]:
        """Drafts that the next step to be executed verifies."""
        assert self.system is not None
        scheduler = self.system.scheduler
        if scheduler.in_flight:
            return drafts_of(scheduler.in_flight[0].plan)
        return {name: request.drafts for name, request in scheduler.requests.items()}


def has_gone_wrong(observation: Observation) -> bool:
    """Whether something wrong was computed, cached or stored: what follows would only be its consequence."""
    computed = observation.execution.chunks if observation.execution is not None else ()
    if any(not chunk.sound for chunk in computed) or mislabelled(observation.after):
        return True
    return any(mislabelled_saves(observation))


def rules_of(eviction: Eviction, features: frozenset[Feature]) -> frozenset[str]:
    """Actions that a campaign under `eviction` with `features` has to have fired, each at least once."""
    kinds: set[type[Action]] = {Arrive, Step, Drain, EndLoad, Abort, Preempt, Reset}
    if eviction is Eviction.ADVERSARIAL:
        kinds.add(Evict)
    if Feature.STORES in features:
        kinds |= {EvictObject, EndSaves}
    if Feature.STEPS_IN_FLIGHT in features:
        kinds |= {Schedule, Execute}
    return frozenset(kind.__name__ for kind in kinds)
