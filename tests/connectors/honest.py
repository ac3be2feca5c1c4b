"""A KV connector in one process that keeps the strongest contract: a store of all blocks that the scheduler has hashed.

`dishonest.py` has variants that break one clause each. They run in the interpreter of a subject.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import lcm
from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
    KVConnectorRole,
    SupportsHMA,
)
from vllm.v1.core.kv_cache_utils import (
    BlockHashListWithBlockSize,
    get_block_hash,
    get_group_id,
    resolve_kv_cache_block_sizes,
)

Key = tuple[int, bytes]
"""Group, and hash of the prefix that ends with the object."""

STORES: dict[str, dict[Key, Any]] = {}
"""What both halves of a connector share, by the connector's name."""


@dataclass
class Load:
    """What is copied into the blocks of a request: (block, object), each for a group."""

    request: str
    asynchronous: bool
    copies: list[tuple[int, int, Any]]


@dataclass
class Work(KVConnectorMetadata):  # type: ignore[misc]
    """One step's work of the worker half."""

    loads: list[Load] = field(default_factory=list)
    saves: list[tuple[Key, int]] = field(default_factory=list)


class Honest(KVConnectorBase_V1, SupportsHMA):  # type: ignore[misc]
    """Configured with `asynchronous` (default: yes) and `name`, which tells it from others of its kind."""

    def __init__(self, vllm_config: Any, role: KVConnectorRole, kv_cache_config: Any) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        extra = vllm_config.kv_transfer_config.kv_connector_extra_config
        self.asynchronous = extra.get("asynchronous", True)
        name = extra.get("name", type(self).__name__)
        if role is KVConnectorRole.SCHEDULER:
            STORES[name] = {}
        self.store = STORES[name]
        self.specs = [group.kv_cache_spec for group in kv_cache_config.kv_cache_groups]
        self.layers = [group.layer_names[0] for group in kv_cache_config.kv_cache_groups]
        _, self.unit = resolve_kv_cache_block_sizes(kv_cache_config, vllm_config)
        self.asked: dict[str, int] = {}
        self.loads: list[Load] = []
        self.received: set[str] = set()

    @property
    def supports_divergent_local_hybrid_hits(self) -> bool:
        return True

    # Scheduler half

    def bind_gpu_block_pool(self, gpu_block_pool: Any) -> None:
        self.pool = gpu_block_pool

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> tuple[int | None, bool]:
        boundary = self.greatest(request, num_computed_tokens)
        self.asked[request.request_id] = num_computed_tokens
        tokens = max(0, boundary - num_computed_tokens)
        return tokens, self.asynchronous and tokens > 0

    def most(self, request: Any) -> int:
        """The deepest boundary that may be answered."""
        return int(request.num_tokens) - 1

    def greatest(self, request: Any, start: int) -> int:
        unit = lcm(*(spec.block_size for spec in self.specs))
        boundary = self.most(request) // unit * unit
        while boundary > start and not all(key in self.store for _, _, key in self.needed(request, 0, boundary)):
            boundary -= unit
        return boundary

    def needed(self, request: Any, start: int, end: int) -> Iterator[tuple[int, int, Key]]:
        """Group, column and key of everything that a request needs in [start, end) to go on at `end`."""
        for group, spec in enumerate(self.specs):
            columns = range(start // spec.block_size, end // spec.block_size)
            if hasattr(spec, "shapes"):
                columns = columns[-1:]
            elif getattr(spec, "sliding_window", None):
                columns = range(
                    max(columns.start, max(0, end - spec.sliding_window + 1) // spec.block_size), columns.stop
                )
            hashes = request.block_hashes
            if spec.block_size != self.unit:
                hashes = BlockHashListWithBlockSize(hashes, self.unit, spec.block_size)
            for column in columns:
                if column < len(hashes):
                    yield group, column, (group, bytes(hashes[column]))

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        if not num_external_tokens:
            return
        start = self.asked[request.request_id]
        copies = [
            (group, blocks.blocks[group][column].block_id, self.held(key))
            for group, column, key in self.needed(request, 0, start + num_external_tokens)
            if self.is_to_be_loaded(group, column, start, blocks)
        ]
        self.loads.append(Load(request.request_id, self.asynchronous, copies))

    def held(self, key: Key) -> Any:
        """What a load brings. Holding the tensor itself keeps it from being lost."""
        return self.store[key]

    def is_to_be_loaded(self, group: int, column: int, start: int, blocks: Any) -> bool:
        """All from `start` on, and below it what the group lacks."""
        block = blocks.blocks[group][column]
        return not block.is_null and (column >= start // self.specs[group].block_size or block.block_hash is None)

    def build_connector_meta(self, scheduler_output: Any) -> Work:
        loads, self.loads = self.loads, []
        hashed = [(block.block_hash, block.block_id) for block in self.pool.blocks if block.block_hash is not None]
        saves = [((get_group_id(key), bytes(get_block_hash(key))), block) for key, block in hashed]
        return Work(loads, [(key, block) for key, block in saves if key not in self.store])

    def request_finished(self, request: Any, block_ids: Any) -> tuple[bool, None]:
        return False, None

    def request_finished_all_groups(self, request: Any, block_ids: Any) -> tuple[bool, None]:
        return False, None

    # Worker half

    def register_kv_caches(self, kv_caches: dict[str, Any]) -> None:
        self.caches = [kv_caches[layer] for layer in self.layers]

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        for load in self._get_connector_metadata().loads:
            self.copy(load)
            if load.asynchronous:
                self.received.add(load.request)

    def copy(self, load: Load) -> None:
        for group, block, row in load.copies:
            self.caches[group][block] = row

    def wait_for_layer_load(self, layer_name: str) -> None: ...

    def save_kv_layer(self, layer_name: str, kv_layer: Any, attn_metadata: Any, **kwargs: Any) -> None: ...

    def wait_for_save(self) -> None:
        for key, block in self._get_connector_metadata().saves:
            self.keep(key, self.caches[key[0]][block].clone())

    def keep(self, key: Key, row: Any) -> None:
        self.store[key] = row

    def get_finished(self, finished_req_ids: set[str]) -> tuple[None, set[str] | None]:
        received, self.received = self.received, set()
        return None, received or None
