"""Runs a real KV connector on request, under vLLM's own scheduler, in the subject's interpreter as `driver.py` does.

The connector's scheduler half runs where vLLM puts it. Its worker half moves bytes between its store and the KV caches
(`connector_workers.py`), tensors on the CPU that the caller writes and reads. A step is taken in four commands:
`schedule`, `load`, `finish`, `update`; between them the caller does what a model would do to the caches.

A slot of attention, and a block of a recurrent group, holds one number: which prefix it is the KV or the state of.
"""

from __future__ import annotations

import contextlib
import inspect
import json
import sys
import tempfile
from collections.abc import Iterable
from importlib import import_module, util
from pathlib import Path
from types import ModuleType
from typing import Any


def beside(name: str) -> ModuleType:
    """The file of that name beside this one; no package is on the path of this process."""
    if name in sys.modules:
        return sys.modules[name]
    spec = util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


driver = beside("driver")
workers = beside("connector_workers")

CONNECTOR = "connector"
"""By this name the connector is spoken of, whatever it is made of."""

FRESH = "{fresh}"
"""In a connector's configuration: an empty folder, another one for each trace."""

UNREADABLE = -1
"""In place of a slot whose keys and values are not of the same prefix."""


class Caches:
    """The KV caches of all groups, one layer each, in one allocation, as a model runner lays them out layer by layer.

    An attention layer is (blocks, 1 head, slots, 2) floats: each slot has a key and a value. A recurrent layer is
    (blocks, bytes), as raw bytes.
    """

    def __init__(self, torch: Any, specs: list[Any], blocks: int) -> None:
        pages = [spec.page_size_bytes for spec in specs]
        storage = torch.zeros(sum(pages) * blocks, dtype=torch.int8)
        self.layers: dict[str, Any] = {}
        self._torch, self._views, start = torch, [], 0
        for number, (spec, page) in enumerate(zip(specs, pages, strict=True)):
            raw = storage[start : start + page * blocks].view(blocks, page)
            start += page * blocks
            recurrent = hasattr(spec, "shapes")
            floats = raw.view(torch.float32)
            if recurrent:
                layer, view = raw, floats.view(blocks, 1, -1)
            else:
                layer = floats.view(blocks, 1, spec.block_size, 2)
                view = layer[:, 0].transpose(1, 2)
            self.layers[f"layer{number}"] = layer
            self._views.append(view)
        self._known = [view.clone() for view in self._views]

    def write(self, writes: Iterable[tuple[int, int, list[int]]]) -> None:
        """(block, group, numbers): the block holds these, and nothing of another group; no group if that is -1."""
        for block, group, numbers in writes:
            for view, known in zip(self._views, self._known, strict=True):
                view[block] = 0
                known[block] = 0
            if group >= 0:
                row = self._torch.tensor(numbers, dtype=self._torch.float32)
                self._views[group][block] = row
                self._known[group][block] = row

    def changed(self) -> list[tuple[int, int, list[int]]]:
        """What has changed since it was last written or asked for, as (block, group, numbers)."""
        found = []
        for group, (view, known) in enumerate(zip(self._views, self._known, strict=True)):
            differs = (view != known).flatten(1).any(1)
            for block in differs.nonzero().flatten().tolist():
                rows = view[block].tolist()
                found.append(
                    (
                        block,
                        group,
                        [int(slot) if slot == rows[-1][at] else UNREADABLE for at, slot in enumerate(rows[0])],
                    )
                )
                known[block] = view[block]
        return found


Engine: Any = driver.Engine


class ConnectorEngine(Engine):  # type: ignore[misc]
    """A scheduler with a real connector, the commands that move it, and what is seen of both."""

    def __init__(self, vllm: Any) -> None:
        super().__init__(vllm)
        self._vllm.transfer_config = self._transfer_config
        self._name = ""
        self._fresh: Any = None
        self._scheduler: Any = None
        self._configured: Any = None
        self._worker: Any = None
        self._told: list[list[Any]] = []
        self._times_asked = 1

    # Commands

    def connect(
        self, module: str, name: str, extra: dict[str, Any], role: str, params: dict[str, Any], path: list[str]
    ) -> dict[str, Any]:
        """Which connector is tested, and what it is configured with. It is built with each scheduler."""
        sys.path[:0] = path
        self._extra, self._role, self._params = extra, role, params
        offering = self._offering(getattr(import_module(module), name))
        factory = self._vllm.factory.KVConnectorFactory
        factory._registry[name] = lambda: offering
        self._name = name
        workers.copy_on_the_cpu()
        hybrid = bool(factory.supports_hma_config(self._transfer_config(None, "recompute")))
        self._vllm.vllm_config.scheduler_config.disable_hybrid_kv_cache_manager = not hybrid
        failures = "failed_recving" in inspect.signature(self._vllm.outputs.KVConnectorOutput).parameters
        return {"hybrid": hybrid, "failures": failures}

    def build(
        self, tested: dict[str, Any], offers_divergence: bool = False, times_asked: int = 1, **named: Any
    ) -> dict[str, Any]:
        """A fresh scheduler with a fresh connector. It is offered lookups that may diverge as `offers_divergence` says,
        whatever it claims, and asked so often each time the scheduler asks once. `tested` are the arguments of
        `connect`, for a process that was started anew."""
        self._end()
        if not self._name:
            self.connect(**tested)
        self._offers, self._times_asked = None, times_asked
        state: dict[str, Any] = super().build(**named)
        connector = self._scheduler.connector
        claims = bool(connector.supports_divergent_local_hybrid_hits)
        self._offers = offers_divergence
        self._worker = workers.worker_half(self._vllm.vllm_config, self._configured, connector, self._caches.layers)
        return {**state, "claims": claims, "seen": self._worker.seen, "worker": self._worker.name}

    def arrive(self, request: str, **named: Any) -> dict[str, Any]:
        state: dict[str, Any] = super().arrive(request, **named)
        if self._params:
            self._scheduler.requests[request].kv_transfer_params = dict(self._params)
        return state

    def schedule(self, budget: int | None = None) -> dict[str, Any]:
        self._told.clear()
        state: dict[str, Any] = super().schedule(budget)
        state["step"]["told"] = list(self._told)
        self._worker.prepare(self._in_flight[-1][0])
        state["announced"] = self._worker.announced()
        return state

    def answers(self) -> dict[str, Any]:
        """What was answered in the last step, whether or not it could be scheduled."""
        return {"asked": self._asked}

    def load(self, writes: list[tuple[int, int, list[int]]]) -> dict[str, Any]:
        """The caches hold `writes`; then the connector loads what this step needs."""
        self._caches.write(writes)
        self._worker.load(self._in_flight[-1][0])
        return {"changed": self._caches.changed()}

    def finish(self, writes: list[tuple[int, int, list[int]]], loads: bool, saves: bool, polls: int) -> dict[str, Any]:
        """The step has run; the connector saves, and tells what has ended. `loads` and `saves` say whether transfers
        that we make in its place may end now; it is asked `polls` times more."""
        self._caches.write(writes)
        workers.GATE.loads, workers.GATE.saves = loads, saves
        output = self._in_flight[-1][0]
        self._ended = self._worker.finish(output, set(output.finished_req_ids))
        for _ in range(polls):
            self._ended.join(self._worker.ended(set()))
        self._ended.meta = self._worker.meta()
        ended = self._ended
        return {
            "changed": self._caches.changed(),
            "received": sorted(ended.received),
            "sent": sorted(ended.sent),
            "failed": sorted(ended.failed),
            "invalid": sorted(ended.invalid),
        }

    def update(self, received: list[str], failed: list[str]) -> dict[str, Any]:
        """The scheduler takes the output of the step, with the loads that have ended by now, and those that failed."""
        output, samples, _ = self._in_flight.pop(0)
        names = list(output.num_scheduled_tokens)
        running = dict(self._scheduler.requests)
        report = driver.call(
            self._vllm.outputs.KVConnectorOutput,
            finished_sending=self._ended.sent or None,
            finished_recving=set(received) or None,
            failed_recving=set(failed),
            invalid_block_ids=set(self._ended.invalid),
            kv_connector_worker_meta=self._ended.meta,
        )
        sampled = [self._next_tokens(name, 0) if name in samples else [] for name in names]
        self._take_output(output, names, sampled, report)
        self._learn_hashes(running)
        state: dict[str, Any] = self._state()
        return state

    # The connector

    def _offering(self, connector: Any) -> Any:
        """The class, with lookups that may diverge offered to it or not. It decides nothing else."""

        def offers(itself: Any) -> bool:
            return bool(
                super(offering, itself).supports_divergent_local_hybrid_hits if self._offers is None else self._offers
            )

        offering: Any = type(
            connector.__name__, (connector,), {"supports_divergent_local_hybrid_hits": property(offers)}
        )
        return offering

    def _transfer_config(self, connector: dict[str, Any] | None, load_failure: str) -> Any:
        if self._fresh is not None:
            self._fresh.cleanup()
        self._fresh = tempfile.TemporaryDirectory()
        extra = json.loads(json.dumps(self._extra).replace(FRESH, self._fresh.name))
        config = self._vllm.config.KVTransferConfig(
            kv_connector=self._name, kv_role=self._role, kv_connector_extra_config=extra
        )
        config.kv_load_failure_policy = load_failure
        return config

    def _kv_cache_tensors(self, specs: list[Any], pool_blocks: int) -> list[Any]:
        """The layout of `Caches`. From 0.30 all layers share an allocation, and each says where in it it begins."""
        self._caches = Caches(self._vllm.torch, specs, pool_blocks)
        pages = [spec.page_size_bytes for spec in specs]
        tensor = self._vllm.specs.KVCacheTensor
        if "layers" not in tensor.__dataclass_fields__:
            return [tensor(size=page * pool_blocks, shared_by=[f"layer{number}"]) for number, page in enumerate(pages)]
        return [
            tensor(
                size=sum(pages) * pool_blocks,
                layers=[f"layer{number}"],
                layer_stride=page * pool_blocks,
                block_stride=page,
                offset=sum(pages[:number]) * pool_blocks,
            )
            for number, page in enumerate(pages)
        ]

    def _observe(self) -> None:
        """Note what the connector is told, and ask it as often as is wanted, and only then what the scheduler sees."""
        connector = self._scheduler.connector
        self._configured = self._manager.kv_cache_config
        ask, tell = connector.get_num_new_matched_tokens, connector.update_state_after_alloc

        def repeated_ask(request: Any, num_computed_tokens: int) -> Any:
            answer = ask(request, num_computed_tokens)
            for _ in range(self._times_asked - 1):
                if answer[0] is not None:
                    answer = ask(request, num_computed_tokens)
            return answer

        def observed_tell(request: Any, blocks: Any, num_external_tokens: int) -> Any:
            self._told.append([CONNECTOR, request.request_id, num_external_tokens])
            return tell(request, blocks, num_external_tokens)

        connector.get_num_new_matched_tokens = repeated_ask
        connector.update_state_after_alloc = observed_tell
        super()._observe()

    def _end(self) -> None:
        """The last connector gives up what it holds."""
        halves = (self._scheduler and self._scheduler.connector, self._worker)
        self._scheduler = self._worker = None
        for half in halves:
            if half is not None:
                with contextlib.suppress(Exception):
                    half.shutdown()


if __name__ == "__main__":
    driver.serve(ConnectorEngine)
