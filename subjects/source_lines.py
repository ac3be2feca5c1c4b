"""Where a function of vLLM stands in a subject's source tree."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

FILES = (
    "vllm/v1/core/sched/scheduler.py",
    "vllm/v1/core/kv_cache_manager.py",
    "vllm/v1/core/kv_cache_coordinator.py",
    "vllm/v1/core/single_type_kv_cache_manager.py",
    "vllm/v1/core/block_pool.py",
    "vllm/distributed/kv_transfer/kv_connector/v1/multi_connector.py",
)
"""Where the functions are that the model mirrors."""


def place_of(tree: Path, function: str) -> str:
    """FILE:LINE of `Class.function` in a source tree; nothing if this release has no such function."""
    return next((f"{file}:{line}" for file, name, line in _functions(tree) if name == function), "")


@functools.cache
def _functions(tree: Path) -> tuple[tuple[str, str, int], ...]:
    return tuple(found for file in FILES if (tree / file).is_file() for found in _in_file(tree, file))


def _in_file(tree: Path, file: str) -> Iterator[tuple[str, str, int]]:
    for top in ast.parse((tree / file).read_text(encoding="utf-8")).body:
        if isinstance(top, ast.ClassDef):
            for inner in top.body:
                if isinstance(inner, ast.FunctionDef):
                    yield file, f"{top.name}.{inner.name}", inner.lineno
