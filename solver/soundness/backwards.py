"""Where a failed cell comes from, in states of the small instance: what makes it possible, and what comes before that.

First of all states together: if no action leads from a state in which the failing action keeps the invariant to one in
which it does not, no run ever gets there. Else from one state to the next, until one lies between two steps, where the
model can be too; if it is the initial one, the states are a run of the encoding.
"""

from __future__ import annotations

import functools
import heapq
import itertools
from collections.abc import Sequence

import attrs
import z3

from solver.soundness.cells import unknowns
from solver.soundness.concrete import SLOT_ELEMENTS, ConcreteState, Example, Situation, Taken, chosen_by
from solver.soundness.engine_state import unrest
from solver.soundness.instance import INSTANCE
from solver.soundness.invariants import Invariant
from solver.soundness.state import IDLE
from solver.soundness.transition import Action

MOST_QUESTIONS = 40
"""How often the solver is asked for a state from which one action leads to another: each time costs a part of a
second."""


@attrs.frozen
class Chain:
    """States and what is done in each of them; the last action is the one that breaks the invariant."""

    examples: tuple[Example, ...]

    @property
    def first(self) -> ConcreteState:
        return self.examples[0].state

    @property
    def actions(self) -> tuple[Taken, ...]:
        return tuple(example.taken for example in self.examples)

    @property
    def cost(self) -> int:
        """How far it is from the initial state, and from one between steps. What is filled for a request that is being
        admitted has still to be found or loaded."""
        admitted = [
            where
            for field, where in (SLOT_ELEMENTS[number] for number in self.first.unusual)
            if field == "filled" and self.first.of("status", where[0][0]) == IDLE
        ]
        return 4 * len(unrest(self.first)) + 2 * len(admitted) + self.first.weight + len(self.examples)


@attrs.frozen
class Backwards:
    """A `chain` that begins between two steps if one was found. `unreachable` if it is proved that no action leads into
    such a state; `looked_at` counts states."""

    chain: Chain
    unreachable: bool
    looked_at: int


def search_backwards(
    failing: Action, invariant: Invariant, actions: Sequence[Action], invariants: Sequence[Invariant]
) -> Backwards | None:
    """States that satisfy every invariant and lead to one in which `failing` breaks it; None if the instance has no
    such state."""
    asking = Asking(actions, invariants)
    example = Situation(failing, invariants).breaking(invariant)
    if example is None:
        return None
    if example.state.is_initial:
        return Backwards(Chain((example,)), False, 1)
    made_possible = asking.making_possible(failing, invariant, example.state)
    if made_possible is None:
        return Backwards(Chain((example,)), asking.certain, 1)
    looked_at = 0
    for chain in (Chain((example,)), made_possible):
        chain, states = _step_back(chain, asking)
        looked_at += states
        if not unrest(chain.first):
            break
    return Backwards(chain, False, looked_at)


def _step_back(chain: Chain, asking: Asking) -> tuple[Chain, int]:
    """The chain, made longer until it begins between two steps, or as far as it goes; and how many states were looked
    at. The cheapest is made longer first; as soon as one is cheaper than that, the search goes on from there."""
    known, order, last = {chain.first}, itertools.count(1), asking.questions + MOST_QUESTIONS
    best = chain
    heap = [(chain.cost, 0, chain, asking.order(chain.first))]
    while heap and asking.questions < last and unrest(best.first):
        cost, _, chain, todo = heapq.heappop(heap)
        for position, action in enumerate(todo):
            found = asking.predecessor(action, chain.first, known)
            if found is None:
                continue
            known.add(found.state)
            longer = Chain((found, *chain.examples))
            best = min(best, longer, key=lambda each: (bool(unrest(each.first)), each.cost))
            heapq.heappush(heap, (longer.cost, next(order), longer, asking.order(found.state)))
            if longer.cost <= cost:
                # The same action may lead here from yet another state.
                heapq.heappush(heap, (cost + 1, next(order), chain, (*todo[position + 1 :], action)))
                break
    return best, len(known)


class Asking:
    """Asks the solver, an action at a time, and counts the questions."""

    def __init__(self, actions: Sequence[Action], invariants: Sequence[Invariant]) -> None:
        self.questions = 0
        self.certain = True
        self._actions = {action.name: action for action in actions}
        self._invariants = invariants
        self._situations: dict[str, Situation] = {}

    def _situation(self, action: str) -> Situation:
        if action not in self._situations:
            self._situations[action] = Situation(self._actions[action], self._invariants)
        return self._situations[action]

    def making_possible(self, failing: Action, invariant: Invariant, like: ConcreteState) -> Chain | None:
        """What leads into a state in which `failing` breaks the invariant."""
        for action in self.order(like):
            found = self._situation(action).making_possible(failing, invariant)
            if isinstance(found, tuple):
                return Chain(found)
            # Two actions that choose alike would be taken to choose the same.
            alike = chosen_by(self._actions[action]) & chosen_by(failing)
            self.certain = self.certain and found == z3.unsat and not alike
        return None

    def predecessor(self, action: str, state: ConcreteState, known: set[ConcreteState]) -> Example | None:
        """A state that is not `known` from which the action leads to this one."""
        self.questions += 1
        found = self._situation(action).leading_to(state, known)
        return found if isinstance(found, Example) else None

    def order(self, state: ConcreteState) -> tuple[str, ...]:
        """The actions, those first that change little but what is unusual in the state."""
        unusual = {SLOT_ELEMENTS[number][0] for number in state.unusual}

        def share(name: str) -> float:
            changed = written_by(self._actions[name])
            return -len(changed & unusual) / max(1, len(changed))

        return tuple(sorted(self._actions, key=share))


@functools.cache
def written_by(action: Action) -> frozenset[str]:
    """Fields that the action changes somewhere."""
    before = INSTANCE.state
    after = action.of(before, *unknowns(action.arguments, "the")).after
    fields = {field for field, _ in SLOT_ELEMENTS}
    return frozenset(field for field in fields if getattr(after, field) is not getattr(before, field))
