"""What a cache-hit policy is: a handful of pure functions, written once and run by every engine.

The model and the fuzzer call these functions with ints; the prover calls the same function objects with symbolic
values. So that both can, a policy reads the groups only through `Summary`, and a composite only through folds
(a start value and a step that adds one child). Tokens are ints throughout; a boundary n is a prefix of n tokens.
"""

from __future__ import annotations

import enum
from typing import Any, Protocol

import attrs


class Lookup(enum.Enum):
    """Which lookup a connector gets: one boundary common to all groups, or each group's own hit."""

    COMMON = "common"
    PER_GROUP = "per_group"


COMMON = Lookup.COMMON
PER_GROUP = Lookup.PER_GROUP

NO_SOURCE = -1
"""`Answer.source` of an answer that no leaf stands behind."""


@attrs.frozen
class Answer:
    """What a connector says to `get_num_new_matched_tokens`.

    `unknown` asks to be asked again later. `tokens` is E, counted from the boundary that was asked. `source`
    identifies the leaf whose load would serve E.
    """

    unknown: bool
    tokens: int
    asynchronous: bool
    source: int


NOTHING = Answer(unknown=False, tokens=0, asynchronous=False, source=NO_SOURCE)
UNKNOWN = Answer(unknown=True, tokens=0, asynchronous=False, source=NO_SOURCE)


@attrs.frozen
class Child:
    """What a composite sees of one child when it works out its own claim."""

    claims: bool


@attrs.frozen
class Summary:
    """All that a policy sees of the groups, whatever their number. Boundaries in tokens, each at most the cap.

    Equal specs count as one hit (vLLM looks them up together).
    """

    lookup: Lookup
    """The lookup that this policy's `lookup` chose."""
    full_attention: int
    """Hit of the first full-attention spec, the reference."""
    shallowest: int
    """Least hit of all specs."""
    deepest: int
    """Greatest hit of all specs."""
    lowest_attention: int
    """Least hit of all non-recurrent specs, the reference included."""
    common: int
    """The reconciled hit: what `accept`, repeated until nothing shrinks, leaves of the cap."""
    aligned_common: int
    """The deepest multiple of the scheduler block, `common` at most, that is common to all groups: another lookup than
    cutting `common`. Equal to it where no partial tail can be."""
    scheduler_block: int
    """LCM of the groups' blocks, in tokens."""
    copied_before_load: int = 0
    """Mamba block, in tokens, where the worker copies the last state before a synchronous load is complete (1 where a
    chunk may leave any block for its drafts); 0 where the load comes first or no group is recurrent."""


def tokens_used(policy: Policy, answer: Answer, asked: int, summary: Summary, N: int) -> int:
    """What the optional part `usable` of a policy makes of an answer: the tokens that `settle` gets to see."""
    usable = getattr(policy, "usable", None)
    tokens: int = answer.tokens if usable is None else usable(answer, asked, summary, N)
    return tokens


def falls_back(policy: Policy) -> bool:
    """What the optional part `falls_back` of a policy says: whether every hit is looked up again when a load that it
    settled on is given up after all, and not only one that diverged."""
    return bool(getattr(policy, "falls_back", False))


class GroupView(Protocol):
    """One spec (the groups with that spec) as `accept` sees it during the reconciling lookup."""

    @property
    def recurrent(self) -> bool:
        """Whether the spec keeps a recurrent state (valid only at checkpoints)."""

    @property
    def hit(self) -> int:
        """The spec's own greatest valid boundary up to the cap, in tokens."""

    def find(self, bound: int) -> int:
        """A new search: the greatest valid boundary of this spec that is at most `bound` (0 if there is none)."""


class Policy(Protocol):
    """The parts of a cache-hit policy. `docs/writing-a-policy.md` tells how to write one."""

    name: str

    claim_start: Any
    """Claim accumulator of a composite before its first child; a small hashable value."""

    choose_start: Answer
    """A composite's answer before its first child has answered."""

    def cap(self, N: int) -> int:
        """The most a lookup may report for a request of `N` tokens (vLLM: `request.num_tokens - 1`)."""

    def accept(self, group: GroupView, candidate: int) -> int:
        """One step of the reconciling lookup: accept the candidate for one group, or lower it."""

    def claim_step(self, acc: Any, child: Child) -> Any:
        """Add one child to a composite's claim."""

    def claim_end(self, acc: Any) -> bool:
        """The composite's claim once all children were added."""

    def choose_step(self, acc: Answer, child_answer: Answer) -> Answer:
        """Add one child's answer to a composite's answer (asked in order)."""

    def assign(self, E: int, won: bool) -> int:
        """Tokens that a child is told to load after allocation; `won` if the chosen answer came from it."""

    def lookup(self, claims: bool) -> Lookup:
        """Which lookup a connector gets that claims, or does not claim, to restore lagging state."""

    def local(self, summary: Summary) -> tuple[int, bool]:
        """The local hit L and whether it diverged, that is, lies deeper than some group's hit."""

    def ask(self, L: int, summary: Summary) -> int:
        """The boundary from which the connector is asked."""

    def settle(self, L: int, diverged: bool, asked: int, E: int, summary: Summary, N: int) -> tuple[int, int]:
        """The local and external tokens that are adopted, given the answer `E` to the question from `asked`."""
