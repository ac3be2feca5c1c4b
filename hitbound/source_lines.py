"""Where a violated decision is made: the lines of the policy, and the vLLM functions that they mirror."""

from __future__ import annotations

import inspect
from pathlib import Path

from model.policy import Policy
from subjects.source_lines import place_of

MIRRORS = {
    "cap": "KVCacheManager.get_computed_blocks",
    "accept": "HybridKVCacheCoordinator.find_longest_cache_hit",
    "claim_step": "MultiConnector.supports_divergent_local_hybrid_hits",
    "claims": "MultiConnector.supports_divergent_local_hybrid_hits",
    "choose_step": "MultiConnector.get_num_new_matched_tokens",
    "choose": "MultiConnector.get_num_new_matched_tokens",
    "assign": "MultiConnector.update_state_after_alloc",
    "lookup": "Scheduler._get_local_prefix_cache_hit",
    "local": "KVCacheManager.get_computed_blocks_for_connector",
    "settle": "Scheduler.schedule",
}
"""Part of a policy -> the vLLM function (0.28) that makes the same decision."""

DECIDED_BY = {
    "HIT-RESUME": ("lookup", "local", "settle"),
    "HIT-COVER": ("lookup", "local", "settle"),
    "HIT-SHRINK": ("accept",),
    "HIT-MEMBER": ("local", "accept"),
    "HIT-LAST": ("cap", "settle"),
    "HIT-AGAIN": ("settle",),
    "CAP-MEET": ("lookup", "claims", "claim_step"),
    "LOAD-SOURCE": ("choose", "choose_step", "assign"),
    "LOAD-EXACT": ("settle",),
}
"""Property -> the parts of a policy that decide it."""


def deciding_lines(policy: Policy, property: str, tree: Path | None = None) -> list[str]:
    """One line per part that decides the property: file, line, part and the vLLM function.

    With the source `tree` of a real engine, where that function stands in it.
    """
    parts = DECIDED_BY.get(property, ())
    if tree is not None:
        functions = dict.fromkeys(MIRRORS[part] for part in parts)
        return [f"{function} at {place}" for function in functions if (place := place_of(tree, function))]
    return [
        f"`{part}` at {place}, in vLLM {MIRRORS[part]}"
        for part in parts
        if (place := _place(policy, part))
    ]


def _place(policy: Policy, part: str) -> str:
    """FILE:LINE of a part of the policy; nothing for a part that it does not have."""
    function = getattr(policy, part, None)
    if not callable(function):
        return ""
    code = inspect.unwrap(function).__code__ if hasattr(inspect.unwrap(function), "__code__") else None
    return f"{_short(code.co_filename)}:{code.co_firstlineno}" if code else ""


def _short(file: str) -> str:
    """Our own files by their place in the package, a user's as they were named."""
    home = Path(__file__).resolve().parents[1]
    path = Path(file)
    return str(path.relative_to(home)) if path.is_relative_to(home) else file
