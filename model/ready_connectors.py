"""Ready-made leaves, named after the vLLM connectors whose contract they take (vllm 0.28 to 0.33), and dishonest ones.

Each dishonest leaf breaks exactly one clause of the leaf contract; each is needed to show that the clause is.
"""

from __future__ import annotations

import attrs

from model.connector import Conduct, Contract, Leaf, StateRestored, least_conduct
from model.peer import PeerRules
from model.store_rules import Guard, StoreRules

BACKED_STORE = Leaf("backed_store", claims=False, contract=Contract.BACKED)
"""A store of which nothing more is known: the weakest contract that a non-claimer may keep."""

STORE = Leaf("store", claims=False, contract=Contract.ENDPOINT)
"""Offloading, SimpleCPUOffload, Mooncake store: state@R looked up at R itself, attention below L never loaded."""

NIXL = Leaf("nixl", claims=True, contract=Contract.ENDPOINT, conduct=least_conduct(Contract.FULL))
"""Claims; loads each group's unhashed blocks, so a lagging second attention group too: more than the claim says."""

MORIIO = Leaf("moriio", claims=True, contract=Contract.ENDPOINT)
"""MoRIIO (0.31) in read mode with Mamba transfer: claims, and restores what the claim says."""

ATTENTION_ONLY = Leaf(
    "attention_only", claims=False, contract=Contract.BACKED, conduct=Conduct(state=StateRestored.NEVER)
)
"""A store that keeps no recurrent state: honest for a hybrid model only while it answers E = 0."""

OFFLOADING = Leaf(
    "offloading",
    claims=False,
    contract=Contract.ENDPOINT,
    store=StoreRules(asynchronous=True, delayed=True, guard=Guard.FENCE),
)
"""`OffloadingConnector` with its objects: a pending save is done before its block changes hands."""

MOONCAKE_STORE = Leaf(
    "mooncake_store",
    claims=False,
    contract=Contract.ENDPOINT,
    store=StoreRules(asynchronous=True, delayed=True, guard=Guard.REFERENCE),
)
"""`MooncakeStoreConnector` and `SimpleCPUOffloadConnector` with their objects: a pending save references its block."""

NIXL_PULL = Leaf("nixl_pull", claims=True, contract=Contract.FULL, peer=PeerRules())
"""`NixlConnector` on the decode side, with what its peer has: everything but the prompt's last token, once."""

DISHONEST = {
    "claim": Leaf("claims_only", claims=True, contract=Contract.ENDPOINT, conduct=least_conduct(Contract.BACKED)),
    "state": ATTENTION_ONLY,
    "attention": Leaf(
        "no_attention",
        claims=False,
        contract=Contract.ENDPOINT,
        conduct=attrs.evolve(least_conduct(Contract.ENDPOINT), omitted_groups=(0,)),
    ),
    "range": Leaf(
        "whole_prompt",
        claims=False,
        contract=Contract.ENDPOINT,
        conduct=attrs.evolve(least_conduct(Contract.ENDPOINT), within_range=False),
    ),
    "unassigned": Leaf(
        "meddler",
        claims=False,
        contract=Contract.ENDPOINT,
        conduct=attrs.evolve(least_conduct(Contract.ENDPOINT), writes_unassigned=True),
    ),
}
"""Clause of the leaf contract -> a leaf that breaks this clause and no other."""

READY = {
    leaf.name: leaf
    for leaf in (
        BACKED_STORE,
        STORE,
        NIXL,
        MORIIO,
        OFFLOADING,
        MOONCAKE_STORE,
        NIXL_PULL,
        ATTENTION_ONLY,
        *DISHONEST.values(),
    )
}
"""Every leaf of this module by name."""
