"""`hitbound explain`: a property, a trace or an obligation of the proof, in words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from hitbound import engines
from hitbound.catalogue_page import counterexample_lines, entry_of
from hitbound.explain_trace import trace_explained
from hitbound.judgement import Judgement
from hitbound.matrix import column_words, named
from hitbound.policy_loading import load_policy
from hitbound.progress import progress
from model.errors import HitboundError
from model.policies import DEFAULT_POLICY
from model.policy import Policy
from properties.catalogue import EVENTS, INVARIANTS
from properties.trace_document import read_trace
from properties.verdict import ALL_CELLS, Result, Verdict


class NothingToExplain(HitboundError):
    """What was named is no property, no trace and no obligation."""


def explained(thing: str, asked: str | None) -> list[str]:
    """The lines of the explanation; raises NothingToExplain, PolicyError and TraceDocumentError."""
    property = thing.upper()
    if property in INVARIANTS:
        return list(_property(property, load_policy(asked) if asked else None))
    if property in EVENTS:
        event = EVENTS[property]
        return [f"{event.id}: {event.statement}", f"Runs have to reach it. It applies to {event.applies_to}."]
    if thing.endswith(".json") or Path(thing).is_file():
        trace = read_trace(Path(thing))
        stated = trace.expectations[0].policy if trace.expectations else DEFAULT_POLICY
        return list(trace_explained(trace, load_policy(asked or stated)))
    return list(_obligations(thing, load_policy(asked or DEFAULT_POLICY)))


def _property(property: str, policy: Policy | None) -> Iterator[str]:
    entry = entry_of(property)
    yield f"{entry.id}{f' ({entry.number})' if entry.number else ''}: {entry.statement}"
    yield f"Why: {entry.reason}"
    yield from (f"{name}: {said.replace('`', '')}" for name, said in entry.facts)
    if policy is not None:
        yield ""
        yield from _proof(property, policy)
    if entry.counterexample:
        yield ""
        yield f"Without its guard ({entry.counterexample.source}): {entry.counterexample.guard}."
        yield from counterexample_lines(entry.counterexample)


def _proof(property: str, policy: Policy) -> Iterator[str]:
    """What the proof of the policy found about the property, cell by cell."""
    with progress() as say:
        results = [result for result in engines.prove(policy, say) if result.property == property]
    if not results:
        yield f"The proof of {policy.name} has nothing about it."
    alike: dict[str, list[Result]] = {}
    for result in results:
        alike.setdefault(f"{named(Judgement(policy.name, result))} {_verdict(result)}", []).append(result)
    for told, several in alike.items():
        if len(several) == len(ALL_CELLS):
            yield f"{policy.name}, in all {len(ALL_CELLS)} cells: {told}"
        elif len(several) == 1:
            yield f"{policy.name}, {_where(several[0])}: {told}"
        else:
            yield f"{policy.name}, in {len(several)} of {len(ALL_CELLS)} cells: {told}"
            yield from (f"  {_where(result)}" for result in several)


def _where(result: Result) -> str:
    if result.cell is None:
        return "everywhere"
    return f"honest to {result.cell.contract.name.lower()}, {column_words(result.cell)}"


def _verdict(result: Result) -> str:
    if result.verdict is Verdict.PROVED:
        solvers = " and ".join(result.solvers)
        uses = "; ".join(result.detail.get("core", ())) or "nothing"
        return f"is PROVED by {solvers} ({result.detail.get('obligations', 0)} obligations). It uses: {uses}."
    return f"is {result.verdict.value}: {result.reason}"


def _obligations(words: str, policy: Policy) -> Iterator[str]:
    """Every obligation of the policy's proof whose title contains the words."""
    from solver.prove import prove

    found: dict[str, str] = {}
    with progress() as say:
        prove(policy, progress=say, export=found.__setitem__)
    matching = [title for title in found if words.lower() in title.lower()]
    if not matching:
        titles = "".join(f"\n  {title}" for title in found)
        raise NothingToExplain(
            f"{words}: no property (`hitbound invariants` lists them), no trace file, and no obligation of "
            f"{policy.name}. These are:{titles}"
        )
    for title in matching:
        yield f"Obligation of {policy.name}: {title}."
        assumptions = re.findall(r":named \|([^|]+)\|", found[title])
        yield f"It may use: {'; '.join(name for name in assumptions if name != 'negated goal') or 'nothing'}."
        yield from _decided(found[title])
        yield ""


def _decided(text: str) -> Iterator[str]:
    """What z3 says of the obligation's text, and the numbers of a counterexample."""
    import z3

    solver = z3.Solver()
    solver.set("rlimit", 20_000_000)
    solver.from_string(text)
    answer = solver.check()
    if answer == z3.unsat:
        yield "z3 finds no counterexample, for any sizes: it holds."
    elif answer == z3.sat:
        model = solver.model()
        numbers = sorted(f"{name} = {model[name]}" for name in model.decls() if z3.is_int_value(model[name]))
        yield f"It does not hold, for instance with {', '.join(numbers)}."
        yield "`hitbound prove` looks for a run that shows it."
    else:
        yield f"UNKNOWN: z3 gives up ({solver.reason_unknown()})."
