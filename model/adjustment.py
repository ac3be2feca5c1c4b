"""What changes L or E after a connector has answered, beside the policy: requests that do not read the cache, auxiliary
outputs that every hit needs, and models that run the end of a hit again.

Mirrors what `Scheduler.schedule` does with `skip_reading_prefix_cache`, `prefix_replay_tokens` and
`AuxOutputSchedulerConnector` (vllm/distributed/aux_output_connector/connector.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import attrs

from model.configuration import Configuration
from model.policy import Policy, Summary, falls_back
from model.pool import Label, Pool
from model.request import Request
from model.rules.lookup import SkippedReading
from model.tokens import Prefix

Settle = Callable[[int, bool, int, int, Summary, int], tuple[int, int]]
"""The part `settle` of a policy."""


@attrs.frozen
class Outputs:
    """Auxiliary outputs (of routed experts) of one request's prefix: they are kept for `kept` tokens, in whole blocks
    of `block` tokens. A hit that reaches further would lack some."""

    kept: int
    block: int

    def cover(self, boundary: int) -> bool:
        """Whether a load may end at `boundary` (`cap_external_hit`)."""
        return boundary % self.block == 0 and boundary <= self.kept


def group_of_outputs(configuration: Configuration) -> int:
    """The group by whose blocks outputs are kept: the first of full attention."""
    return configuration.specs[0][0]


def outputs_of(configuration: Configuration, pool: Pool, kept: frozenset[Prefix], request: Request) -> Outputs | None:
    """How far the outputs of a request's prefix are kept (`max_cache_hit`); None where none are needed."""
    if not configuration.auxiliary_outputs:
        return None
    group = group_of_outputs(configuration)
    block = configuration.groups[group].block
    tokens = 0
    for prefix in _blocks_of(request.tokens, block):
        if prefix not in kept and pool.find(Label(group, prefix)) is None:
            break
        tokens += block
    return Outputs(min(tokens, len(request.tokens) - 1), block)


def kept_for_later(configuration: Configuration, pool: Pool, request: Request) -> frozenset[Prefix]:
    """Prefixes whose outputs are kept when a request loses its blocks (`request_finished`): of its computed blocks,
    those that are cached then. vLLM gives up the oldest where there are more than twice the blocks of the pool."""
    group = group_of_outputs(configuration)
    block = configuration.groups[group].block
    computed = _blocks_of(request.tokens[: request.computed], block)
    return frozenset(prefix for prefix in computed if pool.find(Label(group, prefix)) is not None)


def _blocks_of(prefix: Prefix, block: int) -> Iterator[Prefix]:
    return (prefix[:end] for end in range(block, len(prefix) + 1, block))


def takes_nothing(configuration: Configuration, request: Request) -> bool:
    """Whether nothing of an answer is used, be it unknown or not."""
    return request.skip_reading and configuration.release.skipped_reading is SkippedReading.NOTHING


def usable_tokens(configuration: Configuration, request: Request, tokens: int) -> int:
    """What of an answer of `tokens` the policy gets to settle with."""
    if takes_nothing(configuration, request):
        return 0
    return tokens - tokens % configuration.scheduler_block if configuration.replay_window else tokens


def settled(
    configuration: Configuration,
    policy: Policy,
    outputs: Outputs | None,
    local: int,
    diverged: bool,
    asked: int,
    E: int,
    summary: Summary,
    N: int,
) -> tuple[int, int]:
    """L and E as they are adopted: what the policy settles on, with what is changed on the way."""
    if outputs is None:
        local, external = policy.settle(local, diverged, asked, E, summary, N)
    else:
        again = diverged or falls_back(policy)
        local, external = settled_with_outputs(policy.settle, outputs, local, again, asked, E, summary, N)
    return without_short_hits(configuration.replay_window, local, external)


def settled_with_outputs(
    settle: Settle, outputs: Outputs, local: int, again: bool, asked: int, E: int, summary: Summary, N: int
) -> tuple[int, int]:
    """A load that ends where outputs are missing is given up as a whole, after the tail was dropped for it; only then
    does the hit fall back, if it is looked up `again`: vLLM does so with one that diverged."""
    boundary, external = settle(local, False, asked, E, summary, N)
    if not outputs.cover(boundary + external):
        external = 0
    if again and external == 0:
        return settle(local, True, asked, 0, summary, N)
    return boundary, external


def without_short_hits(window: int, local: int, external: int) -> tuple[int, int]:
    """A hit of which all would be run again is none."""
    return (0, 0) if local + external <= window else (local, external)


def rerun_tokens(configuration: Configuration, resume: int) -> int:
    """Tokens below the boundary `resume` that are run again (`_mark_prefix_replay`)."""
    return min(configuration.replay_window, resume)
