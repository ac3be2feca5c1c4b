"""Endless runs in which nothing ever ends, although the engine keeps stepping and every load ends well (PROGRESS).

Weak fairness: a step is possible as long as there is a request, so it is taken again and again; so is the end of each
load that stays under way. Everything else (arrivals, evictions, aborts, preemptions, resets, failures) need not
happen. So a livelock is a cycle of steps and ends of loads that contains a step and leaves no load under way for
ever. No request ends on a cycle, for what has ended stays ended.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Iterator, Sequence

import attrs

from model.request import Status
from solver.codec import Code, Codec
from solver.search import NO_STATE, Reached
from solver.successors import Kind

Edge = tuple[int, int]
"""Number of an action, and the state it leads to."""


@attrs.frozen
class Lasso:
    """A way into a cycle, by its first state, and the numbers of the actions once around it. Where alike requests take
    turns on the cycle, `certain` is false if one of them may be left loading for ever."""

    entry: int
    cycle: tuple[int, ...]
    certain: bool = True


class _Graph:
    """Steps and ends of loads between the expanded states, kept as the search keeps them."""

    def __init__(self, reached: Reached) -> None:
        self.states = len(reached.steps)
        self._steps = reached.steps
        self._loads: dict[int, tuple[Edge, ...]] = {}
        found = reached.loads
        for state, request, after in zip(found[::3], found[1::3], found[2::3], strict=True):
            edge = (Kind.LOAD_ENDS << 8 | request, after)
            self._loads[state] = (*self._loads.get(state, ()), edge)

    def edges(self, state: int) -> tuple[Edge, ...]:
        """Edges to expanded states."""
        step = self._steps[state]
        found = (
            self._loads.get(state, ()) if step == NO_STATE else ((Kind.STEP << 8, step), *self._loads.get(state, ()))
        )
        return tuple(edge for edge in found if edge[1] < self.states)


def find_livelock(reached: Reached, codec: Codec, alike: Sequence[Sequence[int]] = ()) -> Lasso | None:
    """A fair cycle among the expanded states, the one nearest to the initial state; None if there is none. `alike` are
    the classes of requests that the search has sorted."""
    graph, codes = _Graph(reached), list(reached.codes)
    singles = [(request,) for request in range(len(codec.names))]
    together = [*alike, *(one for one in singles if not any(one[0] in known for known in alike))]
    fair = [members for members in map(set, _components(graph)) if _fair(members, graph, codes, codec, together)]
    if not fair:
        return None
    members = min(fair, key=min)
    certain = _fair(members, graph, codes, codec, singles)
    return Lasso(min(members), _around(min(members), members, graph), certain)


def _components(graph: _Graph) -> Iterator[list[int]]:
    """Strongly connected components that contain a cycle (Tarjan, without recursion)."""
    index, low = array("i", [-1]) * graph.states, array("i", [0]) * graph.states
    on_stack = bytearray(graph.states)
    stack: list[int] = []
    counter = 0
    for root in range(graph.states):
        if index[root] >= 0:
            continue
        work = [(root, 0)]
        while work:
            state, edge = work.pop()
            if edge == 0:
                index[state] = low[state] = counter
                counter += 1
                stack.append(state)
                on_stack[state] = 1
            edges = graph.edges(state)
            for place in range(edge, len(edges)):
                after = edges[place][1]
                if index[after] < 0:
                    work += ((state, place + 1), (after, 0))
                    break
                if on_stack[after]:
                    low[state] = min(low[state], index[after])
            else:
                if low[state] == index[state]:
                    component = [stack.pop()]
                    while component[-1] != state:
                        component.append(stack.pop())
                    for member in component:
                        on_stack[member] = 0
                    if len(component) > 1 or any(after == state for _, after in edges):
                        yield component
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[state])


def _fair(members: set[int], graph: _Graph, codes: list[Code], codec: Codec, classes: Sequence[Sequence[int]]) -> bool:
    """Whether a walk all around the component steps and, for each class of requests, ends a load or meets a state in
    which none is under way."""
    inside = {number for state in members for number, after in graph.edges(state) if after in members}
    if Kind.STEP << 8 not in inside:
        return False
    for known in classes:
        ends = any(Kind.LOAD_ENDS << 8 | request in inside for request in known)
        if not ends and all(_loading(codes[state], codec).intersection(known) for state in members):
            return False
    return not all(_lacks_reserve(codes[state], codec) for state in members)


def _loading(code: Code, codec: Codec) -> set[int]:
    loading = (Status.LOADING, Status.ABORTED_LOADING)
    return {record.request for record in codec.records_of(code) if record.status in loading}


def _lacks_reserve(code: Code, codec: Codec) -> bool:
    """Whether a loaded request waits with its blocks: for those vLLM keeps a reserve that the model does not have
    yet."""
    waits = (Status.WAITING, Status.LOADED, Status.LOAD_FAILED)
    return any(record.status in waits and any(map(any, record.shape)) for record in codec.records_of(code))


def _around(entry: int, members: set[int], graph: _Graph) -> tuple[int, ...]:
    """A walk from `entry` back to it along every edge inside the component, shortest ways in between."""
    left = {(state, number) for state in members for number, after in graph.edges(state) if after in members}
    walk: list[int] = []
    state = entry
    while left:
        way = _way(state, lambda at: any((at, number) in left for number, _ in graph.edges(at)), members, graph)
        for number, after in way:
            left.discard((state, number))
            walk.append(number)
            state = after
        number, state_after = next((n, a) for n, a in graph.edges(state) if (state, n) in left)
        left.discard((state, number))
        walk.append(number)
        state = state_after
    walk += (number for number, _ in _way(state, lambda at: at == entry, members, graph))
    return tuple(walk)


def _way(state: int, goal: Callable[[int], bool], members: set[int], graph: _Graph) -> list[Edge]:
    ways: dict[int, list[Edge]] = {state: []}
    todo = deque([state])
    while todo:
        at = todo.popleft()
        if goal(at):
            return ways[at]
        for number, after in graph.edges(at):
            if after in members and after not in ways:
                ways[after] = [*ways[at], (number, after)]
                todo.append(after)
    raise AssertionError("a component is strongly connected")
