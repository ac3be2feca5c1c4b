"""Features of the model that a fuzz campaign may draw; without any of them configurations stay small and plain."""

from __future__ import annotations

import enum


class Feature(enum.Enum):
    """A switch of the configuration that strategies draw, in part of the runs, where a campaign has the feature."""

    PARTIAL_TAILS = "partial tails"
    """A hash unit below the Mamba block: hits may end inside a block."""
    STORES = "stores"
    """Connectors that keep objects, each of which may go by itself."""
    STEPS_IN_FLIGHT = "steps in flight"
    """Steps are scheduled before earlier ones have executed."""
    FAILED_BLOCKS = "failed blocks"
    """Loads fail in part, and requests with them where they are to."""
    PEERS = "peers"
    """Connectors that transfer a request's own blocks from a peer, once."""
    DRAFT_MODEL = "draft model"
    """Some attention groups hold layers of a draft model: their hits drop a block."""
    SPARSE_RETENTION = "sparse retention"
    """Not every state and window is cached."""
    EVERY_STATE = "every state"
    """Recurrent states may be written at the end of every block."""
    INTERNAL_CHECKPOINT = "internal checkpoints"
    """A chunk of a prefill may store one more state, as far as that is safe (see `CheckpointStart`,
    `UnreservedCheckpoint`)."""
    CHUNKED_LOCAL = "chunked local attention"
    """The second attention spec may be chunked local attention."""
    SPECULATION = "speculative decoding"
    """Steps verify drafts, of the draft model if there is one, and states of drafts lie in scratch blocks."""
    SKIPPED_READING = "skipped reading"
    """Some requests are not to read the prefix cache."""
    AUXILIARY_OUTPUTS = "auxiliary outputs"
    """A hit may need outputs that are kept by the block, and a load without them is given up."""
    PREFIX_REPLAY = "prefix replay"
    """Where there is only full attention, the end of a hit may be run again."""
    CONTEXT_PARALLEL = "context parallelism"
    """Full attention may be sharded over several ranks, so that its blocks are wider than those that are not."""
    PRIORITIES = "priorities"
    """Requests may have priorities: the last in turn is preempted, even if it is in the step already."""
    INTERRUPTIONS = "interruptions"
    """No switch of the configuration: running requests are preempted more often, and aborted ones come again."""
