"""The rules of a connector that keeps objects: how it turns what it has into an answer, and what it keeps.

Each enum is one rule; its first value is what a store has to do, the others are what stores did before they were
repaired. A store has one object per (group, boundary) of a prefix, each of which may go by itself.
"""

from __future__ import annotations

import enum

import attrs


class Match(enum.Enum):
    """Which boundary a lookup finds, among the multiples of the scheduler block beyond the one that was asked."""

    INTERSECTION = "intersection"
    """The greatest at which every group's objects exist (vLLM: `MooncakeStoreCoordinator.find_longest_cache_hit`)."""
    LEAST_OF_GREATEST = "least_of_greatest"
    """The least of what each group has at most (vllm-ascend #11131)."""
    TRUNCATED_ATTENTION = "truncated_attention"
    """Multiples of the hash block: what attention has is cut to what the recurrent groups have (vLLM #50359)."""
    ATTENTION_ONLY = "attention_only"
    """What attention has; no recurrent state is kept or loaded (LMCache #2879, vLLM #41712)."""
    CONSECUTIVE = "consecutive"
    """Every group must also have the block that follows, as if each were a draft model's (vLLM #57616)."""


class LastToken(enum.Enum):
    """What becomes of a match that ends at the request's last token, which has to be run again."""

    BELOW = "below"
    """Not looked for: a match ends at N - 1 or below."""
    COUNTED_OFF = "counted_off"
    """N - 1 tokens are answered, the objects of boundary N are loaded (vLLM #44599, UCM #1130)."""
    INCLUDED = "included"
    """All N tokens are answered (vLLM #51102)."""


class OutputStates(enum.Enum):
    """Whether recurrent states beyond the prompt are stored, as attention is."""

    STORED = "stored"
    DROPPED = "dropped"
    """(vLLM #56972: `MooncakeStoreScheduler._handle_boundary_state_offloads`)"""


@attrs.frozen
class StoreRules:
    """The rules of one store. Its loads are asynchronous or not, all alike."""

    asynchronous: bool = False
    match: Match = Match.INTERSECTION
    last_token: LastToken = LastToken.BELOW
    output_states: OutputStates = OutputStates.STORED

    @property
    def backs_its_answers(self) -> bool:
        """Whether each answer leads to a boundary R <= N - 1 at which all objects exist: then a load brings the
        attention KV of [L, R) and state@R, which is the contract ENDPOINT."""
        return self.match in (Match.INTERSECTION, Match.CONSECUTIVE) and self.last_token is LastToken.BELOW
