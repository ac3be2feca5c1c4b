"""Variants of `Honest` that break one clause of the contract each, and some that do not start."""

from __future__ import annotations

import os
from typing import Any

from honest import Honest, Key, Load


class WholePrompt(Honest):
    """Range: it answers the last token too."""

    def most(self, request: Any) -> int:
        return int(request.num_tokens)


class NoAttention(Honest):
    """Exactness: the last attention block that it answered is not loaded."""

    def copy(self, load: Load) -> None:
        attention = [copy for copy in load.copies if copy[0] == 0]
        super().copy(Load(load.request, load.asynchronous, [copy for copy in load.copies if copy is not attention[-1]]))


class OneAnswer(Honest):
    """Asking is pure: what was answered once is not answered again."""

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> tuple[int | None, bool]:
        if self.asked.get(request.request_id) == num_computed_tokens:
            return 0, False
        return super().get_num_new_matched_tokens(request, num_computed_tokens)


class NoPin(Honest):
    """Pin: a load is made two steps after it was announced, from what the store then still has."""

    capacity = 8

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.waiting: list[list[Any]] = []

    def held(self, key: Key) -> Any:
        return key

    def update_connector_output(self, connector_output: Any) -> None:
        while len(self.store) > self.capacity:
            del self.store[next(iter(self.store))]

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        self.waiting += [[2, load] for load in self._get_connector_metadata().loads]

    def get_finished(self, finished_req_ids: set[str]) -> tuple[None, set[str] | None]:
        for entry in self.waiting:
            entry[0] -= 1
        for _, load in [entry for entry in self.waiting if entry[0] == 0]:
            there = [(group, block, self.store[key]) for group, block, key in load.copies if key in self.store]
            self.copy(Load(load.request, load.asynchronous, there))
            self.received.add(load.request)
        self.waiting = [entry for entry in self.waiting if entry[0] > 0]
        return super().get_finished(finished_req_ids)


class Meddler(Honest):
    """Conduct at 0: it writes into the first block of a request for which it was told to load nothing."""

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        super().update_state_after_alloc(request, blocks, num_external_tokens)
        if not num_external_tokens and self.store:
            (group, _), row = next(iter(self.store.items()))
            self.loads.append(Load(request.request_id, False, [(group, blocks.blocks[group][-1].block_id, row)]))


class Twice(Honest):
    """Completion: it reports each load again."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.again: set[str] = set()

    def get_finished(self, finished_req_ids: set[str]) -> tuple[None, set[str] | None]:
        _, received = super().get_finished(finished_req_ids)
        again, self.again = self.again, set(received or ())
        return None, again | self.again or None


class Silent(Honest):
    """Completion: it never reports that a load has ended."""

    def get_finished(self, finished_req_ids: set[str]) -> tuple[None, set[str] | None]:
        return None, None


class AttentionOnly(Honest):
    """No contract: it never loads a recurrent state, nor looks whether it has one."""

    @property
    def supports_divergent_local_hybrid_hits(self) -> bool:
        return False

    def needed(self, request: Any, start: int, end: int) -> Any:
        return (found for found in super().needed(request, start, end) if not hasattr(self.specs[found[0]], "shapes"))


class Backed(Honest):
    """*Backed*, and honest about it: it loads a state only if the local cache had one where it was asked from."""

    @property
    def supports_divergent_local_hybrid_hits(self) -> bool:
        return False

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        super().update_state_after_alloc(request, blocks, num_external_tokens)
        start = self.asked[request.request_id]
        if num_external_tokens and start:
            below = [found for found in super().needed(request, 0, start) if hasattr(self.specs[found[0]], "shapes")]
            if any(self.pool.get_cached_block(key[1], [group]) is None for group, _, key in below):
                load = self.loads.pop()
                copies = [copy for copy in load.copies if not hasattr(self.specs[copy[0]], "shapes")]
                self.loads.append(Load(load.request, load.asynchronous, copies))


class FalseClaim(Backed):
    """The claim: it keeps *backed*, and claims that its loads complete hits that diverge."""

    @property
    def supports_divergent_local_hybrid_hits(self) -> bool:
        return True


class Endpoint(Honest):
    """*Endpoint*, and claims no more: below where it was asked from it loads nothing."""

    def is_to_be_loaded(self, group: int, column: int, start: int, blocks: Any) -> bool:
        return column >= start // self.specs[group].block_size and super().is_to_be_loaded(group, column, start, blocks)


class AnswersNothing(Honest):
    """It never has anything: none of its clauses can be seen."""

    def most(self, request: Any) -> int:
        return 0


class Raises(Honest):
    """It raises where it is told of an allocation."""

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        raise RuntimeError("no connection to the store")


class Crashes(Honest):
    """It ends the process where it is told of an allocation."""

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        os._exit(3)


class NeedsNetwork(Honest):
    """It does not start."""

    def __init__(self, *arguments: Any) -> None:
        raise ConnectionError("cannot reach store.example:1234")


class NeedsGpu(Honest):
    """Its worker half does not start, so what it loads is not seen."""

    def register_kv_caches(self, kv_caches: dict[str, Any]) -> None:
        raise RuntimeError("no GPU")
