"""The geometry: from tokens to blocks."""

from __future__ import annotations

from collections.abc import Iterator

from model.geometry import column_ending_at, columns_for
from model.policy import PER_GROUP
from model.pool import NULL_BLOCK
from model.system import Observation
from properties import wording
from properties.invariant import Finding, Invariant, Kind
from properties.invariants.stores import other_interval


def own_block(observation: Observation) -> Iterator[Finding]:
    for message in (*_table_lengths(observation), *_resume_columns(observation), *_own_hits(observation)):
        yield None, message


def _table_lengths(observation: Observation) -> Iterator[str]:
    configuration = observation.after.configuration
    for name, request in observation.after.scheduler.requests.items():
        for index, (group, table) in enumerate(zip(configuration.groups, request.tables, strict=False)):
            ahead = 0 if group.recurrent else configuration.lookahead
            scratch = configuration.drafts if group.recurrent else 0
            farthest = len(request.tokens) + request.placeholders + configuration.drafts + ahead
            least, most = columns_for(request.computed, group.block), columns_for(farthest, group.block) + scratch
            if not least <= len(table) <= most:
                yield (
                    f"{name}: {wording.group_name(configuration, index)} (block {group.block}) has {len(table)} "
                    f"columns for {request.computed} computed of {farthest} tokens"
                )


def _resume_columns(observation: Observation) -> Iterator[str]:
    """Where requests that start from a hit look for their state."""
    block = observation.after.configuration.mamba_block
    if observation.execution is None or block is None:
        return
    for chunk in observation.execution.chunks:
        if chunk.starts and chunk.computed and chunk.state_column != column_ending_at(chunk.computed, block):
            yield (
                f"{chunk.request} looks for state@{chunk.computed} in column {chunk.state_column}; with Mamba blocks "
                f"of {block} tokens it is in column {column_ending_at(chunk.computed, block)}"
            )


def _own_hits(observation: Observation) -> Iterator[str]:
    """What the first full-attention group is said to have on its own."""
    for admission in observation.admissions:
        lookup = admission.decision.lookup
        if lookup.summary.lookup is PER_GROUP and lookup.summary.full_attention != lookup.views[0].hit:
            group = lookup.views[0].group
            yield (
                f"{admission.decision.request}: full attention is looked up in blocks of {group.block // group.ranks}, "
                f"which gives {lookup.summary.full_attention}; in its own of {group.block} it has {lookup.views[0].hit}"
            )


def one_interval(observation: Observation) -> Iterator[Finding]:
    configuration = observation.after.configuration
    for admission in observation.admissions:
        decision = admission.decision
        if decision.claims is not None and decision.asked % configuration.scheduler_block:
            yield (
                None,
                f"{decision.request}: the connector is asked from {decision.asked}, inside a block of "
                f"{configuration.scheduler_block}",
            )
        for load in admission.loads:
            if not load.assigned:
                continue
            where = f"{decision.request}: {load.leaf.name} loads [{load.start}, {load.end})"
            if (load.start, load.end) != (decision.local, decision.resume):
                yield None, f"{where}, adopted is [{decision.local}, {decision.resume})"
            for index, group in enumerate(configuration.groups):
                if not group.recurrent and group.sees_from(load.end) == load.end:
                    continue  # the next token sees only itself, and needs nothing below R
                table, last = load.tables[index], column_ending_at(load.end, group.block)
                if len(table) <= last or table[last] == NULL_BLOCK:
                    yield None, f"{where}, but {wording.group_name(configuration, index)} has no block for its end"
    for message in (*other_interval(observation), *_miscounted(observation)):
        yield None, message


def _miscounted(observation: Observation) -> Iterator[str]:
    for save in observation.planned.saves if observation.planned is not None else ():
        if save.counted != save.listed:
            group = wording.group_name(observation.after.configuration, save.label.group)
            yield (
                f"{save.request}: {save.leaf} counts {save.counted} blocks of {group} for the object of "
                f"{len(save.label.prefix)} tokens, and lists {save.listed}"
            )


ENTRIES = (
    Invariant(
        id="GEO-BLOCK",
        number="I13",
        kind=Kind.SAFETY,
        statement="Token-to-block conversions for a group use that group's effective block size (the context-parallel "
        "factor only for sharded groups, never a minimum over groups).",
        reason="Groups differ in block size; another group's gives a column that is another state, or none.",
        reports=("vllm #53142", "vllm #55600", "vllm #54076"),
        predicate=own_block,
    ),
    Invariant(
        id="GEO-INTERVAL",
        number="I14",
        kind=Kind.SAFETY,
        statement="The intervals and keys that lookup verified, that were stored, allocated and loaded, come from one "
        "function of (L, R), by position and never by count; a connector is asked from a block boundary.",
        reason="A suffix counted from the end is shifted as soon as the two sides differ by a block, and a load that "
        "starts inside a block races with the copy of its cached part.",
        reports=("vllm #50454", "vllm #52807", "vllm #50558", "vllm #42945"),
        predicate=one_interval,
    ),
)
