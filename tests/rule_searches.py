"""Rules that no report's case has, each with the search that shows what it does: the fuzzer finds what it violates, or
nothing where it is sound."""

from __future__ import annotations

import attrs

from model.configuration import ConfigurationClass, Eviction, WorkerOrder
from model.connector import Contract, Leaf
from model.policies import POLICIES
from model.release import NEWEST, Release
from model.rules.loads import Recovery
from model.rules.scheduling import PreemptedChunk
from model.rules.states import OutgrownAlias, SharedTail
from model.store_rules import Agreement, AtReset, LastToken, LoadPins, Match, NullBlocks, StoreRules
from properties.features import Feature
from properties.machine import Campaign
from properties.policy_guard import guarded
from properties.verdict import Case, Cell


@attrs.frozen
class Search:
    """Runs under one rule. `violates` is what they have to find; None where they may find nothing that is required."""

    violates: str | None
    case: Case | None = None
    release: Release = NEWEST
    store: StoreRules | None = None
    tails: bool = False
    windows: bool = False
    priorities: bool = False

    @property
    def connector(self) -> Leaf | None:
        if self.store is None:
            return None
        return Leaf("store", claims=False, contract=Contract.ENDPOINT, store=self.store)

    @property
    def campaign(self) -> Campaign:
        kind = ConfigurationClass.ONE_ATTENTION_SPEC
        if self.tails or self.windows:
            tails, windows = (
                ConfigurationClass.ONE_ATTENTION_SPEC_PARTIAL_TAILS,
                ConfigurationClass.SECOND_ATTENTION_SPEC,
            )
            kind = tails if self.tails else windows
        features = {
            Feature.STORES: self.store is not None,
            Feature.PARTIAL_TAILS: self.tails,
            Feature.PRIORITIES: self.priorities,
        }
        return Campaign(
            guarded(POLICIES["vllm-0.28"]),
            Cell(Contract.ENDPOINT, WorkerOrder.LOAD_BEFORE_COPY, kind),
            Eviction.ADVERSARIAL,
            features=frozenset(feature for feature, drawn in features.items() if drawn),
            release=self.release,
            connector=self.connector,
        )


SEARCHES = {
    "failures go unnoticed": Search("LOAD-ROLLBACK", release=attrs.evolve(NEWEST, recovery=Recovery.UNNOTICED)),
    "rank 0 is asked for all": Search("HIT-MEMBER", Case.EXTERNAL, store=StoreRules(agreement=Agreement.FIRST_RANK)),
    "a store outlives a reset": Search("STATE-VISIBLE", store=StoreRules(at_reset=AtReset.KEPT)),
    "all tokens are answered": Search("HIT-LAST", Case.EXTERNAL, store=StoreRules(last_token=LastToken.INCLUDED)),
    "answers pin objects": Search("LOAD-PIN", store=StoreRules(load_pins=LoadPins.FROM_ANSWER)),
    "the block around a state": Search(
        "HIT-RESUME", Case.EXTERNAL, store=StoreRules(match=Match.BLOCK_AROUND), tails=True
    ),
    "an object lacks what a window sees": Search(
        "STATE-LABEL", store=StoreRules(object_blocks=2, null_blocks=NullBlocks.LAST_DECIDES), windows=True
    ),
    "an outgrown alias is refused": Search(
        None, release=attrs.evolve(NEWEST, outgrown_alias=OutgrownAlias.REFUSED), tails=True
    ),
    "a tail of the step is not hit": Search(
        None, release=attrs.evolve(NEWEST, shared_tail=SharedTail.NEXT_STEP), tails=True
    ),
    "hashes of a preempted chunk stay": Search("STATE-LABEL", release=NEWEST, priorities=True),
    "hashes of a preempted chunk are withdrawn": Search(
        None, release=attrs.evolve(NEWEST, preempted_chunk=PreemptedChunk.WITHDRAWN), priorities=True
    ),
}
