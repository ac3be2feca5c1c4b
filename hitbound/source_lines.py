"""Where a violated decision is made: the lines of the policy, and the vLLM functions that they mirror."""

from __future__ import annotations

import inspect
import os
from pathlib import Path

import attrs

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


@attrs.frozen
class Place:
    """A line of a file in which a policy decides something; `part` is empty for the policy as a whole."""

    file: str
    line: int
    part: str = ""


def deciding_lines(policy: Policy, property: str, tree: Path | None = None) -> list[str]:
    """One line per part that decides the property: file, line, part and the vLLM function.

    With the source `tree` of a real engine, where that function stands in it.
    """
    if tree is not None:
        functions = dict.fromkeys(MIRRORS[part] for part in DECIDED_BY.get(property, ()))
        return [f"{function} at {place}" for function in functions if (place := place_of(tree, function))]
    return [
        f"`{place.part}` at {place.file}:{place.line}, in vLLM {MIRRORS[place.part]}"
        for place in deciding_places(policy, property)
    ]


def deciding_places(policy: Policy, property: str) -> list[Place]:
    """Where the parts of the policy are that decide the property."""
    return [place for part in DECIDED_BY.get(property, ()) if (place := _place(policy, part))]


def annotated_place(policy: Policy, property: str, otherwise: str) -> Place | None:
    """Where to point a reader, by a path from the repository: the first deciding part in a file of the user's own, else
    the policy's class, else the first line of the file `otherwise`.

    None where there is no such file in the repository.
    """
    kind = type(policy)
    own = home_of(kind)
    if own is not None and (file := repository_path(own)):
        shown = shown_path(str(own))
        places = [place for place in deciding_places(policy, property) if place.file == shown]
        line = places[0].line if places else inspect.getsourcelines(kind)[1]
        return Place(file, line)
    file = repository_path(Path(otherwise)) if otherwise else ""
    return Place(file, 1) if file else None


def repository_path(file: Path) -> str:
    """A file by its path from the repository: the workspace of a CI job, else the current directory; nothing for a file
    that lies elsewhere."""
    root, path = Path(os.environ.get("GITHUB_WORKSPACE") or Path.cwd()).resolve(), file.resolve()
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else ""


def home_of(kind: type) -> Path | None:
    """The file that a class is written in, if there is one."""
    try:
        found = inspect.getsourcefile(kind)
    except TypeError:
        return None
    return Path(found) if found else None


def shown_path(file: str) -> str:
    """A file below the current directory by its path from there, one of ours by its place in the package."""
    path = Path(file).absolute()
    for folder in (Path.cwd(), Path(__file__).resolve().parents[1]):
        if path.is_relative_to(folder):
            return path.relative_to(folder).as_posix()
    return file


def _place(policy: Policy, part: str) -> Place | None:
    """Where a part of the policy is; None for a part that it does not have."""
    function = getattr(policy, part, None)
    if not callable(function):
        return None
    code = getattr(inspect.unwrap(function), "__code__", None)
    return Place(shown_path(code.co_filename), code.co_firstlineno, part) if code else None
