"""Connectors that transfer a request's own blocks from a peer that has run its prompt (P/D): a source used only once.

Mirrors `NixlPullConnectorScheduler` (vllm/distributed/kv_transfer/kv_connector/v1/nixl/pull_scheduler.py). The peer
holds the attention KV of the first n tokens and, for it has run them, no other recurrent state than state@n.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator

import attrs

from model.geometry import columns_for


class AskedAgain(enum.Enum):
    """What a peer leaf answers about a request whose transfer has been announced before."""

    NOTHING = "nothing"
    """Its blocks are freed at the peer once they are read (vLLM: `do_remote_prefill` is set to false)."""
    THE_SAME = "the_same"
    """Tokens for which no transfer will come (MoRIIO, vLLM #53250)."""


class Placement(enum.Enum):
    """Which local column a remote one is copied to."""

    BY_POSITION = "by_position"
    """The one of the same tokens."""
    BY_COUNT = "by_count"
    """The last of the remote columns to the columns that are to be loaded, one by one (vLLM #50558)."""


class Counting(enum.Enum):
    """Of what a peer leaf counts the tokens it answers."""

    HELD = "held"
    """Of what the peer holds."""
    PROMPT = "prompt"
    """Of the whole prompt, though something was appended to it on the way (vLLM #50558)."""


@attrs.frozen
class PeerRules:
    """The rules of one peer leaf; its loads are asynchronous or not, all alike.

    Which tokens the peer holds, the script of a request says: the n of its first answer, not counted from L.
    """

    asynchronous: bool = True
    asked_again: AskedAgain = AskedAgain.NOTHING
    placement: Placement = Placement.BY_POSITION
    counting: Counting = Counting.HELD

    @property
    def backs_its_answers(self) -> bool:
        """Whether each answer leads to the boundary up to which the peer holds everything, and a load brings it: the
        contract FULL."""
        return self == PeerRules(self.asynchronous)


def moves(rules: PeerRules, held: int, block: int, columns: range) -> Iterator[tuple[int, int]]:
    """(remote column, local column) of each attention block that is copied for the local `columns` of one group."""
    remote = columns_for(held, block)
    if rules.placement is Placement.BY_POSITION:
        yield from ((column, column) for column in columns if column < remote)
        return
    first = max(0, remote - len(columns))
    yield from zip(range(first, remote), columns, strict=False)
