"""A run in words, one entry per action: only what changed, with the numbers."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from hitbound.wrapping import wrapped
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
from model.admission import Decision
from model.configuration import Configuration, Group, Scheduling
from model.connector import Leaf, leaves_of
from model.plan import Chunk, Load
from model.pool import Label
from model.system import Observation
from model.tokens import Prefix, Segment, begins
from properties import wording


def by_action(observations: Iterable[Observation]) -> list[tuple[Observation, ...]]:
    """The observations of each action together: a drain has one per step."""
    entries: list[tuple[Observation, ...]] = []
    for observation in observations:
        same = entries and isinstance(observation.action, Drain) and entries[-1][-1].action is observation.action
        if same:
            entries[-1] = (*entries[-1], observation)
        else:
            entries.append((observation,))
    return entries


def numbered(number: int, observations: Sequence[Observation], width: int) -> list[str]:
    """One action: its number and what it was, and below it what it changed."""
    lines = [f"{number:>2}. {title_of(observations)}", *(f"      {change}" for change in changes_of(observations))]
    return [part for line in lines for part in wrapped(line, width)]


def _group_sizes(group: Group) -> str:
    return f"block {group.block}" + "".join(
        (
            f", window {group.window}" if group.window else "",
            f", chunk {group.chunk}" if group.chunk else "",
            ", of the draft model" if group.draft else "",
            f", on {group.ranks} ranks together" if group.ranks > 1 else "",
        )
    )


def configuration_line(configuration: Configuration) -> str:
    """Groups, sizes and modes in one line."""
    groups = ", ".join(
        f"{index} {group.kind.value.replace('_', ' ')} ({_group_sizes(group)})"
        for index, group in enumerate(configuration.groups)
    )
    return (
        f"groups {groups}; "
        + (f"hash unit {configuration.hash_block}; " if configuration.fine_grained else "")
        + f"{configuration.pool_blocks} blocks; budget {configuration.budget} tokens a step; "
        + (f"{configuration.drafts} drafts a step; " if configuration.drafts else "")
        + ("scheduled by priority; " if configuration.scheduling is Scheduling.PRIORITY else "")
        + ("" if configuration.retention is None else f"retention {configuration.retention}; ")
        + f"{configuration.eviction.value} eviction; {configuration.worker_order.value.replace('_', ' ')}"
    )


def decision_lines(configuration: Configuration, decision: Decision) -> list[str]:
    """How L, E and R of one admission came about; the first line is the outcome."""
    lines = [
        f"admits {decision.request}: L = {decision.local}, E = {decision.external}, "
        f"R = {decision.resume} of N = {len(decision.prefix)} tokens"
    ]
    summary = decision.summary
    if summary.deepest:
        hits = ", ".join(f"{view.hit} (group {'+'.join(map(str, view.indexes))})" for view in decision.lookup.views)
        lines.append(f"  hits {hits}; common hit {summary.common}")
    if configuration.connector is not None and (summary.deepest or decision.answer.tokens):
        lookup = summary.lookup.value.replace("_", "-")
        lines.append(
            f"  the {lookup} lookup gives L = {decision.first_local}{', diverged' if decision.diverged else ''}; "
            f"asked from {decision.asked}, {_answered(configuration, decision)}"
        )
    return lines


def segments(parts: Iterable[Segment]) -> str:
    """Token texts: x*64 y*32."""
    return " ".join(f"{part.text}*{part.length}" for part in parts)


def _answered(configuration: Configuration, decision: Decision) -> str:
    answer = decision.answer
    leaves: list[Leaf] = list(leaves_of(configuration.connector)) if configuration.connector else []
    who = leaves[answer.source].name if 0 <= answer.source < len(leaves) else "the connector"
    return f"{who} answers {answer.tokens}{', asynchronously' if answer.asynchronous and answer.tokens else ''}"


def title_of(observations: Sequence[Observation]) -> str:
    """What the action was."""
    action: Action = observations[0].action
    match action:
        case Arrive():
            answers = "".join(
                f"; {leaf.leaf} will answer "
                + ", ".join("unknown" if said.tokens is None else f"{said.tokens}" for said in leaf.answers)
                for leaf in action.answers
            )
            scheduling = observations[0].before.configuration.scheduling
            priority = f" (priority {action.priority})" if scheduling is Scheduling.PRIORITY else ""
            return f"{action.request}{priority} arrives with {segments(action.prompt)}{answers}"
        case Step():
            return f"step{_budget(action)}{_failing(action)}{_rejecting(action)}"
        case Schedule():
            return f"schedule a step{_budget(action)}, not executed yet"
        case Execute():
            return f"execute the oldest step in flight{_failing(action)}{_rejecting(action)}"
        case Drain():
            return f"drain{_budget(action)}, {len(observations)} step{'s' if len(observations) > 1 else ''}"
        case Evict():
            return f"evict what group {action.group} has cached for {action.boundary} tokens of {action.request}"
        case EvictObject():
            what = f"group {action.group} for {action.boundary} tokens of {action.request}"
            part = f"the part of rank {action.rank} of " if action.rank else ""
            return f"{action.leaf} loses {part}its object of {what}"
        case EndSaves():
            return f"the pending saves of {action.leaf} end"
        case EndLoad():
            return f"the load of {action.request} {'succeeds' if action.succeeded else 'fails'}"
        case Abort():
            return f"abort {action.request}"
        case Preempt():
            return "preempt the request admitted last"
        case Reset():
            return "reset the prefix cache"


def _failing(action: Step | Execute) -> str:
    return f", the loads of {', '.join(action.failed_loads)} fail" if action.failed_loads else ""


def _rejecting(action: Step | Execute) -> str:
    wrong = ", ".join(f"{each.drafts} of {each.request}" for each in action.rejected)
    return f", drafts are wrong: {wrong}" if wrong else ""


def _budget(action: Step | Schedule | Drain) -> str:
    return "" if action.budget is None else f" of {action.budget} tokens"


def changes_of(observations: Sequence[Observation]) -> Iterator[str]:
    """What the action changed, line by line; what depends on a line is indented below it."""
    configuration = observations[0].after.configuration
    for observation in observations:
        for admission in observation.admissions:
            yield from decision_lines(configuration, admission.decision)
            yield from (f"  {_load(load)}" for load in admission.loads)
        yield from _events(observation)
        yield from _copies(observation)
    yield from _runs(observations, executed=False)
    yield from _runs(observations, executed=True)
    yield from _cached(observations[0], observations[-1])
    yield from _stored(observations[0], observations[-1])
    for observation in observations:
        if observation.execution:
            for read in observation.execution.bad_reads:
                told = wording.bad_read(configuration, read, observation.after.texts[read.request])
                yield f"! {read.request}: {told}"
        if observation.after.assertion:
            yield f"! the engine's assertion fails: {observation.after.assertion}"


def _copies(observation: Observation) -> Iterator[str]:
    for copy in observation.plan.copies if observation.plan is not None else ():
        goes = f"block {copy.source} to block {copy.destination}"
        keeps = "" if copy.replaces else ", where it is found from now on"
        yield f"copies the partial tail of group {copy.group} from {goes}{keeps}"


def _load(load: Load) -> str:
    if not load.assigned:
        does = "writes" if load.leaf.conduct.writes_unassigned else "reports a load"
        return f"{load.leaf.name} was told 0 tokens and {does} all the same"
    return f"{load.leaf.name} loads [{load.start}, {load.end}){', asynchronously' if load.asynchronous else ''}"


def _events(observation: Observation) -> Iterator[str]:
    for names, what in (
        (observation.asked_again, "waits: its connector does not know yet"),
        (observation.put_off, "is put off: it hit a state that is not written yet"),
        (observation.preempted, "is preempted: the pool is full"),
        (observation.taken_out, "was in the step already, and its chunk is taken out again"),
        (observation.rolled_back, "is rolled back to 0: a load failed"),
    ):
        for name in names:
            yield f"{name} {what}"


def _runs(observations: Sequence[Observation], *, executed: bool) -> Iterator[str]:
    """The chunks that were executed, or those that were only scheduled."""
    chunks = [
        chunk
        for observation in observations
        for plan in (observation.plan or observation.planned,)
        if plan is not None and (observation.plan is not None) is executed
        for chunk in plan.chunks
    ]
    for name in dict.fromkeys(chunk.request for chunk in chunks):
        own = [chunk for chunk in chunks if chunk.request == name]
        intervals = " ".join(f"[{chunk.computed}, {chunk.end}){_drafts(chunk, executed=executed)}" for chunk in own)
        yield f"{'runs' if executed else 'schedules'} {name} {intervals}"


def _drafts(chunk: Chunk, *, executed: bool) -> str:
    if not chunk.drafts:
        return ""
    right = f", {chunk.drafts - chunk.rejected} right" if executed else ""
    return f" ({chunk.drafts} drafts{right})"


def _cached(first: Observation, last: Observation) -> Iterator[str]:
    before, after = first.before.scheduler.pool.cached, last.after.scheduler.pool.cached
    yield from _labels("caches", after.keys() - before.keys(), last.after.texts)
    yield from _labels("evicts", before.keys() - after.keys(), last.after.texts)


def _stored(first: Observation, last: Observation) -> Iterator[str]:
    for name, store in last.after.scheduler.stores.items():
        before = first.before.scheduler.stores[name].keys
        announced = {save.label for save in store.pending} - {
            save.label for save in first.before.scheduler.stores[name].pending
        }
        yield from _labels(f"{name} has to save", announced, last.after.texts)
        yield from _labels(f"{name} stores", store.keys - before, last.after.texts)
        yield from _labels(f"{name} loses", before - store.keys, last.after.texts)


def _labels(what: str, labels: Collection[Label], texts: Mapping[str, Prefix]) -> Iterator[str]:
    for group in sorted({label.group for label in labels}):
        prefixes = [label.prefix for label in labels if label.group == group]
        yield f"{what} group {group}: {_boundaries(prefixes, texts)}"


def _boundaries(prefixes: Iterable[Prefix], texts: Mapping[str, Prefix]) -> str:
    """Boundaries by the first request whose tokens they are: "16 32 of A, 48 of B"."""
    owned: dict[str, list[int]] = {}
    for prefix in prefixes:
        owner = next(name for name, text in texts.items() if begins(prefix, text))
        owned.setdefault(owner, []).append(len(prefix))
    return ", ".join(f"{' '.join(map(str, sorted(owned[name])))} of {name}" for name in texts if name in owned)
