"""The content: what the blocks hold."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

import attrs

from model.actions import Reset
from model.configuration import Configuration
from model.execution import Reason
from model.geometry import column_ending_at, floor_to
from model.memory import AttentionKV, Content, RecurrentState, contains
from model.plan import Save
from model.pool import Label
from model.store import columns_read
from model.system import Observation, System
from model.worker import writes_in_flight
from properties import wording
from properties.invariant import Finding, Invariant, Kind
from properties.invariants.first_reads import bad_first_reads, dropped, misread, written_blocks


def promised(configuration: Configuration, label: Label) -> AttentionKV | RecurrentState:
    """What a block that is cached for `label` has to hold: of attention, the KV from its first slot on."""
    group = configuration.groups[label.group]
    if group.recurrent:
        return RecurrentState(label.group, label.prefix)
    return AttentionKV(label.group, floor_to(len(label.prefix) - 1, group.block), label.prefix)


def mislabelled(system: System, among: Iterable[int] | None = None) -> list[tuple[int, Label]]:
    """Blocks, of all or `among` some, that do not hold what they are cached for, with the label; a block may have
    several. One that a step in flight still writes is judged after that."""
    memory, pool = system.worker.memory, system.scheduler.pool
    wrong = [
        (block, label)
        for block in (range(len(pool.labels)) if among is None else among)
        for label in pool.labels_of(block)
        if not memory.holds(block, promised(system.configuration, label))
    ]
    if wrong and system.scheduler.in_flight:
        plans = [step.plan for step in system.scheduler.in_flight]
        awaited = writes_in_flight(system.configuration, system.worker, plans)
        wrong = [(block, label) for block, label in wrong if block not in awaited]
    return wrong


def _newly_mislabelled(observation: Observation) -> list[tuple[int, Label]]:
    """Those of the mislabelled blocks that can be so since this action: without steps in flight, blocks whose labels or
    content are not the ones from before."""
    before, after = observation.before, observation.after
    if before.scheduler.in_flight or after.scheduler.in_flight:
        return mislabelled(after)
    old, new = before.scheduler.pool, after.scheduler.pool
    held = zip(before.worker.memory.blocks, after.worker.memory.blocks, strict=True)
    labelled = zip(old.labels, new.labels, strict=True)
    touched = [
        block
        for block, ((was, holds), (label, other)) in enumerate(zip(held, labelled, strict=True))
        if was is not holds or label is not other or old.aliases.get(block) is not new.aliases.get(block)
    ]
    return mislabelled(after, touched)


def label_is_content(observation: Observation) -> Iterator[Finding]:
    wrong = _newly_mislabelled(observation)
    if not wrong:
        return
    known = mislabelled(observation.before)
    spoilt = _spoilt_by_bad_reads(observation)
    for block, label in wrong:
        if (block, label) in known or block in spoilt:
            continue
        found = wording.content(observation.after.worker.memory.read(block), label.prefix)
        needed = wording.need(promised(observation.after.configuration, label))
        yield (
            None,
            f"block {block} is cached for {len(label.prefix)} tokens (last: {label.prefix[-1]}) "
            f"of {wording.group_name(observation.after.configuration, label.group)}, "
            f"so it has to hold {needed}; it holds {found}",
        )


@attrs.frozen
class MislabelledPart:
    """A block of a stored object that holds something else than the `label` of its own end says."""

    save: Save
    block: int
    label: Label
    found: Content


def mislabelled_saves(observation: Observation) -> Iterator[MislabelledPart]:
    """Saves that left an object with other content than its key says, in a block that a hit at its end reads. Not those
    of a request that had read wrongly, nor of a block that was cached wrongly before: what is reported is that."""
    after, before = observation.after, observation.before
    for save in (*observation.flushed, *observation.saved):
        mirror = after.worker.mirrors.get(save.request)
        if (save.leaf, save.label) in before.worker.objects or (mirror is not None and not mirror.sound):
            continue
        for part in _parts_read(after, save):
            held = contains(part.found, promised(after.configuration, part.label))
            if not held and before.scheduler.pool.labels[part.block] != part.label:
                yield part


def _parts_read(system: System, save: Save) -> Iterator[MislabelledPart]:
    group = system.configuration.groups[save.label.group]
    end, held = len(save.label.prefix), system.worker.objects[save.leaf, save.label]
    last = column_ending_at(end, group.block)
    for column in {last, *columns_read(group, 0, end)}.intersection(range(last - len(held) + 1, last + 1)):
        label = Label(save.label.group, save.label.prefix[: (column + 1) * group.block])
        yield MislabelledPart(save, save.blocks[column - last - 1], label, held[column - last - 1])


def objects_are_content(observation: Observation) -> Iterator[Finding]:
    configuration = observation.after.configuration
    for part in mislabelled_saves(observation):
        yield (
            None,
            f"{part.save.leaf} stores block {part.block} of {part.save.request} for {len(part.label.prefix)} tokens of "
            f"{wording.group_name(configuration, part.label.group)}, so it has to hold "
            f"{wording.need(promised(configuration, part.label))}; it holds "
            f"{wording.content(part.found, part.label.prefix)}",
        )


def _spoilt_by_bad_reads(observation: Observation) -> set[int]:
    """Blocks that hold what a request computed after it had read wrongly: what is reported is the read. A request that
    a failed load rolled back, or whose output is dropped, is not reported there, so what it left behind is here."""
    if observation.execution is None:
        return set()
    unsound = {chunk.request for chunk in observation.execution.chunks if not chunk.sound}
    misled = {name for name in unsound - set(observation.rolled_back) if not dropped(observation, name)}
    earlier = observation.before.worker.mirrors
    misled_before = {
        chunk.request
        for chunk in observation.execution.chunks
        if chunk.request in misled and not chunk.starts and not earlier[chunk.request].sound
    }
    held = {block for name in misled_before for table in earlier[name].tables for block in table}
    return written_blocks(observation, misled) | held


def written_before_read(observation: Observation) -> Iterator[Finding]:
    """A first read that found nothing yet, of a block that holds what was needed once the step is over, or of the copy
    of such a block."""
    memory = observation.after.worker.memory
    copies = observation.plan.copies if observation.plan is not None else ()
    sources = {copy.destination: copy.source for copy in copies}
    for read in bad_first_reads(observation):
        if read.block in sources and memory.holds(sources[read.block], read.needed):
            case, message = misread(observation, read)
            yield case, f"{message}; that is a copy of block {sources[read.block]}, which is written later in the step"
        elif read.reason is not Reason.BEFORE_LOAD and memory.holds(read.block, read.needed):
            case, message = misread(observation, read)
            yield case, f"{message}; it is written later in the same step"
    if isinstance(observation.action, Reset) and any(observation.after.scheduler.pool.labels):
        yield None, "blocks are still cached after a reset"
    if isinstance(observation.action, Reset):
        for name, store in observation.after.scheduler.stores.items():
            if store.keys or store.pending:
                yield None, f"{name} still has objects, or saves to be done, after a reset"


ENTRIES = (
    Invariant(
        id="STATE-LABEL",
        number="I5",
        kind=Kind.SAFETY,
        statement="A block or stored object reachable under the hash of n tokens holds state@n (or the KV of that "
        "span), is not null, scratch or recycled, and the labelled content does not change while it is reachable (an "
        "attention block may grow beyond its label).",
        reason="A wrong label is found by every later request with that prefix, silently, until the cache is reset.",
        reports=(
            "vllm #45477",
            "vllm #34587",
            "vllm #56525",
            "LMCache #4247",
            "vllm #51358",
            "LMCache #4984",
            "vllm #51766",
            "UCM #1130",
            "vllm #42959",
            "vllm #49125",
            "vllm #54076",
            "tair-kvcache #257",
            "SGLang #32555",
        ),
        proof="cache soundness: every action of the encoded cache keeps it",
        predicate=lambda observation: chain(label_is_content(observation), objects_are_content(observation)),
    ),
    Invariant(
        id="STATE-VISIBLE",
        number="I6",
        kind=Kind.SAFETY,
        statement="In execution order, the write that fills a block comes before every read that a hit on its hash "
        "causes, copies included; if the write will not happen (abort, failure), the hash is not hit; a reset reaches "
        "every tier.",
        reason="Hashes are published when a step is scheduled, before it has written anything.",
        reports=("vllm #29387", "vllm #56525", "vllm #43935"),
        predicate=written_before_read,
    ),
)
