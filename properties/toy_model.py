"""A toy hybrid model of numbers: two layers of recurrence and of attention, in which each number depends on all before.

It stands in for a real model when the shadow memory is checked: whatever a request reads wrongly changes every number
that it computes from there on. Numbers are 64 bits wide; that two different inputs give the same one is left to
chance.

Of the two layers, the lower one reads tokens, the upper one reads what the lower attention saw. The KV of a token is
the pair of its numbers in both layers, and so is a recurrent state.
"""

from __future__ import annotations

import functools
import hashlib

import attrs

from model.configuration import Group
from model.tokens import Prefix, Token

Pair = tuple[int, int]
"""A number of the lower and one of the upper layer."""

START: Pair = (0, 0)
"""Every recurrent state before the first token."""


def mix(*numbers: int) -> int:
    """A number that depends on all `numbers` and their order."""
    mixed = 0x9E3779B97F4A7C15
    for number in numbers:
        mixed = (mixed ^ number) * 0xBF58476D1CE4E5B9 & 0xFFFFFFFFFFFFFFFF
        mixed ^= mixed >> 31
    return mixed


@functools.lru_cache(maxsize=4096)
def embedding(token: Token) -> int:
    """The number of a token, the same in every run."""
    return int.from_bytes(hashlib.blake2b(token.encode(), digest_size=8).digest(), "big")


def lower_state(group: int, before: int, token: Token) -> int:
    """The lower recurrent state of `group` after `token`."""
    return mix(1, group, before, embedding(token))


def lower_kv(group: int, token: Token, states: tuple[int, ...]) -> int:
    """The lower KV of `token`, given the lower states after it."""
    return mix(2, group, embedding(token), *states)


@attrs.frozen
class Attended:
    """What one token saw: per attention group the lower KV up to and with its own, and the upper KV before it."""

    lower: tuple[int, ...]
    upper: tuple[int, ...]


def upper_state(group: int, before: int, token: Token, attended: Attended) -> int:
    """The upper recurrent state of `group` after `token`."""
    return mix(3, group, before, embedding(token), *attended.lower, *attended.upper)


def upper_kv(group: int, states: tuple[int, ...], attended: Attended) -> int:
    """The upper KV of a token, given the upper states after it."""
    return mix(4, group, *states, *attended.lower, *attended.upper)


def output(states: tuple[int, ...], attended: Attended) -> int:
    """What the model puts out for a token, given the upper states after it."""
    return mix(5, *states, *attended.lower, *attended.upper)


class Attention:
    """One attention layer at work: numbers are seen in token order; which of them count for a token, its group says."""

    def __init__(self, group: Group) -> None:
        self._group = group
        self._whole = group.window is None and group.chunk is None
        self._seen: list[tuple[int, int]] = []
        self._all = 0

    def see(self, position: int, number: int) -> None:
        """The KV of the token at `position`."""
        if self._whole:
            self._all = mix(self._all, number)
        else:
            self._seen.append((position, number))

    def read(self, position: int) -> int:
        """A digest of all that counts for the token at `position`."""
        if self._whole:
            return self._all
        first = self._group.sees_from(position)
        self._seen = [seen for seen in self._seen if seen[0] >= first]
        return mix(*(number for _, number in self._seen))


def attentions(groups: tuple[Group, ...]) -> dict[int, Attention]:
    """An attention layer for each attention group."""
    return {index: Attention(group) for index, group in enumerate(groups) if not group.recurrent}


@attrs.frozen
class CacheFreeRun:
    """A run over all tokens of a prefix that keeps nothing in blocks.

    `states[group][n]` is state@n, `kv[group][i]` the KV of token i, `outputs[i]` the output for token i.
    """

    states: dict[int, list[Pair]]
    kv: dict[int, list[Pair]]
    outputs: list[int]


@functools.lru_cache(maxsize=1024)
def cache_free_run(groups: tuple[Group, ...], prefix: Prefix) -> CacheFreeRun:
    """The truth about `prefix`; not to be modified."""
    recurrent = [index for index, group in enumerate(groups) if group.recurrent]
    lower_layer, upper_layer = attentions(groups), attentions(groups)
    run = CacheFreeRun({index: [START] for index in recurrent}, {index: [] for index in lower_layer}, [])
    for position, token in enumerate(prefix):
        before = {index: run.states[index][-1] for index in recurrent}
        lower = {index: lower_state(index, before[index][0], token) for index in recurrent}
        keys = {index: lower_kv(index, token, tuple(lower.values())) for index in lower_layer}
        for index, layer in lower_layer.items():
            layer.see(position, keys[index])
        attended = Attended(
            tuple(layer.read(position) for layer in lower_layer.values()),
            tuple(layer.read(position) for layer in upper_layer.values()),
        )
        states = {index: upper_state(index, before[index][1], token, attended) for index in recurrent}
        for index, layer in upper_layer.items():
            number = upper_kv(index, tuple(states.values()), attended)
            layer.see(position, number)
            run.kv[index].append((keys[index], number))
        for index in recurrent:
            run.states[index].append((lower[index], states[index]))
        run.outputs.append(output(tuple(states.values()), attended))
    return run
