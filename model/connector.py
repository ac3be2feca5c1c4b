"""KV connectors: leaves with a claim, a contract and a conduct, composed in trees (vLLM: `MultiConnector`).

*Claim* is what a leaf declares (`supports_divergent_local_hybrid_hits`). *Contract* is what it promises when it
answers E > 0. *Conduct* is what its load really restores; the worker executes the conduct, never the promise.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator

import attrs

from model.errors import ConfigurationError
from model.peer import PeerRules
from model.store_rules import StoreRules


class Contract(enum.IntEnum):
    """What a load for R = L + E contains at least, beside the attention KV of [L, R) in every attention group.

    BACKED: state@R if every recurrent group holds state@L at the L that was shown.
    ENDPOINT: state@R, whatever is local. This is what an honest claim promises.
    FULL: ENDPOINT, and the attention KV below L of every attention group that lags behind L.
    """

    BACKED = 1
    ENDPOINT = 2
    FULL = 3


class StateRestored(enum.Enum):
    """When a load brings state@R."""

    NEVER = "never"
    IF_BACKED = "if_backed"
    ALWAYS = "always"


@attrs.frozen
class Conduct:
    """What a leaf's load really does.

    `omitted_groups` names groups (indexes) for which it restores nothing at all. A leaf that is not `within_range`
    may answer beyond N - 1 - L. A leaf that `writes_unassigned` writes into the request's blocks although another
    leaf was assigned the tokens; one that `reports_unassigned` reports that its load has ended though it was told to
    load nothing.
    """

    state: StateRestored
    lagging_attention: bool = False
    omitted_groups: tuple[int, ...] = ()
    within_range: bool = True
    writes_unassigned: bool = False
    reports_unassigned: bool = False

    @property
    def acts_unassigned(self) -> bool:
        """Whether it does anything although another leaf was assigned the tokens."""
        return self.writes_unassigned or self.reports_unassigned


def least_conduct(contract: Contract) -> Conduct:
    """The least that `contract` permits; corpus and proof judge a policy by this."""
    state = StateRestored.IF_BACKED if contract is Contract.BACKED else StateRestored.ALWAYS
    return Conduct(state=state, lagging_attention=contract is Contract.FULL)


@attrs.frozen
class Leaf:
    """One connector. Without an explicit conduct it does the least its contract permits.

    With `store`, its answers and loads come from the objects that it keeps; with `peer`, from what a peer has of the
    request. Then there is no conduct to choose.
    """

    name: str
    claims: bool
    contract: Contract
    conduct: Conduct = attrs.field()
    store: StoreRules | None = None
    peer: PeerRules | None = None

    @conduct.default
    def _least(self) -> Conduct:
        return least_conduct(self.contract)

    def __attrs_post_init__(self) -> None:
        if not self.name:
            raise ConfigurationError("a leaf needs a name; answers are addressed by it")
        if self.store is not None and self.peer is not None:
            raise ConfigurationError(f"leaf {self.name!r} is a store and a peer; make two leaves of it")
        if (self.store or self.peer) and self.conduct != least_conduct(self.contract):
            raise ConfigurationError(
                f"leaf {self.name!r} restores what its store or its peer has; leave its conduct out"
            )

    @property
    def honest(self) -> bool:
        """Whether claim and conduct keep the contract: every clause, and a claim promises at least ENDPOINT."""
        least, conduct = least_conduct(self.contract), self.conduct
        strength = list(StateRestored)
        return (
            strength.index(conduct.state) >= strength.index(least.state)
            and (conduct.lagging_attention or not least.lagging_attention)
            and not conduct.omitted_groups
            and conduct.within_range
            and not conduct.acts_unassigned
            and (not self.claims or self.contract >= Contract.ENDPOINT)
            and (self.store is None or (self.store.backs_its_answers and self.contract <= Contract.ENDPOINT))
            and (self.peer is None or self.peer.backs_its_answers)
        )


@attrs.frozen
class Composite:
    """A connector made of connectors, asked in order; any width, nested to any depth (vLLM: `MultiConnector`)."""

    children: tuple[Connector, ...]


Connector = Leaf | Composite


def leaves_of(connector: Connector) -> Iterator[Leaf]:
    """Leaves in the order in which they are asked."""
    if isinstance(connector, Leaf):
        yield connector
    else:
        for child in connector.children:
            yield from leaves_of(child)


def may_diverge(connector: Connector) -> bool:
    """Whether a lookup that may diverge is safe to offer: the ground truth of CAP-MEET.

    Every child claims, at any depth, and an empty composite claims nothing.
    """
    if isinstance(connector, Leaf):
        return connector.claims
    return bool(connector.children) and all(may_diverge(child) for child in connector.children)
