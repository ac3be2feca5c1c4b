"""Where a failed cell comes from, for readers who have not seen the encoding.

A concrete state, what leads there, and what the model does from it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs

from model.policy import Policy
from model.pool import Label
from model.release import Release
from model.system import Observation, System
from model.tokens import begins
from properties.policy_guard import guarded
from solver.codec import NotEncodable
from solver.soundness.backwards import Backwards, search_backwards
from solver.soundness.concrete import SLOT_ELEMENTS, ConcreteState, told_element
from solver.soundness.engine_state import NotExpressible, as_system, scopes
from solver.soundness.forwards import seek_from
from solver.soundness.instance import BLOCKS, CONFIGURATION, LONGEST, WIDTH
from solver.soundness.invariants import Invariant
from solver.soundness.state import FIELDS, STATUS_WORDS
from solver.soundness.terms import BLOCK, ENTRY, KEY, REQUEST
from solver.soundness.transition import Action

INSTANCE_WORDS = (
    f"{BLOCKS - 1} blocks of {WIDTH} tokens, an attention and a Mamba group, {LONGEST} tokens of two requests"
)


@attrs.frozen
class Origin:
    """What was found out about a failed cell beside that it fails. `system` is the state in the model from which
    `observations` violate the property of the invariant; it is there, without observations, where none do."""

    lines: tuple[str, ...]
    system: System | None = None
    observations: tuple[Observation, ...] = ()
    unreachable: bool = False
    begins: bool = False


def origin_of(
    failing: Action,
    invariant: Invariant,
    actions: Sequence[Action],
    invariants: Sequence[Invariant],
    policy: Policy,
    release: Release,
) -> Origin | None:
    """Backwards in the encoding, and from there forwards in the model; None if the small instance has no state from
    which the action breaks the invariant."""
    back = search_backwards(failing, invariant, actions, invariants)
    if back is None:
        return None
    lines = list(_told(invariant, back))
    system, found = _in_the_model(back, invariant, policy, release, lines)
    return Origin(tuple(lines), system, found, back.unreachable, back.chain.first.is_initial)


def _in_the_model(
    back: Backwards, invariant: Invariant, policy: Policy, release: Release, lines: list[str]
) -> tuple[System | None, tuple[Observation, ...]]:
    """The first state in the model, and a shortest run from it that violates the invariant's property."""
    taken = tuple(each.arguments[-1] for each in back.chain.actions if each.action == "allocate")
    reasons: dict[str, None] = {}
    searched: list[str] = []
    first: System | None = None
    for scope in scopes(release):
        try:
            system = as_system(back.chain.first, scope, taken)
            found = seek_from(system, scope, guarded(policy), invariant.property)
        except (NotExpressible, NotEncodable) as reason:
            reasons[str(reason)] = None
            continue
        if found.observations:
            lines.append(f"the model violates {invariant.property} from the first state as well ({found.searched})")
            return system, found.observations
        first = first or system
        searched.append(found.searched)
    if first is None:
        lines.append(f"the model is never in the first state: {'; '.join(reasons)}")
    else:
        lines.append(f"the model does not violate {invariant.property} from the first state ({'; '.join(searched)}):")
        lines.append("  the action of the encoding does something that the model does not do there")
    return first, ()


def _told(invariant: Invariant, back: Backwards) -> Iterator[str]:
    yield f"broken: {invariant.statement}"
    yield f"in a small instance ({INSTANCE_WORDS}), from this state:"
    facts = list(state_in_words(back.chain.first))
    yield from (f"  {fact}" for fact in facts or ("nothing is cached, and no request was admitted",))
    yield "by"
    yield from (f"  {number}. {taken}" for number, taken in enumerate(back.chain.actions, 1))
    if back.chain.first.is_initial:
        yield "the first state is that in which the engine starts: the encoding has this run"
    elif back.unreachable:
        yield "no predecessor: no action leads into such a state of this instance, so no run of it gets there;"
        yield "  an invariant is missing"
    else:
        yield f"not traced to the state in which the engine starts ({back.looked_at} states looked at)"


def state_in_words(state: ConcreteState) -> Iterator[str]:
    """Whatever is not as in an empty cache, an element a line."""
    facts: dict[str, list[str]] = {}
    for number in state.unusual:
        field, where = SLOT_ELEMENTS[number]
        if field not in FIELDS[BLOCK, KEY]:
            facts.setdefault(_subject(field, where), []).append(_fact(field, state.values[number]))
    for block in range(1, BLOCKS):
        shown = {content: _longest(state.shown(content, block)) for content in FIELDS[BLOCK, KEY]}
        if len(set(shown.values())) == 1:
            told = [f"holds {shown['now']}"] if shown["now"] else []
        else:
            words = {"now": "in memory", "seen": "for the reads of this step", "last": "once it has run"}
            told = [f"holds {shown[content] or 'nothing'} {words[content]}" for content in FIELDS[BLOCK, KEY]]
        if told:
            facts.setdefault(f"block {block}", []).extend(told)
    yield from (f"{subject}: {', '.join(told)}" for subject, told in facts.items())


def _longest(labels: frozenset[Label]) -> str:
    longest = {(label.group, label.prefix) for label in labels}
    kept = (
        (group, prefix)
        for group, prefix in sorted(longest)
        if not any(group == g and begins(prefix, p) and prefix != p for g, p in longest)
    )
    return " and ".join(_key(Label(*each)) for each in kept)


def _key(label: Label) -> str:
    kind = "state" if CONFIGURATION.groups[label.group].recurrent else "attention"
    return f"{kind} of group {label.group} at {len(label.prefix)} tokens ({' '.join(label.prefix)})"


def _subject(field: str, where: tuple[object, ...]) -> str:
    kinds = next((kinds for kinds, fields in FIELDS.items() if field in fields), (BLOCK,))
    return ", ".join(told_element(kind, element) for kind, element in zip(kinds, where, strict=True))


def _fact(field: str, value: tuple[object, ...]) -> str:
    name = field.replace("_", " ")
    (one, *others) = value
    if field == "status":
        return STATUS_WORDS[one] if isinstance(one, int) else str(one)
    if others:
        return f"{name} {told_element(ENTRY, value)}"
    if isinstance(one, Label):
        return f"{name}: {_key(one)}"
    if field in ("table", "found", "copy_of"):
        return f"{name} {told_element(BLOCK, one)}"
    if field == "writer":
        return f"{name} {told_element(REQUEST, one)}"
    return name if one is True else f"{name} {one}"
