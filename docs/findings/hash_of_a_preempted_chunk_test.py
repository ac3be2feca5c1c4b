"""No prefix-cache hit on tokens of a chunk that was taken out of its step.

With `SchedulingPolicy.PRIORITY` a request may be preempted after it was scheduled in the same step. A test for vLLM's
own scheduler, on a CPU, without a model: of every step it is written down which block holds which token's KV, or which
state, and what a request is admitted with is compared with that. Sizes in tokens.
"""

import inspect
import json

import torch
from vllm.config import CacheConfig, DeviceConfig, ModelConfig, ParallelConfig, SchedulerConfig, VllmConfig
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core import kv_cache_utils, single_type_kv_cache_manager
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec, MambaSpec
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager

BLOCK = 16
LOW_PRIORITY, HIGH_PRIORITY = 1, 0
OUTPUT, DRAFT = 7, 9
OPT = {
    "architectures": ["OPTForCausalLM"],
    "model_type": "opt",
    "vocab_size": 50272,
    "hidden_size": 768,
    "ffn_dim": 3072,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "max_position_embeddings": 2048,
    "word_embed_proj_dim": 768,
    "torch_dtype": "float16",
    "do_layer_norm_before": True,
    "activation_function": "relu",
    "bos_token_id": 2,
    "eos_token_id": 2,
    "pad_token_id": 1,
}


def call(function, **arguments):
    """Call with the keywords that this release knows."""
    known = inspect.signature(function).parameters
    if "kwargs" in known and isinstance(function, type):
        known = inspect.signature(function.__mro__[1]).parameters
    return function(**{name: value for name, value in arguments.items() if name in known})


ATTENTION = call(FullAttentionSpec, block_size=BLOCK, num_kv_heads=1, head_size=1, dtype=torch.float32)
MAMBA = call(MambaSpec, block_size=BLOCK, shapes=((1,),), dtypes=(torch.float32,), mamba_cache_mode="align")


class Engine:
    """A scheduler with `policy="priority"`, and what each block of its steps holds."""

    def __init__(self, directory, specs, num_blocks, budget, long_prefill_token_threshold=0):
        (directory / "config.json").write_text(json.dumps(OPT))
        kv_cache_utils.init_none_hash(sha256)
        config = VllmConfig(
            model_config=ModelConfig(
                model=str(directory), dtype="float16", seed=0, skip_tokenizer_init=True, max_model_len=2048
            ),
            scheduler_config=call(
                SchedulerConfig,
                policy="priority",
                max_num_seqs=64,
                max_num_batched_tokens=8192,
                max_model_len=2048,
                enable_chunked_prefill=True,
                async_scheduling=False,
                watermark=0.0,
                is_encoder_decoder=False,
                long_prefill_token_threshold=long_prefill_token_threshold,
            ),
            cache_config=CacheConfig(block_size=BLOCK, enable_prefix_caching=True),
            device_config=DeviceConfig("cpu"),
            parallel_config=ParallelConfig(),
        )
        config.scheduler_config.disable_hybrid_kv_cache_manager = False
        config.cache_config.num_gpu_blocks = num_blocks
        if MAMBA in specs:
            config.cache_config.mamba_cache_mode = "align"
            config.cache_config.mamba_block_size = BLOCK
        kv_cache_config = KVCacheConfig(
            num_blocks=num_blocks,
            kv_cache_tensors=[],
            kv_cache_groups=[KVCacheGroupSpec([f"layer{i}"], spec) for i, spec in enumerate(specs)],
        )
        if hasattr(single_type_kv_cache_manager, "register_all_kvcache_specs"):
            single_type_kv_cache_manager.register_all_kvcache_specs(config)
        self.scheduler = call(
            Scheduler,
            vllm_config=config,
            kv_cache_config=kv_cache_config,
            block_size=BLOCK,
            hash_block_size=BLOCK,
            log_stats=False,
            structured_output_manager=StructuredOutputManager(config),
        )
        self.scheduler.max_num_scheduled_tokens = budget
        allocate_slots = self.scheduler.kv_cache_manager.allocate_slots

        def allocate_and_note(request, *arguments, **named):
            blocks = allocate_slots(request, *arguments, **named)
            if blocks is not None:
                self.allocated.add(request.request_id)
            return blocks

        self.scheduler.kv_cache_manager.allocate_slots = allocate_and_note
        self.hasher = kv_cache_utils.get_request_block_hasher(BLOCK, sha256)
        self.specs = specs
        self.requests = {}
        self.keys = {}  # (block, slot) -> the tokens up to the one whose KV is there
        self.states = {}  # block -> the tokens whose state it is
        self.allocated = set()  # requests that got slots in this step
        self.withdrawn = []  # of these, those that the step does not run
        self.hits = []  # (request, its local hit, how much of that has ever been computed)

    def arrive(self, name, prompt, max_tokens, priority):
        self.requests[name] = call(
            Request,
            request_id=name,
            prompt_token_ids=prompt,
            sampling_params=SamplingParams(max_tokens=max_tokens, ignore_eos=True),
            pooling_params=None,
            priority=priority,
            arrival_time=float(len(self.requests)),
            block_hasher=self.hasher,
        )
        self.scheduler.add_request(self.requests[name])

    def step(self, drafts=()):
        """Schedule, write down what the step runs, and report it as executed. Whether anything ran.

        `drafts` are the requests that have three draft tokens, all of which are rejected."""
        scheduler = self.scheduler
        for name in drafts:
            self.requests[name].spec_token_ids = [DRAFT] * 3
        held = {name: request.num_computed_tokens for name, request in scheduler.requests.items()}
        self.allocated.clear()
        output = scheduler.schedule()
        starts = {}
        for name, count in output.num_scheduled_tokens.items():
            request = scheduler.requests[name]
            starts[name] = request.num_computed_tokens - count
            if not held[name]:
                self.hits.append((name, starts[name], self.computed(name, starts[name])))
        self.withdrawn += sorted(self.allocated - starts.keys())
        for name, start in starts.items():
            self.write(name, start)
        sampled = []
        for name in output.num_scheduled_tokens:
            request = scheduler.requests[name]
            done = request.num_computed_tokens >= request.num_tokens
            sampled.append([OUTPUT] if done else [])
        scheduler.update_from_output(
            output,
            ModelRunnerOutput(
                req_ids=list(starts),
                req_id_to_index={name: index for index, name in enumerate(starts)},
                sampled_token_ids=sampled,
            ),
        )
        return bool(starts)

    def drain(self):
        while self.step() or self.scheduler.has_unfinished_requests():
            pass

    def tables(self, name):
        tables = self.scheduler.kv_cache_manager.get_block_ids(name)
        return zip(self.specs, tables, strict=True)

    def write(self, name, start):
        request = self.requests[name]
        end = min(request.num_computed_tokens, request.num_tokens)  # without drafts
        tokens = tuple(request.all_token_ids)
        for spec, table in self.tables(name):
            if spec is MAMBA:
                self.states[table[(end - 1) // BLOCK]] = tokens[:end]
                continue
            for position in range(start, end):
                self.keys[table[position // BLOCK], position % BLOCK] = tokens[: position + 1]

    def computed(self, name, hit):
        """How many tokens of the hit are in the blocks that the request found."""
        tokens = tuple(self.requests[name].all_token_ids)
        found = hit
        for spec, table in self.tables(name):
            if spec is MAMBA:
                states = [self.states.get(block) for block in table[: hit // BLOCK]]
                right = [end for end in range(BLOCK, hit + 1, BLOCK) if states[end // BLOCK - 1] == tokens[:end]]
                found = min(found, max(right, default=0) if hit else 0)
                continue
            for position in range(hit):
                if self.keys.get((table[position // BLOCK], position % BLOCK)) != tokens[: position + 1]:
                    found = min(found, position)
        return found


PROMPT = list(range(100, 228))


def chunk(directory):
    """Attention alone. `low` computes its prompt in chunks; `high` needs a block in the step of the last of them."""
    engine = Engine(directory, [ATTENTION], num_blocks=10, budget=64, long_prefill_token_threshold=32)
    engine.arrive("low", PROMPT, 2, LOW_PRIORITY)
    while engine.requests["low"].num_computed_tokens < 64:
        engine.step()
    engine.arrive("high", list(range(1000, 1016)), 4, HIGH_PRIORITY)
    engine.drain()
    return engine


def drafts(directory):
    """Attention alone. The last token of a block is computed with drafts, whose block goes to `high`."""
    engine = Engine(directory, [ATTENTION], num_blocks=5, budget=64)
    engine.arrive("low", PROMPT[:30], 8, LOW_PRIORITY)
    engine.step()
    engine.arrive("high", list(range(1000, 1016)), 2, HIGH_PRIORITY)
    engine.step(drafts=["low"])
    engine.step(drafts=["low"])
    engine.arrive("later", [*PROMPT[:30], OUTPUT, OUTPUT, *range(5)], 2, HIGH_PRIORITY)
    engine.drain()
    return engine


def state(directory):
    """Attention and Mamba. Chunks end at Mamba blocks, so a step has tokens left to admit `high` beside `low`.

    `high` takes the attention block of the boundary, and the state stays cached. `low` computes both once more, in
    blocks of requests that have ended; but the first block that was cached for a hash is the one that is found."""
    engine = Engine(directory, [ATTENTION, MAMBA], num_blocks=18, budget=49)
    for name in ("short", "shorter"):
        engine.arrive(name, [50, 51, 52], 6, HIGH_PRIORITY)
    engine.step()
    engine.arrive("low", [*PROMPT, 1, 2], 2, LOW_PRIORITY)
    engine.step()
    engine.arrive("high", list(range(1000, 1015)), 4, HIGH_PRIORITY)
    engine.drain()
    engine.arrive("later", [*PROMPT, 5, 6, 7], 2, LOW_PRIORITY)
    engine.drain()
    return engine


def test_tokens_that_never_ran_are_not_hit(tmp_path):
    wrong = []
    for case in (chunk, drafts, state):
        ran = case(tmp_path)
        assert "low" in ran.withdrawn, f"{case.__name__}: nothing was preempted in its step"
        for name, hit, computed in ran.hits:
            if hit > computed:
                wrong.append(f"{case.__name__}: {name} hits {hit}, {computed} of them are there")
    assert not wrong, "; ".join(wrong)
