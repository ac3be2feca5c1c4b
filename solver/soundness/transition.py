"""What a transition is: guards, and the state afterwards as a function of the state before."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs
import z3

from solver.soundness.state import State
from solver.soundness.terms import Kind, Universal


@attrs.frozen(eq=False)
class Transition:
    """One action with its arguments. It can happen where all `guards` hold, and then leads to `after`.

    `guards` are what the engine's code sees to (or, where they say so, what its worker and connectors do). `choices`
    are facts about unknowns that the transition introduces. `terms` are further terms of which statements are needed,
    `entries_of` those that come with a block.
    """

    guards: tuple[Universal, ...]
    after: State
    choices: tuple[Universal, ...] = ()
    terms: Mapping[Kind, tuple[Any, ...]] = attrs.Factory(dict)
    entries_of: Callable[[Any], tuple[Any, ...]] = lambda block: ()


@attrs.frozen(eq=False)
class Action:
    """A kind of transition: `arguments` are of these kinds. `mirrors` are the functions that do it."""

    name: str
    arguments: tuple[Kind, ...]
    build: Callable[..., Transition]
    mirrors: str

    def of(self, before: State, *arguments: Any) -> Transition:
        """The transition from a state."""
        return self.build(before, *arguments)


def guard(name: str, formula: z3.BoolRef) -> Universal:
    """A guard about the arguments alone."""
    return Universal(name, (), lambda: formula)
