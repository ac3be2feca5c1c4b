"""Reproduces a public report: its trace under the rules before and after the fix, against what the report states."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from typing import Any

import attrs

from model.errors import IllegalAction
from model.policy import Policy
from model.trace import ExpectedAdmission
from properties.case_document import Case, Variant
from properties.invariant import Violation
from properties.policy_guard import PolicyLoops
from properties.replay import Replay, admissions_of, replay
from properties.verdict import Verdict

SCOPE = "this trace"
"""The bound of a replay that violates nothing."""

PARTS = tuple(name for name in (*vars(Policy), *Policy.__annotations__) if not name.startswith("_") and name != "name")
"""The parts of a policy."""


@attrs.frozen
class Difference:
    """A field of the configuration or a part of the policy that the fix changed, with the values as JSON."""

    field: str
    before: Any
    after: Any


@attrs.frozen
class Run:
    """The trace under one variant. `verdict` is UNKNOWN where the trace is not possible, `problems` say how the run
    differs from what the record states."""

    replayed: Replay | None
    verdict: Verdict
    violations: tuple[Violation, ...]
    problems: tuple[str, ...]


@attrs.frozen
class Reproduction:
    """What became of one case. `problems` are all that is not as the record states."""

    case: Case
    before: Run
    after: Run
    differences: tuple[Difference, ...]
    problems: tuple[str, ...]

    @property
    def reproduced(self) -> bool:
        """Violated as stated before the fix, and absent after it."""
        return not self.problems

    @property
    def verdict(self) -> Verdict:
        """HOLDS_WITHIN if reproduced; VACUOUS if nothing was wrong before: then silence after the fix says nothing."""
        if self.after.verdict is Verdict.VIOLATED:
            return Verdict.VIOLATED
        if self.before.verdict is Verdict.HOLDS_WITHIN:
            return Verdict.VACUOUS
        return Verdict.UNKNOWN if self.problems else Verdict.HOLDS_WITHIN


def reproduce(case: Case) -> Reproduction:
    """Replay both variants of the case."""
    before, after = _before(case), _after(case)
    found = differences(case)
    problems = [f"before: {problem}" for problem in before.problems]
    problems += [f"after: {problem}" for problem in after.problems]
    changed = tuple(difference.field for difference in found)
    if sorted(changed) != sorted(case.fix):
        problems.append(f"the variants differ in {', '.join(changed) or 'nothing'}, the fix is {', '.join(case.fix)}")
    return Reproduction(case, before, after, found, tuple(problems))


def differences(case: Case) -> tuple[Difference, ...]:
    """All that differs between the variants of a case."""
    before, after = (_fields(variant.trace.configuration, "") for variant in (case.before, case.after))
    found = [
        Difference(field, before.get(field), after.get(field))
        for field in sorted({*before, *after})
        if before.get(field) != after.get(field)
    ]
    rules = case.before.rules, case.after.rules
    for part in PARTS:
        old, new = (getattr(type(policy), part) for policy in rules)
        if old is not new and old != new:
            found.append(Difference(f"policy.{part}", *(_defined_in(policy, part) for policy in rules)))
    return tuple(found)


def _before(case: Case) -> Run:
    replayed, problems = _replay(case.before)
    if replayed is None:
        return Run(None, Verdict.UNKNOWN, (), tuple(problems))
    violations: list[Violation] = []
    for expected in case.violates:
        told = [found for found in _found(case, replayed) if found.property == expected.property]
        as_stated = [found for found in told if expected.says in found.message]
        violations += (as_stated or told)[:1]
        if not told:
            problems.append(f"{expected.property} should be violated and is not")
        elif not as_stated:
            problems.append(f"{expected.property}: no message says {expected.says!r}, but {told[0].message!r}")
    verdict = Verdict.VIOLATED if len(violations) == len(case.violates) else Verdict.HOLDS_WITHIN
    return Run(replayed, verdict, tuple(violations), tuple(problems))


def _after(case: Case) -> Run:
    replayed, problems = _replay(case.after)
    if replayed is None:
        return Run(None, Verdict.UNKNOWN, (), tuple(problems))
    tolerated = {each.property for each in case.tolerates}
    wrong = [found for found in _found(case, replayed) if found.property not in tolerated]
    problems += [f"{found.property} is violated: {found.message}" for found in wrong]
    violated = {found.property for found in replayed.violations}
    problems += [f"{property} is tolerated and not violated" for property in sorted(tolerated - violated)]
    return Run(replayed, Verdict.VIOLATED if wrong else Verdict.HOLDS_WITHIN, tuple(wrong), tuple(problems))


def _replay(variant: Variant) -> tuple[Replay | None, list[str]]:
    """The run, and how its values differ from those that are stated."""
    try:
        replayed = replay(variant.trace, variant.rules)
    except (IllegalAction, PolicyLoops) as error:
        return None, [str(error)]
    return replayed, [*_wrong_values(variant, replayed)]


def _wrong_values(variant: Variant, replayed: Replay) -> Iterator[str]:
    admissions = admissions_of(replayed.observations)
    for request in dict.fromkeys(expected.request for expected in variant.admissions):
        stated = [expected for expected in variant.admissions if expected.request == request]
        found = [admission for admission in admissions if admission.request == request][: len(stated)]
        if found != stated:
            yield f"{request}: expected {_told(stated)}; found {_told(found)}"
    for admission in admissions:
        if admission.request in variant.never_admitted:
            yield f"{admission.request} is admitted and should wait"
    assertion = replayed.observations[-1].after.assertion if replayed.observations else ""
    if variant.assertion not in assertion or bool(variant.assertion) != bool(assertion):
        stated_words = f"with {variant.assertion!r}" if variant.assertion else "not"
        found_words = f"fails with {assertion!r}" if assertion else "does not fail"
        yield f"the engine should {stated_words} fail; it {found_words}"


def _told(admissions: list[ExpectedAdmission]) -> str:
    return ", then ".join(f"L = {each.local}, E = {each.external}" for each in admissions) or "no admission"


def _found(case: Case, replayed: Replay) -> Iterator[Violation]:
    """What is violated; a hit below the one that the record calls right violates REACH where no predicate says so."""
    yield from replayed.violations
    told = any(found.property == "REACH" for found in replayed.violations)
    if told or not any(each.property == "REACH" for each in case.violates):
        return
    right: dict[str, ExpectedAdmission] = {}
    for expected in case.after.admissions:
        right.setdefault(expected.request, expected)
    for admission in replayed.admissions:
        stated = right.get(admission.request)
        if stated is not None and admission.local + admission.external < stated.local + stated.external:
            R, safe = admission.local + admission.external, stated.local + stated.external
            yield Violation("REACH", None, f"{admission.request}: R = {R}, and {safe} is safe")


def _fields(value: object, path: str) -> dict[str, Any]:
    """Every field below an attrs value, by its path."""
    kind: Any = type(value)
    if attrs.has(kind):
        found: dict[str, Any] = {}
        for field in attrs.fields(kind):
            found |= _fields(getattr(value, field.name), f"{path}.{field.name}" if path else field.name)
        return found
    if isinstance(value, tuple) and any(attrs.has(type(item)) for item in value):
        return {
            name: item
            for index, element in enumerate(value)
            for name, item in _fields(element, f"{path}.{index}").items()
        }
    if isinstance(value, enum.IntEnum):
        return {path: value.name.lower()}
    if isinstance(value, enum.Enum):
        return {path: value.value}
    return {path: list(value) if isinstance(value, tuple) else value}


def _defined_in(policy: Policy, part: str) -> str:
    """The policy that a part was written for; later ones inherit it."""
    owner = next(kind for kind in type(policy).__mro__ if part in vars(kind))
    return str(getattr(owner, "name", owner.__name__))
