"""Runs vLLM's own scheduler on request. Started in the subject's interpreter, never imported by hitbound.

Standard library and vLLM only. One JSON object per line: a command on standard input, its reply on standard output;
`run` has a reply for each command that it is given, up to the first that fails.
Whatever vLLM prints goes to standard error. The methods of `Engine` that do not begin with an underscore are the
commands, their arguments the command's keys. What is observed is passed through unchanged; no decision is replaced.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import json
import logging
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

PROTOCOL = 2
DRAFT = 5
"""Token that stands for any draft: whether it is right is told when the step is executed."""
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
"""A model that `ModelConfig` accepts; nothing of it but its greatest length (tokens) is used."""


def call(function: Callable[..., Any], **arguments: Any) -> Any:
    """Call with those keywords that this release knows."""
    known = keywords_of(function)
    return function(**{name: value for name, value in arguments.items() if name in known})


@functools.cache
def keywords_of(function: Callable[..., Any]) -> frozenset[str]:
    """Names of the parameters. A constructor that passes all on takes those of its base."""
    known = inspect.signature(function).parameters
    if "kwargs" in known and isinstance(function, type):
        known = inspect.signature(function.__mro__[1]).parameters
    return frozenset(known)


class Vllm:
    """The parts of vLLM that are needed, and one configuration that every engine shares."""

    def __init__(self) -> None:
        self.torch: Any = import_module("torch")
        self.config: Any = import_module("vllm.config")
        self.hashing: Any = import_module("vllm.utils.hashing")
        self.cache_utils: Any = import_module("vllm.v1.core.kv_cache_utils")
        self.managers: Any = import_module("vllm.v1.core.single_type_kv_cache_manager")
        self.specs: Any = import_module("vllm.v1.kv_cache_interface")
        self.outputs: Any = import_module("vllm.v1.outputs")
        self.request: Any = import_module("vllm.v1.request")
        self.scheduler: Any = import_module("vllm.v1.core.sched.scheduler")
        self.async_scheduler: Any = import_module("vllm.v1.core.sched.async_scheduler")
        self.scheduler_output: Any = import_module("vllm.v1.core.sched.output")
        self.structured_output: Any = import_module("vllm.v1.structured_output")
        self.sampling: Any = import_module("vllm.sampling_params")
        self.connector: Any = import_module("vllm.distributed.kv_transfer.kv_connector.v1.base")
        self.environment: Any = import_module("vllm.envs")
        self.factory: Any = import_module("vllm.distributed.kv_transfer.kv_connector.factory")
        self.version: str = str(import_module("vllm").__version__)
        self.cache_utils.init_none_hash(self.hashing.sha256)
        self.vllm_config = self._vllm_config()
        self.structured_output_manager = self.structured_output.StructuredOutputManager(self.vllm_config)
        leaf = leaf_class(self.connector)
        self.factory.KVConnectorFactory._registry["Leaf"] = lambda: leaf

    def _vllm_config(self) -> Any:
        with tempfile.TemporaryDirectory() as directory:
            Path(directory, "config.json").write_text(json.dumps(OPT))
            return self._vllm_config_for(directory)

    def _vllm_config_for(self, directory: str) -> Any:
        model_config = self.config.ModelConfig(
            model=directory, dtype="float16", seed=0, skip_tokenizer_init=True, max_model_len=2048
        )
        scheduler_config = call(
            self.config.SchedulerConfig,
            max_num_seqs=64,
            max_num_batched_tokens=8192,
            max_model_len=2048,
            enable_chunked_prefill=True,
            async_scheduling=False,
            watermark=0.0,
            scheduler_reserve_full_isl=False,
            is_encoder_decoder=False,
        )
        cache_config = call(
            self.config.CacheConfig,
            block_size=16,
            gpu_memory_utilization=0.9,
            cache_dtype="auto",
            enable_prefix_caching=True,
        )
        vllm_config = self.config.VllmConfig(
            scheduler_config=scheduler_config,
            model_config=model_config,
            cache_config=cache_config,
            device_config=self.config.DeviceConfig("cpu"),
            parallel_config=self.config.ParallelConfig(),
        )
        vllm_config.scheduler_config.disable_hybrid_kv_cache_manager = False
        return vllm_config

    def spec(self, group: dict[str, Any]) -> Any:
        """The KV cache spec of one group."""
        attention = {
            "block_size": group["block"] // group["ranks"],
            "num_kv_heads": 1,
            "head_size": 1,
            "dtype": self.torch.float32,
            "dcp_sharded": group["ranks"] > 1,
        }
        match group["kind"]:
            case "full_attention":
                return call(self.specs.FullAttentionSpec, **attention)
            case "sliding_window":
                return call(self.specs.SlidingWindowSpec, sliding_window=group["window"], **attention)
            case "chunked_local":
                return call(self.specs.ChunkedLocalAttentionSpec, attention_chunk_size=group["chunk"], **attention)
            case "mamba":
                return call(
                    self.specs.MambaSpec,
                    block_size=group["block"],
                    shapes=((1,),),
                    dtypes=(self.torch.float32,),
                    mamba_cache_mode=group["mode"],
                    num_speculative_blocks=group["scratch"],
                    num_prefill_checkpoint_blocks=int(group["checkpoint"] is not None),
                    prefill_checkpoint_alignment=group["checkpoint"],
                )
        raise ValueError(f"a group of unknown kind {group['kind']!r}")

    @staticmethod
    def speculative_config(drafts: int, draft_model: bool) -> Any:
        """What the scheduler reads of a `SpeculativeConfig`: of MTP or EAGLE with a `draft_model`, else of n-gram."""
        if not drafts:
            return None
        no = ("parallel_drafting", "enable_adaptive_verification", "disable_padded_drafter_batch")
        never = ("use_dflash", "use_dspark", "use_multi_module_mtp", "uses_draft_model")
        return SimpleNamespace(
            method="mtp" if draft_model else "ngram_gpu",
            num_speculative_tokens=drafts,
            num_speculative_tokens_per_batch_size=None,
            max_num_new_slots_for_drafting=0,
            disable_eagle_block_drop=False,
            disable_lookahead_block_hashes=True,
            use_eagle=lambda: draft_model,
            use_eagle_block_drop=lambda: draft_model,
            needs_eagle_block_drop=lambda: draft_model,
            **dict.fromkeys(no, False),
            **dict.fromkeys(never, lambda: False),
        )

    @contextlib.contextmanager
    def draft_model(self, present: bool) -> Iterator[None]:
        """Schedulers that are built meanwhile have a draft model, if `present`: one that proposes nothing, so that only
        what it does to the prefix cache is left."""
        manager = self.scheduler.KVCacheManager
        if present:
            self.scheduler.KVCacheManager = lambda **named: manager(**{**named, "use_eagle": True})
        try:
            yield
        finally:
            self.scheduler.KVCacheManager = manager

    def auxiliary_connector(self, manager: Any, connector: Any) -> Any:
        """vLLM's own connector for auxiliary outputs; the outputs themselves, which a worker has, are nobody's here."""
        module = import_module("vllm.distributed.aux_output_connector.connector")
        made = module.AuxOutputSchedulerConnector(manager, connector)
        made.take_output = lambda request, output: None
        return made

    def transfer_config(self, connector: dict[str, Any] | None, load_failure: str) -> Any:
        """The connector tree as vLLM is configured with it."""
        if connector is None:
            return None
        transfer_config = self.config.KVTransferConfig(**self._transfer_arguments(connector))
        transfer_config.kv_load_failure_policy = load_failure
        return transfer_config

    def _transfer_arguments(self, connector: dict[str, Any]) -> dict[str, Any]:
        if "children" in connector:
            extra = {"connectors": [self._transfer_arguments(child) for child in connector["children"]]}
            return {"kv_connector": "MultiConnector", "kv_role": "kv_both", "kv_connector_extra_config": extra}
        return {"kv_connector": "Leaf", "kv_role": "kv_both", "kv_connector_extra_config": connector}


SCRIPTS: dict[tuple[str, str], list[list[Any]]] = {}
"""(leaf, request) -> what the leaf will still say, as [tokens or None, asynchronous]; the last one repeats."""

TOLD: list[tuple[str, str, int]] = []
"""(leaf, request, tokens) of each announcement after an allocation, since the step began."""


def leaf_class(base: Any) -> Any:
    """A connector that answers what `SCRIPTS` says and moves nothing."""

    class Metadata(base.KVConnectorMetadata):  # type: ignore[misc]
        pass

    class Leaf(base.KVConnectorBase_V1, base.SupportsHMA):  # type: ignore[misc]
        def __init__(self, vllm_config: Any, role: Any, kv_cache_config: Any = None) -> None:
            call(super().__init__, vllm_config=vllm_config, role=role, kv_cache_config=kv_cache_config)
            extra = vllm_config.kv_transfer_config.kv_connector_extra_config
            self.name = extra["name"]
            self.claims = extra["claims"]
            self.within_range = extra["within_range"]

        @property
        def supports_divergent_local_hybrid_hits(self) -> bool:
            return bool(self.claims)

        @property
        def requires_kv_delivery(self) -> bool:
            # A cache: what it does not save is only missed. Else output in flight is dropped at each preemption.
            return False

        def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> tuple[int | None, bool]:
            script = SCRIPTS.get((self.name, request.request_id), [[0, False]])
            tokens, asynchronous = script.pop(0) if len(script) > 1 else script[0]
            if tokens is None:
                return None, False
            most = request.num_tokens - num_computed_tokens - (1 if self.within_range else 0)
            tokens = max(0, min(tokens, most))
            return tokens, asynchronous and tokens > 0

        def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
            TOLD.append((self.name, request.request_id, num_external_tokens))

        def build_connector_meta(self, scheduler_output: Any) -> Any:
            return Metadata()

        def request_finished(self, request: Any, block_ids: Any) -> tuple[bool, None]:
            return False, None

        def request_finished_all_groups(self, request: Any, block_ids: Any) -> tuple[bool, None]:
            return False, None

        def start_load_kv(self, forward_context: Any, **arguments: Any) -> None: ...
        def wait_for_layer_load(self, layer_name: str) -> None: ...
        def save_kv_layer(self, layer_name: str, kv_layer: Any, attn_metadata: Any, **arguments: Any) -> None: ...
        def wait_for_save(self) -> None: ...

    return Leaf


def changes(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """What differs in a state from the one before. Of requests and labels only those that differ: a request that is
    gone is None, a label that is gone has no blocks."""
    changed = {what: value for what, value in after.items() if before.get(what) != value}
    if "requests" in changed:
        old, new = before.get("requests", {}), after["requests"]
        changed["requests"] = {name: new.get(name) for name in {**old, **new} if old.get(name) != new.get(name)}
    if "labels" in changed:
        old, new = ({tuple(label): blocks for *label, blocks in state.get("labels", ())} for state in (before, after))
        changed["labels"] = [
            [*label, new.get(label, [])] for label in {**old, **new} if old.get(label) != new.get(label)
        ]
    return changed


class Engine:
    """A scheduler, the commands that move it, and what is seen of it."""

    def __init__(self, vllm: Vllm) -> None:
        self._vllm = vllm
        self._scheduler: Any = None
        self._attempts: list[dict[str, Any]] = []
        self._asked: list[list[Any]] = []
        self._taken: list[int] = []

    # Commands

    def build(
        self,
        groups: list[dict[str, Any]],
        pool_blocks: int,
        hash_block: int,
        budget: int,
        connector: dict[str, Any] | None,
        steps_in_flight: int = 1,
        load_failure: str = "recompute",
        retention: int | None = None,
        drafts: int = 0,
        replay_window: int = 0,
        auxiliary_outputs: bool = False,
        scheduling: str = "fcfs",
    ) -> dict[str, Any]:
        """A fresh scheduler. Sizes in tokens, `pool_blocks` in blocks with the null block."""
        vllm, config = self._vllm, self._vllm.vllm_config
        specs = [vllm.spec(group) for group in groups]
        blocks = [group["block"] for group in groups]
        ranks = max(group["ranks"] for group in groups)
        replicated = ranks > 1 and any(group["ranks"] == 1 and group["kind"] != "mamba" for group in groups)
        if replicated and "dcp_sharded" not in inspect.signature(vllm.specs.FullAttentionSpec).parameters:
            raise ValueError("this release shards every attention group")
        config.parallel_config.decode_context_parallel_size = ranks
        mamba_blocks = [group["block"] for group in groups if group["kind"] == "mamba"]
        cache = config.cache_config
        # A model with Mamba layers in align mode is configured with their block, and chunks are cut by it.
        cache.block_size = mamba_blocks[0] if mamba_blocks else min(blocks)
        cache.num_gpu_blocks = pool_blocks
        cache.mamba_cache_mode = groups[0]["mode"] if mamba_blocks else "none"
        if mamba_blocks and hasattr(cache, "mamba_block_size"):
            cache.mamba_block_size = mamba_blocks[0]
        config.kv_transfer_config = vllm.transfer_config(connector, load_failure)
        draft_model = any(group["draft"] for group in groups)
        config.speculative_config = vllm.speculative_config(drafts, draft_model)
        config.scheduler_config.async_scheduling = steps_in_flight > 1
        config.scheduler_config.policy = scheduling
        if config.max_concurrent_batches != steps_in_flight:
            raise ValueError(f"{steps_in_flight} steps in flight; this release has {config.max_concurrent_batches}")
        kv_cache_config = call(
            vllm.specs.KVCacheConfig,
            num_blocks=pool_blocks,
            kv_cache_tensors=self._kv_cache_tensors(specs, pool_blocks),
            kv_cache_groups=[
                vllm.specs.KVCacheGroupSpec([f"layer{i}"], spec, is_eagle_group=groups[i]["draft"])
                for i, spec in enumerate(specs)
            ],
            prefix_cache_retention_interval=retention,
        )
        # Up to 0.28 the environment sets it.
        vllm.environment.VLLM_PREFIX_CACHE_RETENTION_INTERVAL = retention
        if hasattr(vllm.managers, "register_all_kvcache_specs"):
            vllm.managers.register_all_kvcache_specs(config)
        scheduler_block, _ = vllm.cache_utils.resolve_kv_cache_block_sizes(kv_cache_config, config)
        SCRIPTS.clear()
        with vllm.draft_model(draft_model):
            self._scheduler = call(
                vllm.async_scheduler.AsyncScheduler if steps_in_flight > 1 else vllm.scheduler.Scheduler,
                vllm_config=config,
                kv_cache_config=kv_cache_config,
                block_size=scheduler_block,
                hash_block_size=hash_block,
                log_stats=False,
                structured_output_manager=vllm.structured_output_manager,
            )
        self._scheduler.use_eagle = self._scheduler.use_eagle_block_drop = draft_model
        self._drafts = drafts
        self._manager = self._scheduler.kv_cache_manager
        if replay_window:
            if not hasattr(self._scheduler, "prefix_replay_tokens"):
                raise ValueError("this release runs nothing of a hit again")
            self._scheduler.prefix_replay_tokens = replay_window
        if auxiliary_outputs:
            self._scheduler.aux_output_connector = vllm.auxiliary_connector(self._manager, self._scheduler.connector)
        self._pool = self._manager.block_pool
        self._hash_block = hash_block
        self._hasher = vllm.cache_utils.get_request_block_hasher(hash_block, vllm.hashing.sha256)
        self._wider_blocks = sorted(set(blocks) - {hash_block})
        self._names: dict[bytes, tuple[str, int]] = {}
        self._labels: dict[bytes, tuple[int, str, int]] = {}
        self._learned: dict[tuple[str, int], int] = {}
        self._texts: dict[str, list[int]] = {}
        self._outputs: dict[str, list[int]] = {}
        self._budget = budget
        self._in_flight: list[tuple[Any, list[str], set[str]]] = []
        self._observe()
        return self._state()

    def arrive(
        self,
        request: str,
        prompt: list[int],
        output: list[int],
        answers: dict[str, Any],
        skip_reading: bool = False,
        priority: int = 0,
    ) -> dict[str, Any]:
        """A request arrives. `answers` says what each leaf will answer, as in `SCRIPTS`."""
        sampling = self._vllm.sampling.SamplingParams(
            max_tokens=len(output), ignore_eos=True, skip_reading_prefix_cache=skip_reading
        )
        for leaf, script in answers.items():
            SCRIPTS[leaf, request] = [list(answer) for answer in script]
        arrived = call(
            self._vllm.request.Request,
            request_id=request,
            prompt_token_ids=prompt,
            sampling_params=sampling,
            pooling_params=None,
            block_hasher=self._hasher,
            priority=priority,
            arrival_time=float(len(self._texts)),
        )
        self._outputs[request] = output
        self._texts[request] = prompt + output
        self._scheduler.add_request(arrived)
        return self._state()

    def run(self, commands: list[tuple[str, dict[str, Any]]]) -> Iterator[dict[str, Any]]:
        """All `commands` in turn; after each, what has changed since the one before (see `changes`)."""
        before: dict[str, Any] = {}
        for do, arguments in commands:
            state = getattr(self, do)(**arguments)
            yield changes(before, state)
            before = {**state, "step": None}

    def step(
        self,
        budget: int | None = None,
        failed_blocks: list[int] | None = None,
        rejected: dict[str, int] | None = None,
    ) -> dict[str, Any]:
        """Schedule one step of at most `budget` tokens, and take its output. Loads into `failed_blocks` fail, and so
        many drafts of each request in `rejected` are wrong."""
        scheduled = self._schedule(budget)
        return {**self.execute(failed_blocks, rejected), "step": scheduled}

    def schedule(self, budget: int | None = None) -> dict[str, Any]:
        """Schedule one step of at most `budget` tokens; `execute` takes its output."""
        scheduled = self._schedule(budget)
        return {**self._state(), "step": scheduled}

    def _schedule(self, budget: int | None) -> dict[str, Any]:
        """Schedule one step, and what is seen of it."""
        scheduler = self._scheduler
        scheduler.max_num_scheduled_tokens = self._budget if budget is None else budget
        self._attempts = []
        self._asked = []
        TOLD.clear()
        output = scheduler.schedule()
        new_blocks: dict[str, Any] = {new.req_id: new.block_ids for new in output.scheduled_new_reqs}
        cached = output.scheduled_cached_reqs
        new_blocks.update(zip(cached.req_ids, cached.new_block_ids, strict=True))
        computed = {new.req_id: new.num_computed_tokens for new in output.scheduled_new_reqs}
        starts = {*computed, *cached.resumed_req_ids}
        computed.update(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
        samples = [
            name
            for name in output.num_scheduled_tokens
            for request in (scheduler.requests[name],)
            if request.num_computed_tokens >= request.num_tokens
        ]
        scheduled = list(output.num_scheduled_tokens.items())
        # Only a request that waited gets rows without drafts. With several steps in flight no draft is known here.
        padded = starts & output.scheduled_spec_decode_tokens.keys()
        self._in_flight.append((output, samples, padded))
        taken, self._taken = self._taken, []
        return {
            "scheduled": scheduled,
            "new_blocks": new_blocks,
            "computed": computed,
            "starts": sorted(starts),
            "taken": taken,
            "told": list(TOLD),
            "preempted": sorted(output.preempted_req_ids or ()),
            "attempts": self._attempts,
            "asked": self._asked,
            "drafts": {
                name: [len(tokens), name in padded] for name, tokens in output.scheduled_spec_decode_tokens.items()
            },
            "copies": [list(copy) for copy in getattr(output, "kv_cache_block_copies", None) or ()],
        }

    def execute(self, failed_blocks: list[int] | None = None, rejected: dict[str, int] | None = None) -> dict[str, Any]:
        """Take the output of the oldest step in flight. Loads into `failed_blocks` fail in it, and so many drafts of
        each request in `rejected` are wrong; other drafts are right, as far as the output goes."""
        output, samples, padded = self._in_flight.pop(0)
        names = list(output.num_scheduled_tokens)
        running = dict(self._scheduler.requests)
        loads = None
        if failed_blocks:
            loads = call(self._vllm.outputs.KVConnectorOutput, invalid_block_ids=set(failed_blocks))
        accepted = {
            name: 0 if name in padded else len(tokens) - (rejected or {}).get(name, 0)
            for name, tokens in output.scheduled_spec_decode_tokens.items()
        }
        sampled = [self._next_tokens(name, accepted.get(name, 0)) if name in samples else [] for name in names]
        self._take_output(output, names, sampled, loads)
        # Those that have ended with this step, too.
        self._learn_hashes(running)
        if self._drafts and self._scheduler.vllm_config.max_concurrent_batches == 1:
            drafting = self._vllm.outputs.DraftTokenIds(samples, [[DRAFT] * self._drafts for _ in samples])
            self._scheduler.update_draft_token_ids(drafting)
        return self._state()

    def _next_tokens(self, name: str, accepted: int) -> list[int]:
        request = self._scheduler.requests.get(name)
        if request is None:
            return self._outputs[name][-1:]
        done = request.num_output_tokens
        return self._outputs[name][done : done + 1 + max(0, accepted)]

    def evict(self, group: int, request: str, boundary: int) -> dict[str, Any]:
        """Drop the hash of the block of `group` that is cached for the first `boundary` tokens of `request`."""
        prefix = self._texts[request][:boundary]
        block = next(
            blocks[0]
            for (cached, name, end), blocks in self._cached().items()
            if (cached, end) == (group, boundary) and self._texts[name][:end] == prefix
        )
        self._manager.evict_blocks({block})
        return self._state()

    def end_load(self, request: str, succeeded: bool) -> dict[str, Any]:
        """The asynchronous load of `request` is reported as finished, and failed if it did not succeed."""
        scheduler, connector_output = self._scheduler, self._vllm.outputs.KVConnectorOutput
        loading = scheduler.requests[request]
        report = {"finished_sending": None, "finished_recving": {request}}
        if not succeeded and not loading.is_finished():
            if "failed_recving" in inspect.signature(connector_output).parameters:
                report["failed_recving"] = {request}
            else:
                # These releases raise when a failure is reported for several groups; this is what 0.30 makes of one.
                loading.num_computed_tokens = 0
                scheduler.failed_recving_kv_req_ids.add(request)
        self._take_output(
            self._vllm.scheduler_output.SchedulerOutput.make_empty(), [], [], call(connector_output, **report)
        )
        return self._state()

    def abort(self, request: str) -> dict[str, Any]:
        """The client gives up `request`."""
        self._scheduler.finish_requests(request, self._vllm.request.RequestStatus.FINISHED_ABORTED)
        return self._state()

    def preempt(self) -> dict[str, Any]:
        """The running request that was admitted last is preempted, as by `reset_prefix_cache`."""
        self._scheduler._preempt_request(self._scheduler.running.pop(), time.monotonic())
        self._scheduler.prev_step_scheduled_req_ids.clear()
        return self._state()

    def reset(self) -> dict[str, Any]:
        """The prefix cache is reset; running requests are preempted first."""
        self._scheduler.reset_prefix_cache(reset_running_requests=True)
        return self._state()

    def _kv_cache_tensors(self, specs: list[Any], pool_blocks: int) -> list[Any]:
        """How the memory of the groups' layers is laid out; a scheduler does not look at it."""
        return []

    # Observation

    def _take_output(self, output: Any, names: list[str], sampled: list[list[int]], loads: Any = None) -> None:
        if loads is None and self._scheduler.connector is not None:
            loads = call(self._vllm.outputs.KVConnectorOutput)
        runner_output = call(
            self._vllm.outputs.ModelRunnerOutput,
            req_ids=names,
            req_id_to_index={name: index for index, name in enumerate(names)},
            sampled_token_ids=sampled,
            kv_connector_output=loads,
        )
        self._scheduler.update_from_output(output, runner_output)

    def _observe(self) -> None:
        """Note what lookups, connector and allocation say while a step is scheduled."""
        manager, coordinator, connector = self._manager, self._manager.coordinator, self._scheduler.connector
        diverged: dict[str, bool] = {}
        per_group: list[bool] = []
        deferred: list[bool] = []
        allocate, take = manager.allocate_slots, self._pool.get_new_blocks
        self._taken = []

        def observed_take(*arguments: Any, **named: Any) -> Any:
            blocks = take(*arguments, **named)
            self._taken += [block.block_id for block in blocks]
            return blocks

        self._pool.get_new_blocks = observed_take

        def observe_deferral(group: Any) -> None:
            # A Mamba group puts a request off by an estimate that no pool could meet.
            estimate = group.get_num_blocks_to_allocate

            def observed_estimate(*arguments: Any, **named: Any) -> Any:
                blocks = estimate(*arguments, **named)
                deferred.append(blocks > self._pool.num_gpu_blocks)
                return blocks

            group.get_num_blocks_to_allocate = observed_estimate

        def observed_allocate(
            request: Any,
            num_new_tokens: int,
            num_new_computed_tokens: int = 0,
            new_computed_blocks: Any = None,
            *arguments: Any,
            **named: Any,
        ) -> Any:
            deferred.clear()
            free = self._pool.get_num_free_blocks()
            blocks = allocate(
                request, num_new_tokens, num_new_computed_tokens, new_computed_blocks, *arguments, **named
            )
            outcome = "allocated" if blocks is not None else "put_off" if any(deferred) else "no_room"
            self._attempts.append(
                {
                    "request": request.request_id,
                    "waiting": new_computed_blocks is not None,
                    "new": request.num_computed_tokens == 0,
                    "local": num_new_computed_tokens,
                    "external": named.get("num_external_computed_tokens", 0),
                    "asynchronous": named.get("delay_cache_blocks", False),
                    "per_group": bool(per_group),
                    "diverged": diverged.pop(request.request_id, False),
                    "hits": new_computed_blocks.get_block_ids() if new_computed_blocks is not None else None,
                    "tables": manager.get_block_ids(request.request_id) if blocks is not None else None,
                    "tokens": num_new_tokens,
                    "outcome": outcome,
                    "free": free,
                }
            )
            per_group.clear()
            return blocks

        for group in coordinator.single_type_managers:
            if hasattr(group, "cached_blocks_this_step"):
                observe_deferral(group)
        manager.allocate_slots = observed_allocate
        if hasattr(manager, "get_computed_blocks_for_connector"):
            look_up = manager.get_computed_blocks_for_connector

            def observed_look_up(request: Any, *arguments: Any, **named: Any) -> Any:
                found = look_up(request, *arguments, **named)
                diverged[request.request_id] = found[3]
                per_group.append(True)
                return found

            manager.get_computed_blocks_for_connector = observed_look_up
        elif hasattr(coordinator, "find_longest_cache_hit_per_group"):
            find = coordinator.find_longest_cache_hit_per_group

            def observed_find(*arguments: Any, **named: Any) -> Any:
                per_group.append(True)
                return find(*arguments, **named)

            coordinator.find_longest_cache_hit_per_group = observed_find
        if connector is not None:
            ask = connector.get_num_new_matched_tokens

            def observed_ask(request: Any, num_computed_tokens: int) -> Any:
                answer = ask(request, num_computed_tokens)
                self._asked.append([request.request_id, num_computed_tokens, *answer])
                if answer[0] is None:
                    per_group.clear()
                return answer

            connector.get_num_new_matched_tokens = observed_ask

    def _learn_hashes(self, requests: dict[str, Any]) -> None:
        """Note which tokens each new block hash stands for: the first request that has it, and how many of its tokens.
        Hashes are prefix chains: those of a request only become more."""
        wider = self._vllm.cache_utils.BlockHashListWithBlockSize
        for name, request in requests.items():
            for block in (self._hash_block, *self._wider_blocks):
                known = self._learned.get((name, block), 0)
                if len(request.block_hashes) * self._hash_block // block == known:
                    continue
                hashes = request.block_hashes
                if block != self._hash_block:
                    hashes = wider(hashes, self._hash_block, block)
                for index in range(known, len(hashes)):
                    self._names.setdefault(bytes(hashes[index]), (name, (index + 1) * block))
                self._learned[name, block] = len(hashes)

    def _cached(self) -> dict[tuple[int, str, int], list[int]]:
        """What is cached: group, request and boundary (tokens) -> blocks, the oldest first."""
        cached: dict[tuple[int, str, int], list[int]] = {}
        for key, blocks in self._pool.cached_block_hash_to_block._cache.items():
            label = self._labels.get(key) or self._label(key)
            several = blocks.values() if isinstance(blocks, dict) else (blocks,)
            cached.setdefault(label, []).extend(block.block_id for block in several)
        return cached

    def _label(self, key: bytes) -> tuple[int, str, int]:
        utils = self._vllm.cache_utils
        label = (utils.get_group_id(key), *self._names[bytes(utils.get_block_hash(key))])
        self._labels[key] = label
        return label

    def _state(self) -> dict[str, Any]:
        """Everything that is compared after an action."""
        scheduler = self._scheduler
        self._learn_hashes(scheduler.requests)
        return {
            "requests": {
                name: {
                    "status": self._status(request),
                    "tokens": request.num_tokens,
                    "computed": request.num_computed_tokens,
                    "dropped": self._drops_output(request),
                    "drafts": len(request.spec_token_ids),
                    "tables": self._manager.get_block_ids(name),
                }
                for name, request in scheduler.requests.items()
            },
            "running": [request.request_id for request in scheduler.running],
            "waiting": [request.request_id for request in scheduler.waiting],
            "skipped": [request.request_id for request in self._skipped()],
            "labels": [[*label, blocks] for label, blocks in self._cached().items()],
            "free": [block.block_id for block in self._pool.free_block_queue.get_all_free_blocks()],
            "free count": self._pool.get_num_free_blocks(),
            "deferred": sorted(
                block.block_id
                for _, blocks in getattr(scheduler, "deferred_frees", ())
                for block in blocks
                if block is not self._pool.null_block
            ),
            "references": [block.ref_cnt for block in self._pool.blocks],
        }

    def _skipped(self) -> Any:
        """Requests that are tried before those that wait: from 0.33 only those that hold blocks."""
        scheduler = self._scheduler
        return getattr(scheduler, "kv_holding_waiting", getattr(scheduler, "skipped_waiting", ()))

    def _drops_output(self, request: Any) -> bool:
        """Whether what its steps in flight put out is dropped."""
        return bool(getattr(request, "num_stale_output_tokens", 0) and getattr(request, "drop_stale_output", False))

    def _status(self, request: Any) -> str:
        status = str(request.status.name)
        if status == "WAITING_FOR_REMOTE_KVS" and request.request_id in self._scheduler.finished_recving_kv_req_ids:
            failed = request.request_id in self._scheduler.failed_recving_kv_req_ids
            return "LOAD_FAILED" if failed else "LOADED"
        return status


def serve(engine_of: Callable[[Vllm], Any]) -> None:
    """Answer commands until standard input ends; the engine's methods are the commands."""
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    logging.disable(logging.WARNING)

    def reply(**message: Any) -> None:
        replies.write(json.dumps({"protocol": PROTOCOL, **message}, separators=(",", ":")) + "\n")
        replies.flush()

    vllm = Vllm()
    engine = engine_of(vllm)
    reply(ready=vllm.version)
    for line in sys.stdin:
        command = json.loads(line)
        if command.pop("protocol") != PROTOCOL:
            reply(error={"type": "ProtocolError", "message": f"this driver speaks version {PROTOCOL}", "traceback": ""})
            continue
        do = command.pop("do")
        try:
            done = getattr(engine, do)(**command)
            for state in done if isinstance(done, Iterator) else (done,):
                reply(state=state)
        except Exception as error:
            reply(
                error={"type": type(error).__name__, "message": str(error), "traceback": traceback.format_exc(limit=-6)}
            )


if __name__ == "__main__":
    serve(Engine)
