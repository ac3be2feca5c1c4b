"""The rules of loads: what follows an answer or a failure, and where the runner goes on after a load."""

from __future__ import annotations

import enum


class Recovery(enum.Enum):
    """What becomes of requests whose synchronous load failed (`_handle_invalid_blocks`)."""

    PREEMPTED = "preempted"
    """They are preempted with all that depends on the failed blocks, which lose their hashes (vLLM #56733)."""
    IN_PLACE = "in_place"
    """They keep their blocks, hashes too, and run again from their first failed block, or from 0 if there are several
    groups; so do others that hold a failed block (0.30)."""
    ONE_GROUP = "one_group"
    """IN_PLACE, but with several groups the engine stops with an exception (up to 0.29, vLLM #50388)."""
    UNNOTICED = "unnoticed"
    """Failures are named by request, and only an asynchronous load is asked about: nothing happens (from 0.31)."""


class FailureNames(enum.Enum):
    """How what a synchronous load failed to fill is named, to find out whom it concerns (`invalid_block_ids`)."""

    ENTRIES = "entries"
    """By request, group and block (proposed in vLLM #54733): what has changed hands since is another block."""
    BLOCK_NUMBERS = "block_numbers"
    """By bare numbers: whoever holds a block of that number now, in any group."""


class FailedTransfer(enum.Enum):
    """What becomes of a request whose asynchronous load failed."""

    UNDONE = "undone"
    """It loses its blocks and starts from a new admission (`_handle_failed_recving`)."""
    KEPT = "kept"
    """It goes on as if it had been loaded: the destination was bound to it when the load was announced (SGLang before
    #30986)."""


class AfterLoad(enum.Enum):
    """Whether the connector is asked about a request whose asynchronous load has completed."""

    NOT_ASKED = "not_asked"
    """It goes on from R (vLLM #18232)."""
    ASKED_AGAIN = "asked_again"
    """It is asked from R, and what it answers is loaded as well (before vLLM #18232)."""


class RunnerPosition(enum.Enum):
    """Where the worker takes the position of a running request from."""

    PLANNED = "planned"
    """From the plan (`num_computed_tokens` of `CachedRequestData`)."""
    OWN = "own"
    """From what it ran before, whatever the scheduler has rewound since (V2 runner, vLLM #49250)."""


class ResumeColumn(enum.Enum):
    """By which block the worker finds the column of the state from which a request starts that has a hit (`add_request`
    of `MambaHybridModelState`)."""

    OWN_BLOCK = "own_block"
    """By that of the Mamba groups (from 0.32, and the older runner)."""
    SMALLEST_BLOCK = "smallest_block"
    """By the smallest of any group, to which the engine core sets `cache_config.block_size` (the newer runner from 0.26
    to 0.31: vLLM #53142, #55600)."""
