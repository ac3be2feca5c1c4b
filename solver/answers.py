"""LOAD-SOURCE for composites: the answer of a composite is one that one of its leaves stands behind.

One arbitrary child's answer is added to an arbitrary answer so far. By induction hypothesis both keep the leaf
contract: a positive answer is what its source promised. The result must keep it too, whatever the width and, since a
nested composite is such a child, whatever the depth. What a leaf promised are uninterpreted functions of the leaf.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping

import attrs
import z3

from model.composition import chooses_by_list
from model.errors import PolicyError
from model.policy import NO_SOURCE, UNKNOWN, Answer, Policy
from properties.policy_guard import call, part_of
from solver.claims import LONGEST_LIST
from solver.forking import Exploration, ForkingRun, Site, explore
from solver.laws import CLAUSES
from solver.obligation import Assumption, Obligation

ADVICE = (
    f"checked for composites of at most {LONGEST_LIST} children only; for a proof write the choice as a fold: "
    "choose_start, choose_step(acc, child_answer)"
)

_INT, _BOOL = z3.IntSort(), z3.BoolSort()
PROMISED_TOKENS = z3.Function("tokens that the leaf promised", _INT, _INT)
PROMISED_ASYNCHRONOUS = z3.Function("the leaf promised an asynchronous load", _INT, _BOOL)
STRENGTH = z3.Function("contract of the leaf", _INT, _INT)
CLAIMS = z3.Function("the leaf claims", _INT, _BOOL)
MOST = z3.Int("most tokens that may be answered")


@attrs.frozen(eq=False)
class AnswerSymbols:
    """An arbitrary answer, and what holds of every leaf below it: the least contract, and whether all claim."""

    unknown: z3.BoolRef
    tokens: z3.ArithRef
    asynchronous: z3.BoolRef
    source: z3.ArithRef
    least: z3.ArithRef
    all_claim: z3.BoolRef

    def symbolic(self, run: ForkingRun) -> Answer:
        return Answer(
            unknown=run.truth(self.unknown),  # type: ignore[arg-type]
            tokens=run.number(self.tokens),  # type: ignore[arg-type]
            asynchronous=run.truth(self.asynchronous),  # type: ignore[arg-type]
            source=run.number(self.source),  # type: ignore[arg-type]
        )


def _symbols(name: str) -> AnswerSymbols:
    return AnswerSymbols(
        z3.Bool(f"{name} is unknown"),
        z3.Int(f"tokens of {name}"),
        z3.Bool(f"{name} is asynchronous"),
        z3.Int(f"source of {name}"),
        z3.Int(f"least contract below {name}"),
        z3.Bool(f"every leaf below {name} claims"),
    )


SO_FAR, CHILD, RESULT = _symbols("the answer so far"), _symbols("the child's answer"), _symbols("the result")
E, WON, WRITES = z3.Int("E"), z3.Bool("the child won"), z3.Bool("the child writes")


def folds_answers(policy: Policy) -> bool:
    """Whether the choice is a fold, not a function of the whole list."""
    return not chooses_by_list(policy)


def _contract(answer: AnswerSymbols) -> z3.BoolRef:
    """The leaf contract, as far as the answer itself is concerned."""
    promised = z3.And(
        answer.source != NO_SOURCE,
        answer.tokens == PROMISED_TOKENS(answer.source),
        answer.asynchronous == PROMISED_ASYNCHRONOUS(answer.source),
    )
    return z3.And(
        0 <= answer.tokens,
        answer.tokens <= MOST,
        z3.Implies(answer.unknown, answer.tokens == 0),
        z3.Implies(answer.tokens > 0, promised),
    )


def _strength(answer: AnswerSymbols) -> z3.BoolRef:
    """The winner keeps at least the meet of the contracts, and claims if every leaf does."""
    winner = answer.source
    return z3.Implies(
        answer.tokens > 0,
        z3.And(STRENGTH(winner) >= answer.least, z3.Implies(answer.all_claim, CLAIMS(winner))),
    )


def hypotheses(so_far: AnswerSymbols, child: AnswerSymbols) -> tuple[Assumption, ...]:
    """What the induction grants: both answers keep the leaf contract."""
    return (
        Assumption("request: no negative number of tokens is missing", MOST >= 0),
        Assumption("the answer so far keeps the leaf contract", _contract(so_far)),
        Assumption("the answer so far has the strength of its leaves", _strength(so_far)),
        Assumption("the child's answer keeps the leaf contract", _contract(child)),
        Assumption("the child's answer has the strength of its leaves", _strength(child)),
    )


@attrs.frozen(eq=False)
class Choice:
    """One call of `choose_step`: the symbols of its result, and every way through it."""

    result: AnswerSymbols
    exploration: Exploration[None]

    @property
    def formula(self) -> z3.BoolRef:
        return self.exploration.formula


def explore_step(policy: Policy, whose: str = "", forced: Mapping[Site, bool] | None = None) -> Choice:
    """Every feasible path through `choose_step`. Raises PolicyError."""
    symbols = _symbols(f"the result of {whose}") if whose else RESULT

    def step(run: ForkingRun) -> None:
        result = run.call(policy, "choose_step", SO_FAR.symbolic(run), CHILD.symbolic(run))
        run.define(symbols.unknown, result.unknown)
        run.define(symbols.tokens, result.tokens)
        run.define(symbols.asynchronous, result.asynchronous)
        run.define(symbols.source, result.source)

    exploration = explore(step, (MOST >= 0, _contract(SO_FAR), _contract(CHILD)), forced)
    return Choice(symbols, exploration)


def step_obligations(choice: Choice) -> tuple[Obligation, ...]:
    """LOAD-SOURCE: what one more child must not spoil."""
    assumptions = _step_assumptions(choice)
    return (
        Obligation("the answer is what its source promised", assumptions, _contract(choice.result)),
        Obligation("the winner has the strength of the leaves", assumptions, _strength(choice.result)),
    )


def asks_again(choice: Choice) -> Obligation:
    """ASK-UNKNOWN: one child that does not know makes the composite not know."""
    goal = z3.Implies(z3.Or(SO_FAR.unknown, CHILD.unknown), choice.result.unknown)
    return Obligation("unknown stays unknown", _step_assumptions(choice), goal)


def _step_assumptions(choice: Choice) -> tuple[Assumption, ...]:
    least = z3.If(SO_FAR.least < CHILD.least, SO_FAR.least, CHILD.least)
    all_claim = z3.And(SO_FAR.all_claim, CHILD.all_claim)
    return (
        *hypotheses(SO_FAR, CHILD),
        Assumption("composition: the least contract below is the lesser", choice.result.least == least),
        Assumption("composition: all leaves claim", choice.result.all_claim == all_claim),
        Assumption("policy", choice.formula),
    )


def start_obligation(policy: Policy) -> Obligation:
    """Before its first child has answered a composite promises nothing."""
    start = part_of(policy, "choose_start")
    if type(start) is not Answer or type(start.tokens) is not int:
        raise PolicyError(f"`choose_start` is {start!r}; use a model.policy.Answer, usually model.policy.NOTHING")
    return Obligation(
        "a composite's answer starts from nothing",
        (Assumption("policy: choose_start", RESULT.tokens == start.tokens),),
        RESULT.tokens == 0,
    )


def told(whose: str = "") -> z3.ArithRef:
    """Tokens that a child is told to load by the policy, or by a second one."""
    return z3.Int("tokens that the child is told" + (f" by {whose}" if whose else ""))


def explore_assign(policy: Policy, whose: str = "", forced: Mapping[Site, bool] | None = None) -> Exploration[None]:
    """Every feasible path through `assign`. Raises PolicyError."""

    def assign(run: ForkingRun) -> None:
        run.define(told(whose), run.call(policy, "assign", run.number(E), run.truth(WON)))

    return explore(assign, (ADOPTED.formula,), forced)


ADOPTED = Assumption("tokens adopted", E >= 0)


def only_the_winner_loads(assign: Exploration[None]) -> Obligation:
    """LOAD-SOURCE: the winner loads what was adopted, the others nothing."""
    assumptions = (
        ADOPTED,
        Assumption(CLAUSES["unassigned"], z3.Implies(told() == 0, z3.Not(WRITES))),
        Assumption("policy", assign.formula),
    )
    goal = z3.And(told() == z3.If(WON, E, 0), z3.Or(WON, z3.Not(WRITES)))
    return Obligation("only the winner loads", assumptions, goal)


ALPHABET = (
    (True, 0, False),
    (False, 0, False),
    (False, 1, False),
    (False, 2, True),
)
"""Unknown, tokens, asynchronous: what the children of the short lists may answer."""


def short_lists(longest: int = LONGEST_LIST) -> Iterator[tuple[Answer, ...]]:
    """Answers of the leaves of every composite of at most `longest` leaves, shortest first."""
    for length in range(longest + 1):
        for said in itertools.product(ALPHABET, repeat=length):
            yield tuple(
                Answer(unknown, tokens, asynchronous, source)
                for source, (unknown, tokens, asynchronous) in enumerate(said)
            )


def wrong_answer(policy: Policy) -> tuple[Answer, ...] | None:
    """The shortest list of leaves' answers that the policy turns into one that no leaf stands behind."""
    return next((answers for answers in short_lists() if not _is_kept(policy, answers)), None)


def _is_kept(policy: Policy, answers: tuple[Answer, ...]) -> bool:
    result = _chosen(policy, answers)
    if any(answer.unknown for answer in answers):
        return result.unknown
    if result.unknown or result.tokens == 0:
        return result.tokens == 0
    return result in answers


def _chosen(policy: Policy, answers: tuple[Answer, ...]) -> Answer:
    """As in model/composition.py: nobody is asked any more once the answer is unknown."""
    if chooses_by_list(policy):
        if any(answer.unknown for answer in answers):
            return UNKNOWN
        chosen: Answer = call(policy, "choose", (list(answers),))
        return chosen
    result: Answer = part_of(policy, "choose_start")
    for answer in answers:
        result = call(policy, "choose_step", (result, answer))
        if result.unknown:
            break
    return result
