"""Partial tails: blocks that are cached for a prefix that ends inside them, and who copies such a block before a write.

Mirrors `_cache_partial_tail_block`, `_partial_hit_reqs` and `_apply_cow` of the managers
(vllm/v1/core/single_type_kv_cache_manager.py). Nothing here happens unless hits are fine-grained.
"""

from __future__ import annotations

from model.configuration import Configuration
from model.geometry import floor_to
from model.plan import Copy, Table
from model.pool import NULL_BLOCK, EngineAssertion, Label, Pool
from model.request import Request
from model.rules.lookup import PromptTail
from model.rules.states import OutgrownAlias
from model.values import evolve


def last_boundary(configuration: Configuration, tokens: int, unit: int) -> int:
    """The last multiple of `unit` of a text of `tokens` tokens at which a state is of use to a later request: one less
    where attention drops its last block (`get_mamba_prefill_checkpoint_position`)."""
    if configuration.has_draft_model:
        return max(0, floor_to(tokens, unit) - unit)
    return floor_to(tokens - _spared(configuration), unit)


def prompt_tail(configuration: Configuration, request: Request) -> int:
    """The hash boundary at which the state of the prompt's partial tail is cached, in tokens; 0 if there is none."""
    if not configuration.fine_grained:
        return 0
    unit = configuration.hash_block
    return (
        last_boundary(configuration, request.prompt_length, unit)
        if _spared(configuration)
        else floor_to(request.prompt_length, unit)
    )


def _attention_tail(configuration: Configuration, request: Request, group: int) -> int:
    """The same of an attention group: one that drops a hash unit is looked up to the end of the prompt."""
    if not configuration.fine_grained:
        return 0
    spared = 0 if group in configuration.dropping else _spared(configuration)
    return floor_to(request.prompt_length - spared, configuration.hash_block)


def _spared(configuration: Configuration) -> int:
    """Tokens at the end of a prompt that no cached boundary includes, for they are always run."""
    return int(configuration.release.prompt_tail is PromptTail.BELOW_LAST_TOKEN)


def publish_tails(
    configuration: Configuration, pool: Pool, request: Request, tokens: int, end: int
) -> tuple[Pool, Request, frozenset[Label]]:
    """Cache the blocks of the request in which its prompt's last hash boundary lies; also returns the labels of
    recurrent states among them. Attention needs the boundary computed, within the first `tokens` tokens; a recurrent
    state is that of the boundary only if they end there, and is not if the request runs on to `end`."""
    states: set[Label] = set()
    for index, group in enumerate(configuration.groups):
        if group.recurrent:
            boundary = prompt_tail(configuration, request)
        else:
            boundary = _attention_tail(configuration, request, index)
        if group.recurrent and request.checkpoint is not None:
            continue
        inside = boundary % group.block and (boundary == tokens if group.recurrent else boundary <= tokens)
        column = boundary // group.block
        if not inside or column >= len(request.tables[index]):
            continue
        block, label = request.tables[index][column], Label(index, request.tokens[:boundary])
        if block == NULL_BLOCK or _refused(configuration, pool, block, label, end):
            continue
        pool = pool.publish_tail(block, label)
        if group.recurrent:
            states.add(label)
            published = (*request.published[:index], column, *request.published[index + 1 :])
            request = evolve(request, published=published, tails=(*request.tails, (index, column)))
    return pool, request, frozenset(states)


def _refused(configuration: Configuration, pool: Pool, block: int, label: Label, end: int) -> bool:
    """Whether the rule has it that the block has outgrown the tail `label`."""
    rule, first, boundary = configuration.release.outgrown_alias, pool.labels[block], len(label.prefix)
    if rule is OutgrownAlias.REFUSED_WHEN_RUN_PAST and configuration.groups[label.group].recurrent and end > boundary:
        return True
    return rule is not OutgrownAlias.RESTORED and first is not None and len(first.prefix) > boundary


def shared_tails(
    configuration: Configuration, tables: tuple[Table, ...], hits: tuple[Table, ...], local: int
) -> tuple[tuple[int, int], ...]:
    """The (group, column) of hit blocks in which a local hit of `local` tokens ends, so that the request must not write
    there. `hits` are the hit blocks that `tables` took over. (`add_local_computed_blocks`)"""
    tails = []
    for index, (group, table, hit) in enumerate(zip(configuration.groups, tables, hits, strict=True)):
        if hit and local % group.block:
            column = local // group.block
            if column >= len(table) or table[column] != hit[-1]:
                raise EngineAssertion(f"the copy of a partial tail is for column {column}, where the hit does not end")
            tails.append((index, column))
    return tuple(tails)


def copy_tail(
    pool: Pool, table: Table, group: int, column: int, destination: int, *, replaces: bool
) -> tuple[Pool, Table, Copy]:
    """Preserve the partial tail in `column` of `table`: the block `destination`, just taken, becomes its copy.

    Both blocks are held until the step is planned.
    """
    source = table[column]
    copy = Copy(group, source, destination, replaces)
    if replaces:
        return pool.touch((destination,)), (*table[:column], destination, *table[column + 1 :]), copy
    return pool.move_labels(source, destination).touch((source,)), table, copy
