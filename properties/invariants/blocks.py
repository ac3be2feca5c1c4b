"""The blocks: who owns what."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from model.configuration import StateMode
from model.execution import BadRead, Reason
from model.geometry import column_ending_at, columns_for
from model.pool import NULL_BLOCK, Label
from model.request import Status
from model.saving import referenced
from model.system import Observation, System
from properties import wording
from properties.invariant import Finding, Invariant, Kind
from properties.invariants.first_reads import bad_reads, is_first_read


class Holding(NamedTuple):
    """One entry of a block table."""

    request: str
    group: int
    column: int


def holdings(system: System) -> dict[int, list[Holding]]:
    """Non-null block -> the table entries that name it."""
    held: dict[int, list[Holding]] = defaultdict(list)
    for name, request in system.scheduler.requests.items():
        for group, table in enumerate(request.tables):
            for column, block in enumerate(table):
                if block != NULL_BLOCK:
                    held[block].append(Holding(name, group, column))
    return held


def exclusive(observation: Observation) -> Iterator[Finding]:
    for message in (
        *_shared_blocks(observation.after),
        *_scratch(observation.after),
        *_null_block(observation),
        *_overwritten(observation),
        *_copies(observation),
        *_tables_that_differ(observation),
    ):
        yield None, message


def _shared_blocks(system: System) -> Iterator[str]:
    pool = system.scheduler.pool
    for block, holders in holdings(system).items():
        if pool.refs[block] < len(holders):
            yield f"block {block} is in {len(holders)} table entries but has {pool.refs[block]} references"
        label = pool.labels[block]
        if label is None:
            # A request whose hit was withdrawn holds it only until its own load ends, and will not read it.
            owners = [
                holder.request for holder in holders if not system.scheduler.requests[holder.request].hit_withdrawn
            ]
            if len(owners) > 1:
                names = ", ".join(owners)
                yield f"block {block} has no hash, and more than one owner: {names}"
            continue
        block_tokens = system.configuration.groups[label.group].block
        holders = [holder for holder in holders if not _stored_checkpoint(system, holder, label)]
        if len(holders) > 1 and len(label.prefix) % block_tokens:
            names = ", ".join(holder.request for holder in holders)
            yield f"block {block} is cached for a partial tail, still written, and has more than one owner: {names}"
        for holder in holders:
            own = system.scheduler.requests[holder.request].tokens[: len(label.prefix)]
            if (holder.group, holder.column, own) != (
                label.group,
                column_ending_at(len(label.prefix), block_tokens),
                label.prefix,
            ):
                yield (
                    f"block {block} is cached for {len(label.prefix)} tokens of group {label.group}, but "
                    f"{holder.request} holds it in column {holder.column} of group {holder.group}"
                )


def _scratch(system: System) -> Iterator[str]:
    """Scratch blocks lie behind the running state; they are moved and overwritten at will."""
    configuration, pool = system.configuration, system.scheduler.pool
    if not configuration.drafts:
        return
    for name, request in system.scheduler.requests.items():
        for index, (group, table) in enumerate(zip(configuration.groups, request.tables, strict=False)):
            if not group.recurrent or request.status is not Status.RUNNING:
                continue
            for block in table[columns_for(request.computed, group.block) :]:
                if pool.refs[block] != 1 or pool.labels[block] is not None:
                    yield f"{name}: scratch block {block} of group {index} is cached or has more than one owner"


def _stored_checkpoint(system: System, holder: Holding, label: Label) -> bool:
    """Whether the holder stored the checkpoint that the block is cached for, which lies in a column of its own and is
    not written again."""
    request = system.scheduler.requests[holder.request]
    checkpoint = request.checkpoint
    if checkpoint is None or holder.group != label.group or holder.column != checkpoint.column:
        return False
    return label.prefix == request.tokens[: checkpoint.boundary]


def _null_block(observation: Observation) -> Iterator[str]:
    """A request that starts from a null block had no hit there: HIT-RESUME or HIT-COVER reports that."""
    pool = observation.after.scheduler.pool
    if pool.refs[NULL_BLOCK] or pool.labels[NULL_BLOCK] is not None or NULL_BLOCK in pool.free:
        yield "the null block is referenced, cached or free"
    if observation.execution is None:
        return
    for write in observation.execution.lost_writes:
        if write.request not in observation.rolled_back:
            yield f"{write.request} writes to the null block: group {write.group}, column {write.column}"
    for read in bad_reads(observation):
        if read.reason is Reason.NULL_BLOCK and not is_first_read(read):
            yield _told(observation, read)


def _overwritten(observation: Observation) -> Iterator[str]:
    """What a request wrote itself is not there any more."""
    for read in bad_reads(observation):
        if not is_first_read(read) and read.reason is not Reason.NULL_BLOCK:
            yield _told(observation, read)


def _copies(observation: Observation) -> Iterator[str]:
    """A copy goes to a block that was taken for it alone, and the null block is no part of one."""
    if observation.plan is None:
        return
    destinations = [copy.destination for copy in observation.plan.copies]
    for copy in observation.plan.copies:
        if NULL_BLOCK in (copy.source, copy.destination) or copy.source == copy.destination:
            yield f"block {copy.source} of group {copy.group} is copied to block {copy.destination}"
        elif copy.destination not in observation.plan.taken or destinations.count(copy.destination) > 1:
            yield f"block {copy.source} is copied to block {copy.destination}, which was not taken for that alone"


def _told(observation: Observation, read: BadRead) -> str:
    prefix = observation.after.texts[read.request]
    return f"{read.request}: {wording.bad_read(observation.after.configuration, read, prefix)}"


def _tables_that_differ(observation: Observation) -> Iterator[str]:
    """The scheduler nulls columns without telling the worker, so only what it has not nulled can be compared, and only
    when the worker has heard of all that is scheduled."""
    if observation.plan is None:
        return
    for chunk in observation.plan.chunks:
        request = observation.after.scheduler.requests.get(chunk.request)
        if request is None or request.status is not Status.RUNNING or request.in_flight:
            continue
        mirror = observation.after.worker.mirrors[chunk.request]
        for group, table in enumerate(request.tables):
            for column, block in enumerate(table):
                mirrored = mirror.block(group, column)
                if block not in (NULL_BLOCK, mirrored):
                    yield (
                        f"{chunk.request}: column {column} of group {group} is block {block} for the scheduler "
                        f"and block {mirrored} for the worker"
                    )


def reserved(observation: Observation) -> Iterator[Finding]:
    """Only a release that estimates can be wrong (`Reservation`); an estimate that is too low is wrong although enough
    blocks happen to be free."""
    for allotment in observation.allotments:
        if allotment.allocated > allotment.estimated:
            yield (
                None,
                f"{allotment.request}: {allotment.estimated} blocks were estimated, "
                f"{allotment.allocated} taken{': more than are free' if observation.after.assertion else ''}",
            )


def no_leak(observation: Observation) -> Iterator[Finding]:
    for message in _leaks(observation.after):
        yield None, message


def _leaks(system: System) -> Iterator[str]:
    pool = system.scheduler.pool
    requests = system.scheduler.requests.values()
    held = Counter(block for request in requests for table in request.tables for block in table)
    fenced = Counter(block for step in system.scheduler.in_flight for blocks in step.freed for block in blocks)
    saved = Counter(referenced(system.scheduler))
    copied = (block for blocks in system.scheduler.copied for block in blocks)
    aside = Counter([*(block for request in requests for block in request.held), *copied])
    holders = held + fenced + saved + aside
    for block, refs in enumerate(pool.refs):
        if refs and refs > holders[block] and block != NULL_BLOCK:
            yield (
                f"block {block} has {refs} references, but {held[block]} table entries, {fenced[block]} deferred frees "
                f"and {saved[block]} saves"
            )
    unreferenced = [block for block, refs in enumerate(pool.refs) if refs == 0 and block != NULL_BLOCK]
    if sorted(pool.free) != unreferenced:
        yield f"free are {sorted(pool.free)}, unreferenced are {unreferenced}"
    found: dict[int, list[Label]] = defaultdict(list)
    for label, blocks in pool.cached.items():
        for block in blocks:
            found[block].append(label)
    for block, first in enumerate(pool.labels):
        if first is None and block not in found:
            continue
        own, hashes = pool.labels_of(block), found[block]
        if len(own) != len(hashes) or any(label not in hashes for label in own):
            boundaries = [[len(label.prefix) for label in labels] for labels in (hashes, own)]
            yield f"block {block} is found by the hashes of {boundaries[0]} tokens and has those of {boundaries[1]}"
    for name, request in system.scheduler.requests.items():
        for group, table in enumerate(request.tables):
            states = sum(block != NULL_BLOCK for block in table)
            sparse = system.configuration.state_mode is StateMode.ALIGN
            recurrent = system.configuration.groups[group].recurrent
            if recurrent and sparse and states > system.configuration.most_states:
                yield f"{name} holds {states} recurrent blocks of group {group}"
        if request.status is Status.WAITING and not request.computed and any(request.tables):
            yield f"{name} has computed nothing and holds blocks"


ENTRIES = (
    Invariant(
        id="OWN-EXCLUSIVE",
        number="I8",
        kind=Kind.SAFETY,
        statement="A physical block serves one purpose at a time; every local hit that R needs is referenced, in all "
        "groups, before anything is allocated; unhashed and scratch blocks have one owner; core and worker tables "
        "agree; the null block is never read or written.",
        reason="Two owners write over each other, and neither notices.",
        reports=(
            "vllm #44409",
            "vllm #51766",
            "vllm #56733",
            "vllm-ascend #16752",
            "vllm #33937",
            "SGLang #30986",
        ),
        predicate=exclusive,
    ),
    Invariant(
        id="OWN-RESERVE",
        number="I9",
        kind=Kind.SAFETY,
        statement="The number of blocks estimated before an admission is at least the number allocated.",
        reason="An allocation that fails half-way stops the engine.",
        predicate=reserved,
    ),
    Invariant(
        id="OWN-LEAK",
        number="I17",
        kind=Kind.SAFETY,
        statement="Every block is owned by a request, held for a copy, a deferred free or a connector, reachable by a "
        "hash, or free; superseded or aborted state is released exactly once; a request holds a bounded number of "
        "recurrent blocks.",
        reason="A leaked block is lost until the engine restarts.",
        reports=("SGLang #28692", "SGLang #30986"),
        predicate=no_leak,
    ),
)
