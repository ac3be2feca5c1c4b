"""Worker halves of KV connectors on CPU tensors, in the subject's interpreter.

A connector's own worker half is used wherever it runs. Those of `OffloadingConnector` and `SimpleCPUOffloadConnector`
copy with CUDA: of the first only the copying is replaced, of the second the worker half does what the metadata of each
step announces. Of any other that does not run nothing is seen.
"""

from __future__ import annotations

import contextlib
from importlib import import_module
from types import SimpleNamespace
from typing import Any

CONNECTORS = "vllm.distributed.kv_transfer.kv_connector"


class Gate:
    """Whether transfers that are made here, in the place of a connector, may end."""

    loads = True
    saves = True


GATE = Gate()


class Ended:
    """What a worker half reports after a step: requests whose blocks were received or sent, those whose load failed,
    blocks that could not be loaded, and what it tells its scheduler half."""

    def __init__(self, received: Any = (), sent: Any = (), failed: Any = (), invalid: Any = ()) -> None:
        self.received: list[str] = list(received or ())
        self.sent: set[str] = set(sent or ())
        self.failed: set[str] = set(failed or ())
        self.invalid: set[int] = set(invalid or ())
        self.meta: Any = None

    def join(self, other: Ended) -> None:
        """Take over what was reported later. A request that is reported twice is listed twice."""
        self.received += other.received
        self.sent |= other.sent
        self.failed |= other.failed
        self.invalid |= other.invalid


class Half:
    """A worker half that moves what it moves by itself; `PeerReads` says instead what a peer would bring."""

    def announced(self) -> dict[str, list[int]]:
        """Blocks of requests that a peer fills, as announced in this step."""
        return {}


class Own(Half):
    """The connector's own worker half, called as vLLM's model runners call it."""

    seen = True

    def __init__(self, connector: Any, caches: dict[str, Any]) -> None:
        self.name = f"worker half of {type(connector).__name__}"
        self._connector, self._caches = connector, caches
        layers = {name: SimpleNamespace(kv_cache=cache) for name, cache in caches.items()}
        metadata = {name: SimpleNamespace() for name in caches}
        self._forward = SimpleNamespace(attn_metadata=metadata, no_compile_layers=layers, virtual_engine=0)

    def prepare(self, output: Any, meta: Any = None) -> None:
        meta = output.kv_connector_metadata if meta is None else meta
        self._connector.handle_preemptions(meta)
        self._connector.bind_connector_metadata(meta)

    def load(self, output: Any) -> None:
        self._connector.start_load_kv(self._forward)
        if output.num_scheduled_tokens:
            for layer in self._caches:
                self._connector.wait_for_layer_load(layer)

    def finish(self, output: Any, finished: set[str]) -> Ended:
        if output.num_scheduled_tokens:
            for layer, cache in self._caches.items():
                self._connector.save_kv_layer(layer, cache, None)
        self._connector.wait_for_save()
        return self.ended(finished)

    def ended(self, finished: set[str]) -> Ended:
        connector = self._connector
        if hasattr(connector, "get_transfer_results"):
            found = connector.get_transfer_results(finished)
            received, sent, failed = found.finished_recving, found.finished_sending, found.failed_recving
        else:
            sent, received = connector.get_finished(finished)
            failed = ()
        return Ended(received, sent, failed, connector.get_block_ids_with_load_errors())

    def meta(self) -> Any:
        meta = self._connector.build_connector_worker_meta()
        self._connector.clear_connector_metadata()
        return meta

    def shutdown(self) -> None:
        self._connector.shutdown()


class SimpleCpuOffload(Half):
    """In the place of the worker half of `SimpleCPUOffloadConnector`: the block copies that its metadata announces, as
    late as the gate says. Before preempted blocks are reused, all of them are made (`handle_preemptions`)."""

    seen = True
    name = "what SimpleCPUOffloadConnector announces"

    def __init__(self, caches: dict[str, Any]) -> None:
        self._caches = list(caches.values())
        self._stored: dict[int, list[Any]] = {}
        self._loads: list[Any] = []
        self._loaded: list[int] = []
        self._saves: list[Any] = []
        self._done: dict[int, int] = {}
        self._meta: Any = None

    def prepare(self, output: Any, meta: Any = None) -> None:
        self._meta = output.kv_connector_metadata if meta is None else meta
        if self._meta.need_flush:
            self._copy_loads()
            self._copy_saves()

    def load(self, output: Any) -> None:
        if self._meta.load_gpu_blocks:
            self._loads.append((self._meta.load_event, self._meta.load_cpu_blocks, self._meta.load_gpu_blocks))

    def finish(self, output: Any, finished: set[str]) -> Ended:
        if self._meta.store_gpu_blocks:
            self._saves.append((self._meta.store_event, self._meta.store_gpu_blocks, self._meta.store_cpu_blocks))
        return self.ended(finished)

    def ended(self, finished: set[str]) -> Ended:
        if GATE.saves:
            self._copy_saves()
        if GATE.loads:
            self._copy_loads()
        received = [name for event in self._loaded for name in self._meta.load_event_to_reqs.get(event, ())]
        self._loaded = []
        return Ended(received)

    def _copy_loads(self) -> None:
        for event, sources, destinations in self._loads:
            for source, destination in zip(sources, destinations, strict=True):
                for number, cache in enumerate(self._caches):
                    cache[destination] = self._stored[source][number] if source in self._stored else 0
            self._loaded.append(event)
        self._loads = []

    def _copy_saves(self) -> None:
        for event, sources, destinations in self._saves:
            for source, destination in zip(sources, destinations, strict=True):
                self._stored[destination] = [cache[source].clone() for cache in self._caches]
            self._done[event] = 1
        self._saves = []

    def meta(self) -> Any:
        done, self._done = self._done, {}
        metadata = import_module("vllm.v1.simple_kv_offload.metadata")
        return metadata.SimpleCPUOffloadWorkerMetadata(completed_store_events=done) if done else None

    def shutdown(self) -> None: ...


class PeerReads(Half):
    """In the place of the worker half of NIXL where it pulls: the blocks that its metadata lists are read from a peer
    that has all of the prompt. The caller fills them."""

    seen = True
    name = "what NixlConnector announces"

    def __init__(self, caches: dict[str, Any]) -> None:
        self._announced: dict[str, list[int]] = {}
        self._waited_for: list[str] = []

    def prepare(self, output: Any, meta: Any = None) -> None:
        meta = output.kv_connector_metadata if meta is None else meta
        for name, request in meta.reqs_to_recv.items():
            blocks = [block for group in request.local_block_ids for block in group]
            self._announced[name] = blocks
            # Of a prompt that is all local the peer is only told.
            if getattr(request, "awaiting_kvs", bool(blocks)):
                self._waited_for.append(name)

    def announced(self) -> dict[str, list[int]]:
        announced, self._announced = self._announced, {}
        return announced

    def load(self, output: Any) -> None: ...

    def finish(self, output: Any, finished: set[str]) -> Ended:
        return self.ended(finished)

    def ended(self, finished: set[str]) -> Ended:
        ended = Ended(self._waited_for if GATE.loads else ())
        self._waited_for = [] if GATE.loads else self._waited_for
        return ended

    def meta(self) -> Any:
        return None

    def shutdown(self) -> None: ...


class Children(Half):
    """The worker halves of a `MultiConnector`, where its own does not run because one of its children's does not."""

    def __init__(self, halves: list[Any]) -> None:
        self._halves = halves
        self.name = ", ".join(half.name for half in halves)
        self.seen = all(half.seen for half in halves)

    def prepare(self, output: Any, meta: Any = None) -> None:
        meta = output.kv_connector_metadata if meta is None else meta
        for half, part in zip(self._halves, meta.metadata, strict=True):
            half.prepare(output, part)

    def announced(self) -> dict[str, list[int]]:
        return {name: blocks for half in self._halves for name, blocks in half.announced().items()}

    def load(self, output: Any) -> None:
        for half in self._halves:
            half.load(output)

    def finish(self, output: Any, finished: set[str]) -> Ended:
        return self._joined([half.finish(output, finished) for half in self._halves])

    def ended(self, finished: set[str]) -> Ended:
        return self._joined([half.ended(finished) for half in self._halves])

    def _joined(self, reports: list[Ended]) -> Ended:
        joined = Ended()
        for report in reports:
            joined.join(report)
        return joined

    def meta(self) -> Any:
        parts = tuple(half.meta() for half in self._halves)
        multi = import_module(f"{CONNECTORS}.v1.multi_connector")
        return multi.MultiKVConnectorWorkerMetadata(metadata=parts) if any(part is not None for part in parts) else None

    def shutdown(self) -> None:
        for half in self._halves:
            half.shutdown()


class Unseen(Half):
    """In the place of a worker half that does not run here, and of whose metadata nothing is known."""

    seen = False

    def __init__(self, reason: str) -> None:
        self.name = reason

    def prepare(self, output: Any, meta: Any = None) -> None: ...
    def load(self, output: Any) -> None: ...
    def finish(self, output: Any, finished: set[str]) -> Ended:
        return Ended()

    def ended(self, finished: set[str]) -> Ended:
        return Ended()

    def meta(self) -> Any:
        return None

    def shutdown(self) -> None: ...


ANNOUNCED = {"SimpleCPUOffloadConnector": SimpleCpuOffload, "NixlPullConnector": PeerReads}
"""Connectors whose metadata says all that their worker half does."""


def worker_half(config: Any, kv_cache_config: Any, scheduler_half: Any, caches: dict[str, Any]) -> Any:
    """The worker half that belongs to a scheduler half."""
    base = import_module(f"{CONNECTORS}.v1.base")
    factory = import_module(f"{CONNECTORS}.factory").KVConnectorFactory
    try:
        connector = factory.create_connector(config, base.KVConnectorRole.WORKER, kv_cache_config)
    except Exception as error:
        return _in_place_of(scheduler_half, caches, error)
    return _half_of(connector, caches)


def _half_of(connector: Any, caches: dict[str, Any]) -> Any:
    try:
        connector.register_kv_caches(caches)
    except Exception as error:
        if hasattr(connector, "_connectors"):
            return Children([_half_of(child, caches) for child in connector._connectors])
        return _in_place_of(connector, caches, error)
    return Own(connector, caches)


def _in_place_of(connector: Any, caches: dict[str, Any], error: Exception) -> Any:
    """What is used in the place of a worker half that does not start."""
    for ancestor in type(connector).__mro__:
        if ancestor.__name__ in ANNOUNCED:
            return ANNOUNCED[ancestor.__name__](caches)
    return Unseen(f"the worker half of {type(connector).__name__} does not start here: {type(error).__name__}: {error}")


def copy_on_the_cpu() -> None:
    """Let `OffloadingConnector` copy between CPU tensors, where vLLM has that subsystem."""
    with contextlib.suppress(ImportError, AttributeError):
        specs, base = import_module("vllm.v1.kv_offload.cpu.spec"), import_module("vllm.v1.kv_offload.base")
        registry = import_module("vllm.v1.kv_offload.factory").OffloadingSpecFactory._registry
        spec = _copying(specs.CPUOffloadingSpec, base)
        registry["CPUOffloadingSpec"] = lambda: spec


def _copying(spec: Any, base: Any) -> Any:
    class Copies(base.OffloadingWorker):  # type: ignore[misc]
        """Copies page by page, as late as the gate says; what is waited for, at once."""

        def __init__(self, caches: Any, blocks_per_chunk: int) -> None:
            self._caches, self._per_chunk = caches, blocks_per_chunk
            self._stored: dict[tuple[int, int, int], Any] = {}
            self._jobs: dict[int, tuple[bool, Any, Any]] = {}
            self._done: list[int] = []

        def submit_store(self, job_id: int, src_spec: Any, dst_spec: Any) -> bool:
            self._jobs[job_id] = True, src_spec, dst_spec
            return True

        def submit_load(self, job_id: int, src_spec: Any, dst_spec: Any, expedited: bool = False) -> bool:
            self._jobs[job_id] = False, dst_spec, src_spec
            return True

        def get_finished(self) -> list[Any]:
            for job, (stores, _, _) in list(self._jobs.items()):
                if GATE.saves if stores else GATE.loads:
                    self._copy(job)
            done, self._done = self._done, []
            return [base.TransferResult(job_id=job, success=True) for job in done]

        def wait(self, job_ids: set[int]) -> None:
            for job in sorted(job_ids & self._jobs.keys()):
                self._copy(job)

        def _copy(self, job: int) -> None:
            stores, blocks, chunks = self._jobs.pop(job)
            for group, block, chunk, part in self._pairs(blocks, chunks):
                for reference in self._caches.group_data_refs[group]:
                    page = self._caches.tensors[reference.tensor_idx].tensor[block]
                    key = (reference.tensor_idx, chunk, part)
                    if stores:
                        self._stored[key] = page.clone()
                    else:
                        page.copy_(self._stored[key]) if key in self._stored else page.zero_()
            self._done.append(job)

        def _pairs(self, blocks: Any, chunks: Any) -> Any:
            """(group, block, chunk, part of the chunk), in the order in which a transfer lists them."""
            at, used = 0, 0
            for group, (size, first) in enumerate(zip(blocks.group_sizes, blocks.block_indices, strict=True)):
                skipped = first % self._per_chunk
                for number in range(size):
                    chunk, part = divmod(skipped + number, self._per_chunk)
                    yield group, int(blocks.block_ids[at + number]), int(chunks.block_ids[used + chunk]), part
                at += size
                used += -(-(skipped + size) // self._per_chunk) if size else 0

    class Spec(spec):  # type: ignore[misc]
        def get_worker(self, kv_caches: Any) -> Any:
            return Copies(kv_caches, self.blocks_per_chunk)

    return Spec
