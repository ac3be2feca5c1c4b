"""The engine `prove`: every obligation about one policy, as results of the common schema. Start reading here.

The proof has parts: the lookup loop (lookup_proof), composites (composition_proof), decisions (decision_proof). What
one assumes of another is a lemma, and a result is never better than the lemmas that its proof uses.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

import attrs

from model.configuration import ConfigurationClass
from model.policy import Policy
from properties.verdict import AGREEMENT, ALL_CELLS, CACHE_SOUNDNESS, REQUIRED_CELL, Case, Cell, Result, Verdict
from solver import guards
from solver.composition_proof import CompositionFindings, examine_composition
from solver.decide import Decider
from solver.decision import STATEMENTS, WEAKEST, Admission, explore_admission
from solver.decision_proof import DecisionProof, in_cell
from solver.finding import Finding, combined, resting_on
from solver.guards import DroppedGuard, Fate
from solver.laws import ONLY_CLAIMERS
from solver.lookup_proof import LookupFindings, examine_lookup
from solver.reach import examine_greatest, examine_reach
from solver.soundness.results import soundness_summary

ENGINE = "prove"

NOT_NEEDED = frozenset({"policy", "case"})
"""Names in a core that are no assumptions about the world."""


@attrs.frozen
class _Entry:
    """One result in the making: what about, and what was found."""

    property: str
    finding: Finding
    cell: Cell | None = None
    case: Case | None = None
    required: bool = True


def prove(
    policy: Policy,
    *,
    cells: Sequence[Cell] = ALL_CELLS,
    required: Collection[Cell] = (REQUIRED_CELL,),
    at_least: Policy | None = None,
    greatest: bool = False,
    cache_soundness: Finding | None = None,
    progress: Callable[[str], None] = lambda _: None,
    export: Callable[[str, str], None] = lambda title, text: None,
) -> tuple[Result, ...]:
    """Decide every property of `policy` in `cells`; those in `required`, or in no cell, are required to hold.

    `at_least` is a policy whose reported boundaries REACH demands; with `greatest` it demands the greatest safe ones.
    `cache_soundness` is what was found about the cache (solver/soundness/); without it, it is assumed. `export` is
    given title and SMT-LIB text of every
    obligation. Raises PolicyError for a policy that lacks a part, returns a wrong type, or cannot be made symbolic.
    """
    decider = Decider(export)
    progress(f"prove {policy.name}: lookup")
    lookup = examine_lookup(policy, decider)
    progress(f"prove {policy.name}: composites")
    composition = examine_composition(policy, decider)
    progress(f"prove {policy.name}: decisions")
    admission = explore_admission(policy)
    cache = cache_soundness or Finding(Verdict.PROVED)
    proof = DecisionProof(policy, admission, _lemmas(lookup, composition, cache), decider)
    entries = [
        *_by_cell(proof, lookup, cells, required),
        *_everywhere(proof, lookup, composition),
        _reach(policy, admission, lookup, proof, at_least, greatest, decider),
    ]
    progress(f"prove {policy.name}: guards")
    dropped = tuple(_dropped_guards(policy, admission, lookup, composition, entries))
    results = tuple(_result(entry, dropped) for entry in entries)
    if cache_soundness is None:
        return results
    return (*(_grounded(result, cache_soundness) for result in results), soundness_summary(cache_soundness))


def _grounded(result: Result, cache_soundness: Finding) -> Result:
    """The result of a proof that uses cache soundness, with what that rests on in its place."""
    if not cache_soundness.proved or CACHE_SOUNDNESS not in result.assumes:
        return result
    rest = tuple(name for name in result.assumes if name != CACHE_SOUNDNESS)
    return attrs.evolve(result, assumes=(*rest, AGREEMENT))


def _lemmas(
    lookup: LookupFindings, composition: CompositionFindings, cache: Finding
) -> dict[ConfigurationClass, dict[str, Finding]]:
    return {
        configuration_class: {
            "HIT-SHRINK": lookup.shrink,
            "HIT-MEMBER": lookup.member[configuration_class],
            ONLY_CLAIMERS: composition.only_claimers,
            "LOAD-SOURCE": composition.source,
            CACHE_SOUNDNESS: cache,
        }
        for configuration_class in ConfigurationClass
    }


def _by_cell(
    proof: DecisionProof, lookup: LookupFindings, cells: Sequence[Cell], required: Collection[Cell]
) -> Iterator[_Entry]:
    """Properties that depend on the cell."""
    for statement in STATEMENTS:
        if statement.depends_on:
            for cell in cells:
                finding = proof.examine(statement, cell)
                if statement.property == "HIT-MEMBER":
                    loop = lookup.member[cell.configuration_class]
                    finding = combined((finding, in_cell(proof.policy, "HIT-MEMBER", None, loop, cell)))
                yield _Entry(statement.property, finding, cell, statement.case, cell in required)


def _everywhere(proof: DecisionProof, lookup: LookupFindings, composition: CompositionFindings) -> Iterator[_Entry]:
    """Properties that hold in every cell or in none; CAP-MEET has a half in the composites and one in the decision."""
    yield _Entry("HIT-SHRINK", lookup.shrink)
    for statement in STATEMENTS:
        if not statement.depends_on:
            finding = proof.examine(statement, WEAKEST)
            if statement.property == "CAP-MEET":
                finding = combined((composition.claim, finding))
            yield _Entry(statement.property, finding, case=statement.case)
    yield _Entry("LOAD-SOURCE", composition.source)
    yield _Entry("ASK-UNKNOWN", composition.again, required=False)
    yield _Entry("POLICY-TOTAL", combined((lookup.total, composition.total, proof.total)))


def _reach(
    policy: Policy,
    admission: Admission,
    lookup: LookupFindings,
    proof: DecisionProof,
    at_least: Policy | None,
    greatest: bool,
    decider: Decider,
) -> _Entry:
    demanded = []
    if at_least is not None:
        demanded.append(examine_reach(policy, admission, at_least, decider))
    if greatest:
        demanded.append(examine_greatest(policy, admission, decider))
    if not demanded:
        return _Entry("REACH", lookup.greatest, required=False)
    compared = combined(demanded)
    for name, basis in (("HIT-MEMBER", lookup.member[WEAKEST.configuration_class]), ("POLICY-TOTAL", proof.total)):
        compared = resting_on(compared, name, basis)
    return _Entry("REACH", combined((lookup.greatest, compared)))


def _dropped_guards(
    policy: Policy,
    admission: Admission,
    lookup: LookupFindings,
    composition: CompositionFindings,
    entries: Sequence[_Entry],
) -> Iterator[DroppedGuard]:
    """Guards of the parts that could be followed to the end."""
    proved = {(entry.property, entry.case, entry.cell) for entry in entries if entry.finding.proved}
    held = []
    seen = set()
    for cell in sorted(ALL_CELLS, key=lambda cell: cell != REQUIRED_CELL):
        for statement in STATEMENTS:
            where = cell if statement.depends_on else None
            key = (statement, *(getattr(cell, field) for field in statement.depends_on))
            if (statement.property, statement.case, where) in proved and key not in seen:
                seen.add(key)
                held.append((statement, cell if statement.depends_on else WEAKEST))
    if not admission.exploration.endless:
        yield from guards.drop_in_admission(policy, admission, held)
    if not lookup.step.exploration.endless:
        members = [cell for property, _, cell in proved if property == "HIT-MEMBER" and cell is not None]
        yield from guards.drop_in_lookup(policy, lookup.step, members)
    yield from guards.drop_in_composition(policy, composition.choice, composition.assign)


def _result(entry: _Entry, dropped: Sequence[DroppedGuard]) -> Result:
    finding = entry.finding
    return Result(
        property=entry.property,
        engine=ENGINE,
        verdict=finding.verdict,
        required=entry.required,
        cell=entry.cell,
        case=entry.case,
        scope=finding.scope if finding.verdict is Verdict.HOLDS_WITHIN else "",
        assumes=_assumed(entry) if finding.verdict in (Verdict.PROVED, Verdict.HOLDS_WITHIN) else (),
        solvers=finding.solvers,
        reason=finding.reason,
        trace=finding.trace,
        detail={
            "core": list(finding.core),
            "obligations": finding.obligations,
            "paths": finding.paths,
            "feasible_paths": finding.feasible_paths,
            "guards": [str(guard) for guard in dropped if _belongs(guard, entry)],
        },
    )


def _assumed(entry: _Entry) -> tuple[str, ...]:
    """What the proof used. That HIT-MEMBER of a decision rests on HIT-MEMBER of the lookup needs no mention."""
    return tuple(name for name in entry.finding.core if name not in NOT_NEEDED and name != entry.property)


def _belongs(guard: DroppedGuard, entry: _Entry) -> bool:
    """A guard is shown with the property that needs it; one that nothing needs, with POLICY-TOTAL."""
    if guard.fate is not Fate.NOTICED:
        return entry.property == "POLICY-TOTAL"
    return (guard.property, guard.case) == (entry.property, entry.case) and guard.cell in (None, entry.cell)
