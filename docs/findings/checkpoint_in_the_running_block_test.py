"""No internal checkpoint is stored in the block of the running state.

A scratch block of a draft that a chunk leaves behind moves to the end of the request's blocks, perhaps to the column
in which the chunk ends. The worker's table only grows: it has the block in its old column as well. With
`prefix_cache_retention_interval` 0 no block is reserved for the checkpoint of a chunk that does not end the prefill,
and the worker stores one all the same if its table has a block in that column. A test on a CPU, without a model.
"""

import inspect

import torch
from vllm.model_executor.layers.mamba.checkpoint import compute_mamba_prefill_checkpoints
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.utils.math_utils import cdiv
from vllm.v1.core import kv_cache_utils
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec, MambaSpec
from vllm.v1.request import Request

BLOCK = 16
RETENTION = 0


def call(function, **arguments):
    """Call with the keywords that this release knows."""
    known = inspect.signature(function).parameters
    return function(**{name: value for name, value in arguments.items() if name in known})


def chunks(speculative_blocks):
    """Chunks of two blocks each of a prompt of nine, as the worker sees them: the end of the chunk, the block that the
    checkpoint goes to or None, and the block of the running state."""
    kv_cache_utils.init_none_hash(sha256)
    attention = call(FullAttentionSpec, block_size=BLOCK, num_kv_heads=1, head_size=1, dtype=torch.float32)
    mamba = call(
        MambaSpec,
        block_size=BLOCK,
        shapes=((1,),),
        dtypes=(torch.float32,),
        mamba_cache_mode="align",
        num_speculative_blocks=speculative_blocks,
        num_prefill_checkpoint_blocks=1,
        prefill_checkpoint_alignment=1,
    )
    manager = call(
        KVCacheManager,
        kv_cache_config=call(
            KVCacheConfig,
            num_blocks=40,
            kv_cache_tensors=[],
            kv_cache_groups=[KVCacheGroupSpec(["attention"], attention), KVCacheGroupSpec(["mamba"], mamba)],
            prefix_cache_retention_interval=RETENTION,
        ),
        max_model_len=2048,
        max_in_flight_tokens=8192,
        scheduler_block_size=BLOCK,
        hash_block_size=BLOCK,
        enable_caching=True,
        log_stats=False,
    )
    request = call(
        Request,
        request_id="a",
        prompt_token_ids=list(range(10, 10 + 9 * BLOCK)),
        sampling_params=SamplingParams(max_tokens=1, ignore_eos=True),
        pooling_params=None,
        block_hasher=kv_cache_utils.get_request_block_hasher(BLOCK, sha256),
    )
    table = []
    for end in range(2 * BLOCK, 9 * BLOCK, 2 * BLOCK):
        start = request.num_computed_tokens
        if hasattr(manager, "new_step_starts"):
            manager.new_step_starts()
        table += manager.allocate_slots(request, end - start).get_block_ids()[1]
        request.num_computed_tokens = end
        offsets, columns = call(
            compute_mamba_prefill_checkpoints,
            seq_lens=[end],
            query_lens=[end - start],
            hash_block_size=BLOCK,
            mamba_block_size=BLOCK,
            checkpoint_alignment=1,
            drop_eagle_block=False,
            cache_hit_alignment_tokens=BLOCK,
        )
        yield end, table[columns[0]] if offsets[0] else None, table[cdiv(end, BLOCK) - 1]


def test_a_checkpoint_does_not_go_to_the_running_block(tmp_path):
    for speculative_blocks in (0, 2, 1):
        for end, checkpoint, running in chunks(speculative_blocks):
            assert checkpoint != running, (
                f"{speculative_blocks} speculative block(s), the chunk that ends at {end}: the checkpoint is stored in "
                f"block {running}, where the running state is"
            )
