"""Runs vLLM's own lookups over the objects of a store on request, in the subject's interpreter as `driver.py` does.

They need no scheduler and no store: what exists is said with each lookup.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from importlib import import_module, util
from pathlib import Path
from types import SimpleNamespace
from typing import Any

CONNECTORS = "vllm.distributed.kv_transfer.kv_connector.v1"

Objects = set[tuple[int, int]]
"""Group and boundary of each object."""


class StoreLookups:
    """The commands; see `driver.serve`."""

    def __init__(self, vllm: Any) -> None:
        self._vllm = vllm
        if hasattr(vllm.managers, "register_all_kvcache_specs"):
            vllm.managers.register_all_kvcache_specs(vllm.vllm_config)

    def mooncake(
        self, groups: list[dict[str, Any]], hash_block: int, lookups: list[tuple[int, int, list[list[int]]]]
    ) -> dict[str, Any]:
        """External tokens that `MooncakeStoreCoordinator` finds for each (N, 0, objects)."""
        coordinators = import_module(f"{CONNECTORS}.mooncake.store.coordinator")
        specs = [self._vllm.spec(group) for group in groups]
        coordinator = coordinators.MooncakeStoreCoordinator(
            [self._vllm.specs.KVCacheGroupSpec([f"layer{number}"], spec) for number, spec in enumerate(specs)],
            math.lcm(*(spec.block_size for spec in specs)),
            hash_block,
        )

        def found(N: int, objects: Objects) -> int:
            hashes = [number.to_bytes(4, "big") for number in range(N // hash_block)]
            of_groups = [coordinator.block_hashes_for_spec(hashes, spec) for spec in specs]
            exists = {
                (group, bytes(of_groups[group][boundary // specs[group].block_size - 1])) for group, boundary in objects
            }
            length = coordinator.align_lookup_length(N - 1)
            pool = coordinators.ExternalCachedBlockPool(hash_block, exists)
            return int(coordinator.find_longest_cache_hit(hashes, length, pool)[1]) if length > 0 else 0

        return {"found": [found(N, _objects(keys)) for N, _, keys in lookups]}

    def offloading(
        self,
        groups: list[dict[str, Any]],
        hash_block: int,
        lookups: list[tuple[int, int, list[list[int]]]],
        object_blocks: int = 1,
    ) -> dict[str, Any]:
        """External tokens that `OffloadingConnectorScheduler` finds for each (N, L, objects), with as many blocks per
        chunk as objects hold."""
        scheduling = import_module(f"{CONNECTORS}.offloading.scheduler")
        results = import_module("vllm.v1.kv_offload.base").LookupResult
        chunks = [group["block"] * object_blocks for group in groups]
        windows = [_window(group, chunk) for group, chunk in zip(groups, chunks, strict=True)]
        configs = tuple(
            scheduling.GroupOffloadConfig(
                index, chunk // object_blocks, chunk, chunk // hash_block, None, window, spec, None
            )
            for index, (chunk, window, spec) in enumerate(
                zip(chunks, windows, map(self._vllm.spec, groups), strict=True)
            )
        )
        full = tuple(index for index, window in enumerate(windows) if window is None)
        sliding = tuple(index for index, window in enumerate(windows) if window is not None)
        connector = object.__new__(scheduling.OffloadingConnectorScheduler)
        connector.config = SimpleNamespace(kv_group_configs=configs)
        connector._full_attention_groups = full
        connector._sliding_window_groups = tuple(sorted(sliding, key=lambda index: windows[index] or 0, reverse=True))
        connector._lookup_groups = full + connector._sliding_window_groups
        mamba = [chunk for group, chunk in zip(groups, chunks, strict=True) if group["kind"] == "mamba"]
        connector._mamba_align_size = mamba[0] if mamba else None
        connector._chunks_being_loaded = None
        connector._events_tracker = SimpleNamespace(record_lookup=lambda *_: None)

        def found(N: int, L: int, objects: Objects) -> int:
            connector.manager = SimpleNamespace(lookup=lambda key, _: results.HIT if key in objects else results.MISS)
            states = [
                SimpleNamespace(
                    offload_keys=[(index, (number + 1) * chunk) for number in range(N // chunk)],
                    lookup_hit_end_chunk_idx=0,
                )
                for index, chunk in enumerate(chunks)
            ]
            request = SimpleNamespace(num_tokens=N, request_id="request")
            status = SimpleNamespace(
                num_locally_computed_tokens=L,
                req=request,
                req_context=None,
                max_load_tokens=None,
                group_states=states,
            )
            return int(connector._lookup_complete_chunks(status))

        return {"found": [found(N, L, _objects(keys)) for N, L, keys in lookups]}


def _objects(keys: Iterable[Iterable[int]]) -> Objects:
    return {(group, boundary) for group, boundary in keys}


def _window(group: dict[str, Any], chunk: int) -> int | None:
    """Chunks that a lookup needs in a row (`get_sliding_window_size_in_chunks`); None for full attention."""
    if group["kind"] == "full_attention":
        return None
    return 1 if group["kind"] == "mamba" else -(-(group["window"] - 1) // chunk)


def _driver() -> Any:
    """`driver.py` beside this file; no package is on the path of this process."""
    spec = util.spec_from_file_location("driver", Path(__file__).with_name("driver.py"))
    assert spec is not None
    assert spec.loader is not None
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    _driver().serve(StoreLookups)
