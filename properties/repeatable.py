"""Makes a seed mean the same runs wherever hitbound is installed and whatever else is imported.

Hypothesis mixes constants into what it draws that it reads from the source of all modules loaded so far, other than
installed ones. So the same seed would give other runs in a checkout than in a wheel, and others once a file changes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from hypothesis.internal.conjecture import providers
from hypothesis.internal.conjecture.data import ConjectureData, ConjectureResult
from hypothesis.internal.conjecture.engine import ConjectureRunner
from hypothesis.internal.constants_ast import Constants


@contextlib.contextmanager
def repeatable_draws() -> Iterator[None]:
    """Within this context Hypothesis draws without constants from loaded modules."""
    original = providers._get_local_constants
    providers._get_local_constants = Constants
    providers.CONSTANTS_CACHE.cache.clear()
    try:
        yield
    finally:
        providers._get_local_constants = original
        providers.CONSTANTS_CACHE.cache.clear()


@contextlib.contextmanager
def varied_draws(wanted: bool) -> Iterator[None]:
    """Within this context Hypothesis draws every run anew, if that is `wanted`.

    Else it draws one and runs five variations of it, which have the same configuration: a hundred runs see some twenty
    configurations.
    """
    original = ConjectureRunner.generate_mutations_from
    if wanted:
        ConjectureRunner.generate_mutations_from = _nothing  # type: ignore[method-assign]
    try:
        yield
    finally:
        ConjectureRunner.generate_mutations_from = original  # type: ignore[method-assign]


def _nothing(self: ConjectureRunner, data: ConjectureData | ConjectureResult) -> None:
    pass
