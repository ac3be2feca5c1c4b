"""What changed in the scheduler and the worker between releases, beside the cache-hit policy.

Each field is one rule, and its values are the rules that existed; the defaults are those of the newest release. Only
switches that something reads belong here. A `Configuration` has a release; a policy is chosen apart from it.
"""

from __future__ import annotations

import enum

import attrs


class Adoption(enum.Enum):
    """In which order an admission references hit blocks and takes new ones (`allocate_new_computed_blocks`)."""

    ALL_HITS_FIRST = "all_hits_first"
    """Every group's hits are referenced before any block is taken (vLLM #44409, in 0.24)."""
    GROUP_BY_GROUP = "group_by_group"
    """Each group references its hits and takes its external blocks before the next group's turn (up to 0.23)."""


@attrs.frozen
class Release:
    """The rules of one release; see each rule for what it governs."""

    adoption: Adoption = Adoption.ALL_HITS_FIRST


NEWEST = Release()

RELEASES: dict[str, Release] = {
    "0.23": Release(adoption=Adoption.GROUP_BY_GROUP),
    "0.24": NEWEST,
}
"""Rules by the release in which the set appeared first."""
