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


class DraftGroups(enum.Enum):
    """Which groups drop the last block of a hit, when there is a draft model (EAGLE, MTP)."""

    HOLDING_DRAFT_LAYERS = "holding_draft_layers"
    EVERY_GROUP = "every_group"
    """No group was recognised as that of the draft model, so all were taken for it (vLLM #57616, #54360, #52735)."""


class DraftDrop(enum.Enum):
    """How far past a candidate a draft group looks before it drops a block, and how often it drops."""

    PAST_THE_CAP = "past_the_cap"
    """One block past the candidate, as far as the request is hashed; once per candidate (from 0.32)."""
    WITHIN_THE_CAP = "within_the_cap"
    """One block past the candidate, but never past the cap; once per candidate (up to 0.31)."""
    EVERY_PASS = "every_pass"
    """Never past the candidate, and dropped again on each pass of the lookup (before vLLM #32802)."""


class DraftLookAhead(enum.Enum):
    """Which of the dropping groups look past the candidate."""

    ATTENTION = "attention"
    """Those that then drop what they found there (from 0.26)."""
    EVERY_KIND = "every_kind"
    """Mamba groups as well, which never drop (up to 0.25: vLLM #43650, vllm-ascend #12038)."""


@attrs.frozen
class Release:
    """The rules of one release; see each rule for what it governs."""

    adoption: Adoption = Adoption.ALL_HITS_FIRST
    draft_groups: DraftGroups = DraftGroups.HOLDING_DRAFT_LAYERS
    draft_drop: DraftDrop = DraftDrop.PAST_THE_CAP
    draft_look_ahead: DraftLookAhead = DraftLookAhead.ATTENTION


NEWEST = Release()

_BEFORE_032 = Release(draft_drop=DraftDrop.WITHIN_THE_CAP)
_BEFORE_026 = attrs.evolve(_BEFORE_032, draft_look_ahead=DraftLookAhead.EVERY_KIND)

RELEASES: dict[str, Release] = {
    "0.23": attrs.evolve(_BEFORE_026, adoption=Adoption.GROUP_BY_GROUP),
    "0.24": _BEFORE_026,
    "0.26": _BEFORE_032,
    "0.32": NEWEST,
}
"""Rules by the release in which the set appeared first."""


def rules_of(release: str) -> Release:
    """The rules of a release, "0.31" say: those of the last set that appeared by then."""
    return RELEASES[max(first for first in RELEASES if first <= release)]
