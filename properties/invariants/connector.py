"""The connector: loads, saves, failures."""

from __future__ import annotations

from collections.abc import Iterator

from model.actions import EndLoad
from model.adjustment import takes_nothing
from model.admission import Admission
from model.configuration import LoadFailure
from model.connector import leaves_of
from model.execution import Reason
from model.plan import Load, entries_of
from model.request import Request, Status
from model.system import Observation
from properties import wording
from properties.invariant import Finding, Invariant, Kind
from properties.invariants.content import mislabelled
from properties.invariants.first_reads import bad_first_reads, bad_reads, misread, written_blocks


def one_source(observation: Observation) -> Iterator[Finding]:
    for admission in observation.admissions:
        yield from ((None, message) for message in _wrong_loaders(observation, admission))
    for name, request in observation.after.scheduler.requests.items():
        before = observation.before.scheduler.requests.get(name)
        if before is not None and before.status is Status.LOADED and request.asked != before.asked:
            yield None, f"{name} is asked again although its load has completed"


def _wrong_loaders(observation: Observation, admission: Admission) -> Iterator[str]:
    decision = admission.decision
    for load in admission.loads:
        if not load.assigned:
            does = "writes" if load.leaf.conduct.writes_unassigned else "reports a load"
            yield f"{decision.request}: {load.leaf.name} is told to load nothing and {does} all the same"
    connector = observation.after.configuration.connector
    if connector is None or decision.external <= 0 or observation.after.assertion:
        return
    loaders = [load.leaf for load in admission.loads if load.assigned]
    leaves = list(leaves_of(connector))
    source = decision.answer.source
    winner = leaves[source] if 0 <= source < len(leaves) else None
    if winner is None or loaders != [winner]:
        names = ", ".join(leaf.name for leaf in loaders) or "no leaf"
        answered = winner.name if winner else "no leaf"
        yield f"{decision.request}: {names} loads, {answered} stands behind the answer E = {decision.answer.tokens}"
        return
    said = next((answer.tokens for answer in decision.said if answer.source == source), None)
    if said != decision.answer.tokens:
        yield f"{decision.request}: {winner.name} answered E = {said}, the composite said {decision.answer.tokens}"


def unknown_absorbs(observation: Observation) -> Iterator[Finding]:
    for admission in observation.admissions:
        decision = admission.decision
        if takes_nothing(observation.after.configuration, observation.before.scheduler.requests[decision.request]):
            continue
        if any(answer.unknown for answer in decision.said):
            yield None, f"{decision.request}: E = {decision.answer.tokens} is taken although a leaf does not know yet"


def load_before_read(observation: Observation) -> Iterator[Finding]:
    for read in bad_first_reads(observation):
        if read.reason is Reason.BEFORE_LOAD:
            _, message = misread(observation, read)
            yield None, message


def exact(observation: Observation) -> Iterator[Finding]:
    for admission in observation.admissions:
        decision = admission.decision
        promised = (decision.asked, decision.answer.tokens)
        if decision.external != 0 and (decision.local, decision.external) != promised:
            yield (
                None,
                f"{decision.request}: asked from {decision.asked} the answer was E = {decision.answer.tokens}; "
                f"adopted is {wording.sum_of(decision.local, decision.external)}",
            )


def asking_is_pure(observation: Observation) -> Iterator[Finding]:
    for name in observation.asked_again:
        request = observation.after.scheduler.requests[name]
        if any(request.tables) or request.computed or request.loads:
            yield None, f"{name} has blocks, computed tokens or loads after an answer that was unknown"
        if request.promises:
            yield None, f"{name}: {_kept(request)} after an answer that was unknown"


def rolled_back(observation: Observation) -> Iterator[Finding]:
    for message in (*_failed_synchronously(observation), *_failed_asynchronously(observation)):
        yield None, message


def _failed_synchronously(observation: Observation) -> Iterator[str]:
    yield from _poisoned_output(observation)
    failed = _failed(observation)
    if not failed:
        return
    for load in failed:
        before = observation.before.scheduler.requests.get(load.request)
        if before is None or before.stale:
            continue  # it has ended, or has started anew, since the load was planned
        where = f"{load.request}: its load of [{load.start}, {load.end}) failed"
        request = observation.after.scheduler.requests.get(load.request)
        if observation.after.assertion:
            yield f"{where}, and the engine stops: {observation.after.assertion}"
        elif request is None and load.request not in observation.rolled_back:
            yield f"{where}, and it ends with its output"
        elif request is not None and request.computed > _valid(observation, load):
            valid = _valid(observation, load)
            yield f"{where}, and it goes on from {request.computed}; all groups are valid up to {valid}"
    fails = observation.after.configuration.load_failure is LoadFailure.FAIL
    for name in observation.rolled_back:
        before = observation.before.scheduler.requests.get(name)
        request = observation.after.scheduler.requests.get(name)
        if before is None or (request is None and fails):
            continue
        if request is None or request.tokens != before.tokens:
            yield f"{name} was rolled back and its output of the failed step is kept"
    for name in _rolled_back_for_nothing(observation, failed):
        yield f"{name} is rolled back, and holds no block of a group that a load failed to fill, nor what depends on it"
    poisoned = written_blocks(observation, observation.rolled_back)
    poisoned.update(block for load in failed for _, block in load.failed(observation.after.configuration.groups))
    for read in bad_reads(observation):
        if read.block in poisoned:
            yield f"{read.request} reads block {read.block}, written from a load that failed, and is not rolled back"
    for block, label in mislabelled(observation.after):
        if block in poisoned:
            yield f"block {block} is still cached for {len(label.prefix)} tokens of group {label.group}"


def _rolled_back_for_nothing(observation: Observation, failed: tuple[Load, ...]) -> list[str]:
    """Requests that were rolled back, and share nothing with those whose loads failed, nor with any that do."""
    left = {
        name: entries_of(observation.before.scheduler.requests[name].tables)
        for name in observation.rolled_back
        if name in observation.before.scheduler.requests
    }
    concerned = set().union(*(entries_of(load.tables) for load in failed))
    for load in failed:
        concerned |= left.pop(load.request, set())
    while sharing := [name for name, held in left.items() if not held or held & concerned]:
        for name in sharing:
            concerned |= left.pop(name)
    return list(left)


def _poisoned_output(observation: Observation) -> Iterator[str]:
    """Output that was computed from a load that failed, in this step or before, and is kept."""
    if observation.execution is None or observation.after.assertion:
        return
    for chunk in observation.execution.chunks:
        before = observation.before.scheduler.requests.get(chunk.request)
        if chunk.sound or not chunk.load_failed or before is None:
            continue
        request = observation.after.scheduler.requests.get(chunk.request)
        ended = request is None and chunk.request not in observation.rolled_back
        if ended or (request is not None and len(request.tokens) > len(before.tokens)):
            yield f"{chunk.request}: its load failed, and output that was computed from it is kept"


def _failed(observation: Observation) -> tuple[Load, ...]:
    """Assigned loads of the executed step that failed, whole or in part."""
    plan, groups = observation.plan, observation.after.configuration.groups
    return () if plan is None else tuple(load for load in plan.loads if load.assigned and load.failed(groups))


def _valid(observation: Observation, load: Load) -> int:
    """The deepest boundary that is valid in all groups after a failed load, in tokens: what lies below the first failed
    block; 0 with a recurrent group, which has no state but the one that was to be loaded."""
    groups = observation.after.configuration.groups
    if any(group.recurrent for group in groups):
        return 0
    failed = load.failed(groups)
    return min(
        column * group.block
        for index, (group, table) in enumerate(zip(groups, load.tables, strict=True))
        for column, block in enumerate(table)
        if (index, block) in failed
    )


def _failed_asynchronously(observation: Observation) -> Iterator[str]:
    """A request whose asynchronous load failed may only start from a new admission."""
    action = observation.action
    if isinstance(action, EndLoad) and not action.succeeded:
        request = observation.after.scheduler.requests.get(action.request)
        if request is not None and request.status is not Status.LOAD_FAILED:
            yield f"{action.request}: its load failed, and it counts as {request.status.value}"
    if observation.planned is None:
        return
    admitted = {admission.decision.request: admission.decision.resume for admission in observation.admissions}
    for chunk in observation.planned.chunks:
        before = observation.before.scheduler.requests[chunk.request]
        if before.status is Status.LOAD_FAILED and admitted.get(chunk.request) != chunk.computed:
            yield f"{chunk.request}: its load failed, and it runs from {chunk.computed}"


def _kept(request: Request) -> str:
    leaves = ", ".join(sorted({leaf for leaf, _ in request.promises}))
    return f"{leaves} keeps {len(request.promises)} objects"


def loads_are_pinned(observation: Observation) -> Iterator[Finding]:
    for name, request in observation.after.scheduler.requests.items():
        if request.promises and observation.plan is not None:
            yield None, f"{name}: {_kept(request)} although the answer is not used"
    if not observation.before.worker.objects:
        return
    lost = observation.before.worker.objects.keys() - observation.after.worker.objects.keys()
    for name, request in observation.after.scheduler.requests.items():
        for load in request.loads if request.status in (Status.LOADING, Status.ABORTED_LOADING) else ():
            for fetch in load.fetches:
                if (load.leaf.name, fetch.label) in lost:
                    group = wording.group_name(observation.after.configuration, fetch.label.group)
                    yield (
                        None,
                        f"{name}: {load.leaf.name} has still to load [{load.start}, {load.end}) and loses its object "
                        f"of {group} for {len(fetch.label.prefix)} tokens",
                    )


def sources_are_fenced(observation: Observation) -> Iterator[Finding]:
    """A block that is taken in a step must not be the source of a save that was pending before and still is."""
    if observation.plan is None:
        return
    taken = set(observation.plan.taken)
    for name, store in observation.after.scheduler.stores.items():
        before = observation.before.scheduler.stores[name].pending
        for save in store.pending:
            for block in sorted(taken.intersection(save.blocks)) if save in before else ():
                group = wording.group_name(observation.after.configuration, save.label.group)
                yield (
                    None,
                    f"block {block} changes hands while {name} has still to save it for {len(save.label.prefix)} "
                    f"tokens of {save.request} in {group}",
                )


ENTRIES = (
    Invariant(
        id="LOAD-SOURCE",
        number="I11",
        kind=Kind.SAFETY,
        statement="Only the child that was assigned E > 0 loads; there is one completion, after the last loader; the "
        "last answer of an admission attempt is the one that is used; a request whose load has completed is not asked "
        "again.",
        reason="A second loader writes into the same blocks, at any time.",
        reports=("vllm #18232", "vllm #51846", "vllm #53250", "LMCache #4355"),
        proof="composition: the winner alone is assigned tokens, and they are those it answered",
        predicate=one_source,
    ),
    Invariant(
        id="LOAD-ORDER",
        kind=Kind.SAFETY,
        statement="A synchronous load is complete before anything reads its destination, the copy of the last state to "
        "the running column included.",
        reason="The copy moves an unwritten block into the running column; the load then fills a block nobody reads.",
        reports=("vllm #43935", "vllm-ascend #9533"),
        predicate=load_before_read,
    ),
    Invariant(
        id="LOAD-EXACT",
        kind=Kind.SAFETY,
        statement="A positive E is used exactly as answered, or not at all.",
        reason="The state was promised at L + E; at a trimmed boundary there is none.",
        reports=("vllm #39702",),
        proof="decision: the adopted interval is the one that was answered",
        predicate=exact,
    ),
    Invariant(
        id="ASK-PURE",
        kind=Kind.SAFETY,
        statement="Asking has no effect: it may be repeated, or its answer dropped, until the allocation is announced.",
        reason="A request is asked again after every postponement, and an answer that the policy drops is never used.",
        predicate=asking_is_pure,
    ),
    Invariant(
        id="ASK-UNKNOWN",
        kind=Kind.PROTOCOL,
        statement="A composite one of whose children does not know its answer yet does not know either.",
        reason="What is chosen over an unknown answer is chosen too early: an earlier child may still answer. The hit "
        "itself is safe.",
        proof="composition: unknown absorbs",
        predicate=unknown_absorbs,
    ),
    Invariant(
        id="LOAD-PIN",
        number="I12",
        kind=Kind.SAFETY,
        statement="What backs the answer that is used stays until the load ends; a dropped answer pins nothing.",
        reason="Between answer and load other requests evict from the store.",
        reports=("vllm #39702", "vllm #42289"),
        predicate=loads_are_pinned,
    ),
    Invariant(
        id="LOAD-ROLLBACK",
        number="I10",
        kind=Kind.SAFETY,
        statement="After a failure the kept prefix is at most the deepest boundary valid in all groups; failed blocks "
        "are unpublished; failures are named by request, or by (request, group, block), never by a bare block number; "
        "output of a poisoned step is dropped.",
        reason="What a failed load left behind is read as if it had succeeded.",
        reports=("vllm #50388", "vllm #56733", "vllm #49250", "vllm #54733", "SGLang #30986"),
        predicate=rolled_back,
    ),
    Invariant(
        id="STORE-FENCE",
        number="I18",
        kind=Kind.SAFETY,
        statement="The source of a pending store is not reallocated or reread after it lost its owner, whichever child "
        "caused the reallocation.",
        reason="The store would save the next owner's content under the former owner's key.",
        reports=("vllm #51358", "vllm #46951", "vllm #42959"),
        predicate=sources_are_fenced,
    ),
)
