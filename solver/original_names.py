"""From the actions on a path of codes to a run of the model: alike requests get back the names that they had at
first.
"""

from __future__ import annotations

from collections.abc import Iterable

from model.actions import Action
from model.errors import IllegalAction
from model.pool import Label
from model.system import apply, initial
from properties.policy_guard import PolicyRaised
from solver.canonical import Renaming
from solver.codec import Cached, CodecFault
from solver.search import Search
from solver.successors import Kind


def actions_of(search: Search, numbers: Iterable[int]) -> tuple[Action, ...]:
    """The run of the readable model from its initial state that `numbers` tell of. Raises CodecFault if there is
    none."""
    plain = search.plain
    system = initial(search.scope.configuration)
    code = plain.initial
    original: Renaming = tuple(range(len(plain.codec.names)))
    actions: list[Action] = []
    for number in numbers:
        try:
            action = plain.action_of(_renamed(search, number, original), system)
            actions.append(action)
            system, _ = apply(system, plain.policy, action)
        except (IllegalAction, StopIteration) as illegal:
            raise CodecFault(f"a path of the search is no run of the model: {illegal}") from None
        except PolicyRaised:
            break
        here = plain.codec.decode(code)
        (_, after, _), _ = plain.successor(here, plain.action_of(number, here))
        if after is None:
            break
        code = after
        if search.sorter is not None:
            code, renaming = search.sorter.sort(after)
            original = tuple(original[renaming.index(slot)] for slot in range(len(renaming)))
    return tuple(actions)


def _renamed(search: Search, number: int, original: Renaming) -> int:
    kind, argument = number >> 8, number & 255
    if kind == Kind.STEP:
        argument = sum(1 << original[bit] for bit in range(len(original)) if argument >> bit & 1)
    elif kind == Kind.EVICT:
        codec = search.codec
        cached = codec.symbols[argument]
        assert isinstance(cached, Cached)
        prefix = cached.label.prefix
        owner = next(r for r, text in enumerate(codec.texts) if text[: len(prefix)] == prefix)
        own = codec.texts[original[owner]][: len(prefix)]
        argument = codec.symbol(Cached(Label(cached.label.group, own)))
    elif kind not in (Kind.PREEMPT, Kind.RESET):
        argument = original[argument]
    return kind << 8 | argument
