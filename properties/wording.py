"""How properties speak of groups, contents and boundaries, so that every message has the same words and the numbers."""

from __future__ import annotations

import re

from model.configuration import Configuration, GroupKind
from model.execution import BadRead, Reason
from model.memory import AttentionKV, Content, Garbage, RecurrentState
from model.tokens import Prefix

_KIND = {
    GroupKind.FULL_ATTENTION: "full-attention",
    GroupKind.SLIDING_WINDOW: "sliding-window",
    GroupKind.CHUNKED_LOCAL: "chunked-local",
    GroupKind.MAMBA: "Mamba",
}


def group_name(configuration: Configuration, group: int) -> str:
    """For example "Mamba group 1"."""
    return f"{_KIND[configuration.groups[group].kind]} group {group}"


def without_numbers(message: str) -> str:
    """What tells one message from others, whatever the sizes. Names that look random are numbers too."""
    return re.sub(r"\b(?=\w*\d)\w+\b", "n", message)


def sum_of(local: int, external: int) -> str:
    """The resume boundary, in tokens, with its parts."""
    return f"R = {local + external} = L {local} + E {external}"


def content(held: Content, prefix: Prefix) -> str:
    """What a block holds, as seen by a reader with `prefix`."""
    if isinstance(held, Garbage):
        return f"garbage ({held.origin.value})"
    shared = min(len(held.prefix), len(prefix))
    owner = "" if held.prefix[:shared] == prefix[:shared] else " of another prefix"
    if isinstance(held, RecurrentState):
        return f"state@{len(held.prefix)}{owner} of group {held.group}"
    return f"KV of [{held.start}, {held.end}){owner} of group {held.group}"


def need(needed: AttentionKV | RecurrentState) -> str:
    """What a reader needs."""
    if isinstance(needed, RecurrentState):
        return f"state@{len(needed.prefix)}"
    return f"KV of [{needed.start}, {needed.end})"


def bad_read(configuration: Configuration, read: BadRead, prefix: Prefix) -> str:
    """One bad read of a request with `prefix`."""
    where = "the null block" if read.reason is Reason.NULL_BLOCK else f"block {read.block}"
    early = ", before a synchronous load into it" if read.reason is Reason.BEFORE_LOAD else ""
    found = "" if read.reason is Reason.NULL_BLOCK else f", which held {content(read.found, prefix)}"
    return (
        f"{group_name(configuration, read.group)} needs {need(read.needed)} "
        f"and reads {where} (column {read.column}){found}{early}"
    )
