"""POLICY-TOTAL: no part of a policy raises on a reachable input, and every way through it was followed."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import z3

from model.errors import PolicyError
from properties.verdict import Verdict
from solver.decide import Decider, fails_for
from solver.finding import Finding, combined, finding_of, unknown
from solver.forking import Exploration
from solver.obligation import Assumption, Obligation, all_of, any_of

NOT_SYMBOLIC = (TypeError, AttributeError, NotImplementedError)
"""What Python raises when a symbolic value is used as only an int can be."""


@attrs.frozen
class Part:
    """One explored part of a policy, or several that are called together.

    `laws` are those under which it was explored, `lemmas` what else is known of its arguments. `search` looks for a
    replayed trace in which the part raises, or says why there is none.
    """

    name: str
    exploration: Exploration[None]
    laws: tuple[Assumption, ...]
    search: Callable[[], Finding | str]
    lemmas: tuple[Assumption, ...] = ()
    small: tuple[z3.BoolRef, ...] = ()

    @property
    def feasible_paths(self) -> int:
        """Paths for which an example of small sizes was found."""
        return sum(_can_be_taken(self, path.conditions) for path in self.exploration.paths)

    @property
    def exhaustive(self) -> Obligation:
        """The branches that the evaluator left out are infeasible."""
        left_out = z3.Not(any_of(self.exploration.infeasible))
        return Obligation(f"the paths through {self.name} are all there are", self.laws, left_out, self.small)

    @property
    def never_raises(self) -> Obligation:
        """No path that raises is feasible."""
        raising = z3.Not(self.exploration.raises)
        return Obligation(f"{self.name} does not raise", self.laws + self.lemmas, raising, self.small)


def _can_be_taken(part: Part, conditions: tuple[z3.BoolRef, ...]) -> bool:
    taken = Obligation("", (*part.laws, *part.lemmas), z3.Not(all_of(conditions)), part.small)
    return fails_for(taken.exact, taken.small)


def examine_part(part: Part, decider: Decider) -> Finding:
    """Whether the part returns on every input, and how many of its paths can be taken at all.

    Raises PolicyError if it raises on symbolic values only.
    """
    if part.exploration.endless:
        return unknown(part.exploration.endless)
    obligations = [part.exhaustive]
    if part.exploration.raising:
        obligations.append(part.never_raises)
    finding = combined(finding_of(decider.decide(obligation)) for obligation in obligations)
    finding = attrs.evolve(finding, paths=len(part.exploration.paths), feasible_paths=part.feasible_paths)
    if finding.proved or not part.exploration.raising:
        return finding
    found = part.search()
    if isinstance(found, Finding):
        return found
    raised = part.exploration.raising[0].raised
    assert raised is not None
    if isinstance(raised.error, NOT_SYMBOLIC):
        raise PolicyError(
            f"{raised.place}: `{raised.part}` cannot be made symbolic ({type(raised.error).__name__}: {raised.error}); "
            "use comparisons, +, -, *, //, %, min and max only"
        )
    return Finding(Verdict.CTI, reason=f"{raised}; {found}")
