"""The whole: scheduler side and worker side together, moved by actions. Start reading here.

`apply` is the one transition function: the fuzzer, the replay of traces and the search all call it.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from model import output, saving
from model import scheduler as scheduling
from model import worker as working
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
    Preempt,
    Reset,
    Schedule,
    Step,
)
from model.admission import Admission, Decision
from model.configuration import Configuration, Eviction
from model.connector import leaves_of
from model.errors import IllegalAction
from model.execution import Execution
from model.loading import lacks_objects, writes_of
from model.objects import evict_object, reset_stores
from model.plan import Load, Save, StepPlan
from model.policy import Policy
from model.pool import Label
from model.recovery import recover
from model.request import Request, Status
from model.reservation import Allotment, most_blocks
from model.scheduler import Scheduler
from model.speculation import with_drafts_verified
from model.step import schedule
from model.store_rules import MissingObject
from model.tokens import Prefix, tokens_of
from model.values import evolve
from model.worker import Worker


@attrs.frozen(slots=False)
class System:
    """A state of the engine. `texts` keeps the tokens of every request that ever was, to name prefixes by.

    `assertion` is set once the engine's own assertion has failed: nothing can happen any more.
    """

    configuration: Configuration
    scheduler: Scheduler
    worker: Worker
    texts: Mapping[str, Prefix] = attrs.Factory(dict)
    assertion: str = ""


@attrs.frozen(slots=False)
class Observation:
    """One action, or one step of it, as the properties see it.

    Where a step was scheduled: its plan (`planned`), the admissions, the requests that were put off for a state that is
    not written yet, whose connector did not know (`asked_again`), and that were preempted, with those whose chunk was
    `taken_out` of the step for it, and in `allotments` the blocks that were estimated and taken for requests. Where one
    was executed: its plan, its execution, the admissions that it `started`, the requests that a failed load rolled
    back, and the saves: those that were `flushed` before the step, or a load, wrote anything, and those `saved` after
    it, or by the action. With several steps in flight these are different actions.
    """

    action: Action
    before: System
    after: System
    planned: StepPlan | None = None
    plan: StepPlan | None = None
    execution: Execution | None = None
    admissions: tuple[Admission, ...] = ()
    put_off: tuple[str, ...] = ()
    asked_again: tuple[str, ...] = ()
    preempted: tuple[str, ...] = ()
    taken_out: tuple[str, ...] = ()
    started: tuple[Admission, ...] = ()
    rolled_back: tuple[str, ...] = ()
    allotments: tuple[Allotment, ...] = ()
    flushed: tuple[Save, ...] = ()
    saved: tuple[Save, ...] = ()

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """What was decided about each request that the step admitted."""
        return tuple(admission.decision for admission in self.admissions)


def initial(configuration: Configuration) -> System:
    """The engine with an empty cache and no requests."""
    return System(configuration, scheduling.new_scheduler(configuration), working.new_worker(configuration))


def apply(system: System, policy: Policy, action: Action) -> tuple[System, tuple[Observation, ...]]:
    """Let `action` happen; one observation, except for Drain, which gives one per step. Raises IllegalAction."""
    if system.assertion:
        raise IllegalAction(f"the engine's assertion failed before ({system.assertion}); nothing can follow it")
    match action:
        case Step():
            after, observation = _step(system, policy, action)
            return after, (observation,)
        case Schedule():
            after, observation = _schedule(system, policy, action)
            return after, (observation,)
        case Execute():
            after, observation = _execute(system, action)
            return after, (observation,)
        case Drain():
            return _drain(system, policy, action)
        case EndSaves():
            after, saved = _end_saves(system, action)
            return after, (Observation(action, system, after, saved=saved),)
        case Arrive():
            after = _arrive(system, action)
        case Evict():
            after = _evict(system, action)
        case EvictObject():
            scheduler, worker = evict_object(system.scheduler, system.worker, system.texts, action)
            after = evolve(system, scheduler=scheduler, worker=worker)
        case EndLoad():
            after, flushed = _end_load(system, action)
            return after, (Observation(action, system, after, flushed=flushed),)
        case Abort():
            _request(system, action.request)
            after = evolve(system, scheduler=scheduling.abort(system.scheduler, action.request))
        case Preempt():
            if not system.scheduler.running:
                raise IllegalAction("nothing is running that could be preempted")
            after = _preempt_last(system)
        case Reset():
            after = _reset(system)
    return after, (Observation(action, system, after),)


def _request(system: System, name: str) -> Request:
    request = system.scheduler.requests.get(name)
    if request is None or request.status is Status.ABORTED_LOADING:
        raise IllegalAction(f"there is no request {name!r} now; it has ended or has not arrived")
    return request


def _arrive(system: System, action: Arrive) -> System:
    configuration = system.configuration
    if action.request in system.texts:
        raise IllegalAction(f"a request {action.request!r} has arrived before; use another name")
    prompt, output = tokens_of(action.prompt), tokens_of(action.output)
    if not prompt or not output:
        raise IllegalAction(f"request {action.request!r} needs at least one prompt token and one output token")
    leaves = tuple(leaves_of(configuration.connector)) if configuration.connector else ()
    known = {leaf.name for leaf in leaves if leaf.store is None}
    for answers in action.answers:
        if answers.leaf not in known or not answers.answers:
            raise IllegalAction(
                f"answers of leaf {answers.leaf!r}: the leaves with a script are {sorted(known)}, each with answers"
            )
    most = most_blocks(configuration, len(prompt) + len(output))
    if most > configuration.pool_blocks - 1:
        raise IllegalAction(
            f"request {action.request!r} may need {most} blocks alone, the pool has {configuration.pool_blocks - 1}"
        )
    request = Request(
        name=action.request,
        tokens=prompt,
        prompt_length=len(prompt),
        unsampled=output,
        answers={answers.leaf: answers.answers for answers in action.answers},
        asked={},
        skip_reading=action.skip_reading,
        priority=action.priority,
    )
    scheduler = system.scheduler.with_request(request)
    waiting = scheduling.in_turn(scheduler, (*scheduler.waiting, request.name))
    return evolve(
        system,
        scheduler=evolve(scheduler, waiting=waiting),
        texts={**system.texts, request.name: prompt + output},
    )


def _step(system: System, policy: Policy, action: Step | Drain) -> tuple[System, Observation]:
    if system.scheduler.in_flight:
        raise IllegalAction("steps are in flight; use schedule and execute, or drain")
    system, scheduled = _schedule(system, policy, action)
    system, executed = _execute(system, action)
    observation = evolve(
        scheduled,
        after=system,
        plan=executed.plan,
        execution=executed.execution,
        started=executed.started,
        rolled_back=executed.rolled_back,
        flushed=executed.flushed,
        saved=executed.saved,
    )
    return system, observation


def _schedule(system: System, policy: Policy, action: Step | Schedule | Drain) -> tuple[System, Observation]:
    configuration = system.configuration
    if len(system.scheduler.in_flight) >= configuration.steps_in_flight:
        raise IllegalAction(f"{configuration.steps_in_flight} steps are in flight already; execute one first")
    if isinstance(action, Schedule) and configuration.steps_in_flight == 1:
        raise IllegalAction("with one step in flight a step is scheduled and executed at once; use step")
    budget = configuration.budget if action.budget is None else action.budget
    planned = schedule(system.scheduler, policy, budget)
    assertion = planned.assertion or scheduling.second_report(system.scheduler)
    after = evolve(system, scheduler=planned.scheduler, assertion=assertion)
    observation = Observation(
        action=action,
        before=system,
        after=after,
        planned=planned.plan,
        admissions=planned.admissions,
        put_off=planned.put_off,
        asked_again=planned.asked_again,
        preempted=planned.preempted,
        taken_out=planned.taken_out,
        allotments=planned.allotments,
    )
    return after, observation


def _execute(system: System, action: Step | Execute | Drain) -> tuple[System, Observation]:
    if not system.scheduler.in_flight:
        raise IllegalAction("no step is in flight; schedule one first")
    step = system.scheduler.in_flight[0]
    loads = tuple(_failing(load, action, system.worker) for load in step.plan.loads)
    plan = with_drafts_verified(evolve(step.plan, loads=loads), action, system.texts)
    step = evolve(step, plan=plan)
    plan = working.as_run(system.configuration, system.worker, step.plan, system.texts)
    announced = (load for admission in step.admissions for load in admission.loads)
    scheduler, flushed = saving.before_step(system.scheduler, plan, announced)
    worker, execution = working.execute(system.configuration, working.save(system.worker, flushed), plan)
    scheduler, sampled = output.settle(scheduler, step)
    recovered = recover(scheduler, step)
    scheduler, saved = saving.announce(recovered.scheduler, step.plan.saves, recovered.rolled_back)
    worker = working.save(worker, saved)
    if not recovered.assertion:
        kept = {name: tokens for name, tokens in sampled.items() if name not in recovered.rolled_back}
        scheduler = output.sample(scheduler, kept)
    assertion = system.assertion or recovered.assertion
    after = evolve(system, scheduler=scheduler, worker=worker, assertion=assertion)
    observation = Observation(
        action=action,
        before=system,
        after=after,
        plan=plan,
        execution=execution,
        started=step.admissions,
        rolled_back=recovered.rolled_back,
        flushed=flushed,
        saved=saved,
    )
    return after, observation


def _failing(load: Load, action: Step | Execute | Drain, worker: Worker) -> Load:
    """The load with what `action` says of its failure; one that lacks an object fails in any case."""
    if isinstance(action, Drain):
        return evolve(load, fails=lacks_objects(load, worker.objects))
    blocks = tuple((block.group, block.column) for block in action.failed_blocks if block.request == load.request)
    fails = load.request in action.failed_loads or lacks_objects(load, worker.objects)
    return evolve(load, fails=fails, failed_blocks=blocks)


def _drain(system: System, policy: Policy, action: Drain) -> tuple[System, tuple[Observation, ...]]:
    observations: list[Observation] = []
    while system.scheduler.in_flight:
        system, observation = _execute(system, action)
        observations.append(observation)
    tokens = sum(len(system.texts[name]) for name in system.scheduler.requests)
    for _ in range(4 * tokens + 4):
        system, observation = _step(system, policy, action)
        observations.append(observation)
        assert observation.plan is not None
        idle = not observation.plan.chunks and not observation.admissions and not observation.preempted
        if idle or system.assertion:
            return system, tuple(observations)
    raise IllegalAction("the requests do not come to rest; use single steps")


def _evict(system: System, action: Evict) -> System:
    if system.configuration.eviction is not Eviction.ADVERSARIAL:
        raise IllegalAction("evict is for adversarial eviction; under LRU only the free queue evicts")
    prefix = system.texts.get(action.request, ())[: action.boundary]
    pool = system.scheduler.pool
    block = pool.find(Label(action.group, prefix))
    if block is None or len(prefix) != action.boundary:
        raise IllegalAction(
            f"group {action.group} has nothing cached for {action.boundary} tokens of {action.request!r}"
        )
    if pool.refs[block]:
        raise IllegalAction(f"block {block} is referenced and cannot be evicted")
    return evolve(system, scheduler=evolve(system.scheduler, pool=pool.unpublish((block,))))


def _end_saves(system: System, action: EndSaves) -> tuple[System, tuple[Save, ...]]:
    store = system.scheduler.stores.get(action.leaf)
    if store is None:
        raise IllegalAction(f"{action.leaf!r} keeps no objects: it has no saves")
    scheduler = saving.done(system.scheduler, store.pending)
    worker = working.save(system.worker, store.pending)
    return evolve(system, scheduler=scheduler, worker=worker), store.pending


def _end_load(system: System, action: EndLoad) -> tuple[System, tuple[Save, ...]]:
    request = system.scheduler.requests.get(action.request)
    if request is None or request.status not in (Status.LOADING, Status.ABORTED_LOADING):
        raise IllegalAction(f"request {action.request!r} has no load under way")
    if any(not load.comes for load in request.loads):
        raise IllegalAction(f"the load of {action.request!r} never ends: its peer has sent everything before")
    lacking = [load for load in request.loads if action.succeeded and lacks_objects(load, system.worker.objects)]
    for load in lacking:
        if load.leaf.store is None or load.leaf.store.missing_object is MissingObject.LOAD_FAILS:
            raise IllegalAction(f"the load of {action.request!r} cannot succeed: an object that it fetches is gone")
        promised = f"{load.leaf.name} promised [{load.start}, {load.end}) to {action.request}, and objects are gone"
        return evolve(system, assertion=promised), ()
    ended = [evolve(load, fails=not action.succeeded) for load in request.loads]
    written = {write.block for load in ended for write in writes_of(system.configuration, load, system.worker.objects)}
    scheduler, flushed = saving.before_load(system.scheduler, written, request.loads)
    worker = working.save(system.worker, flushed)
    for load in request.loads:
        worker = working.end_load(system.configuration, worker, load, action.succeeded)
    scheduler = scheduling.end_load(scheduler, action.request, action.succeeded)
    # The step that announced the load may still be in flight: it does not wipe what is loaded by then.
    in_flight = tuple(step.without_wiping(written) for step in scheduler.in_flight)
    return evolve(system, scheduler=evolve(scheduler, in_flight=in_flight), worker=worker), flushed


def _preempt_last(system: System) -> System:
    return evolve(system, scheduler=scheduling.preempt(system.scheduler, system.scheduler.running[-1]))


def _reset(system: System) -> System:
    while system.scheduler.running:
        last = system.scheduler.running[-1]
        scheduler = scheduling.preempt(system.scheduler, last, drop_output=True)
        system = evolve(system, scheduler=scheduler)
    pool = system.scheduler.pool
    if any(pool.refs):
        raise IllegalAction(
            "the prefix cache cannot be reset while loads, or steps in flight, hold blocks (vLLM raises here as well)"
        )
    emptied = pool.unpublish(block for block, label in enumerate(pool.labels) if label is not None)
    scheduler, worker = reset_stores(evolve(system.scheduler, pool=emptied, outputs=frozenset()), system.worker)
    return evolve(system, scheduler=scheduler, worker=worker)
