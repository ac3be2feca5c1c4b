"""Findings about a policy's decisions, statement by statement and cell by cell."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import attrs
import z3

from model.configuration import ConfigurationClass
from model.policy import Policy
from model.trace import Trace
from properties.verdict import Case, Cell, Verdict
from solver import laws
from solver.concretise import counterexample
from solver.confirm import adapted, confirmed
from solver.decide import Decided, Decider
from solver.decision import SMALL, STATEMENTS, WEAKEST, Admission, Statement, explored_laws, known_lemmas
from solver.finding import Finding, finding_of, resting_on, violated
from solver.obligation import Assumption, Obligation
from solver.totality import Part, examine_part

Lemmas = Mapping[ConfigurationClass, Mapping[str, Finding]]
"""What was found about each lemma (solver/laws.py), in each class."""


class DecisionProof:
    """Decides statements about one policy's admissions; remembers what it found."""

    def __init__(self, policy: Policy, admission: Admission, lemmas: Lemmas, decider: Decider) -> None:
        self.policy = policy
        self._admission = admission
        self._decider = decider
        self._lemmas = {key: dict(findings) for key, findings in lemmas.items()}
        self._traces: dict[Statement, list[Trace]] = {}
        self._decided: dict[tuple[object, ...], Finding] = {}
        self.total = self._examine_total()
        exact = next(statement for statement in STATEMENTS if statement.property == "LOAD-EXACT")
        for configuration_class, findings in self._lemmas.items():
            findings["LOAD-EXACT"] = self.examine(exact, attrs.evolve(WEAKEST, configuration_class=configuration_class))

    def examine(self, statement: Statement, cell: Cell) -> Finding:
        """What is known of the statement in the cell."""
        if self._admission.exploration.endless:
            return resting_on(Finding(Verdict.PROVED), "POLICY-TOTAL", self.total)
        key = (statement, *(getattr(cell, field) for field in statement.depends_on))
        if key not in self._decided:
            self._decided[key] = self._decide(statement, cell)
        finding = self._decided[key]
        if statement.depends_on:
            finding = in_cell(self.policy, statement.property, statement.case, finding, cell)
            if finding.trace is None and self._decided[key].trace is not None:
                finding = self._search(statement, cell, finding)
        return resting_on(finding, "POLICY-TOTAL", self.total)

    def _decide(self, statement: Statement, cell: Cell) -> Finding:
        obligation = statement.build(self._admission, cell)
        finding = self._rested(obligation, cell, self._decider.decide)
        if finding.verdict is Verdict.CTI or self._is_misled(finding, cell):
            finding = self._search(statement, cell, finding)
        if finding.verdict is Verdict.CTI:
            exactly = self._rested(obligation, cell, self._decider.decide_exactly)
            finding = finding if exactly.verdict is Verdict.CTI else exactly
        return finding

    def _is_misled(self, finding: Finding, cell: Cell) -> bool:
        """Whether the finding rests on something about its input that was found not to hold."""
        used = laws.INPUT_LEMMAS & set(finding.core)
        failed = (Verdict.CTI, Verdict.VIOLATED)
        return any(self._lemmas[cell.configuration_class][name].verdict in failed for name in used)

    def _rested(self, obligation: Obligation, cell: Cell, decide: Callable[[Obligation], Decided]) -> Finding:
        """The finding on an obligation, as weak as the lemmas that it cannot do without."""
        finding = finding_of(decide(obligation))
        known = self._lemmas[cell.configuration_class]
        unproved = sorted(name for name in laws.LEMMAS & set(finding.core) if not known[name].proved)
        if not unproved:
            return finding
        without = finding_of(decide(obligation.without(unproved)))
        if without.proved:
            return without
        for name in unproved:
            finding = resting_on(finding, name, known[name])
        return finding

    def _search(self, statement: Statement, cell: Cell, finding: Finding) -> Finding:
        """A failure with the trace that shows it, or with the reason why there is none."""
        for trace in self._traces.get(statement, ()):
            again = in_cell(self.policy, statement.property, statement.case, violated(trace), cell)
            if again.trace is not None:
                return again
        reason = ""
        one = attrs.evolve(cell, configuration_class=ConfigurationClass.ONE_ATTENTION_SPEC)
        for where in (cell,) if statement.depends_on else (one, cell):
            found = self._counterexample(statement, where)
            if isinstance(found, Finding) and found.trace is not None:
                self._traces.setdefault(statement, []).append(found.trace)
                return found
            reason = str(found)
        return attrs.evolve(finding, reason=finding.reason or reason)

    def _counterexample(self, statement: Statement, cell: Cell) -> Finding | str:
        known = self._lemmas[cell.configuration_class]
        unproved = [name for name, found in known.items() if not found.proved]
        return counterexample(
            self.policy,
            statement.property,
            statement.case,
            statement.build(self._admission, cell).without(unproved),
            self._admission.decision,
            cell,
            lookup_is_sound=known["HIT-MEMBER"].proved,
        )

    def _examine_total(self) -> Finding:
        part = Part(
            "an admission",
            self._admission.exploration,
            explored_laws(self._admission.decision),
            self._where_it_raises,
            known_lemmas(self._admission.decision),
            SMALL,
        )
        finding = examine_part(part, self._decider)
        for name in sorted(laws.LEMMAS & set(finding.core)):
            finding = resting_on(finding, name, self._lemmas[WEAKEST.configuration_class][name])
        return finding

    def _where_it_raises(self) -> Finding | str:
        decision = self._admission.decision
        raises = Assumption("policy", self._admission.exploration.raises)
        found: Finding | str = ""
        for configuration_class in ConfigurationClass:
            cell = attrs.evolve(WEAKEST, configuration_class=configuration_class)
            assumptions = (*laws.lookup_laws(configuration_class), *laws.answer_laws(decision), raises)
            obligation = Obligation("no part raises", assumptions, z3.BoolVal(False))
            found = counterexample(self.policy, "POLICY-TOTAL", None, obligation, decision, cell)
            if isinstance(found, Finding):
                break
        return found


def in_cell(policy: Policy, property: str, case: Case | None, finding: Finding, cell: Cell) -> Finding:
    """The finding with its trace, if it has one, replayed in the configuration of `cell`; without it, not violated."""
    if finding.trace is None:
        return finding
    trace = adapted(finding.trace, cell)
    again = None if trace is None else confirmed(policy, property, case, trace)
    if again is not None:
        return violated(again)
    return Finding(Verdict.CTI, reason="the trace of another cell does not show it here")
