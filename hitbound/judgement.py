"""One result of an engine as the gate judges it: what is needed of it, and whether it was reached."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import attrs

from properties.replay import Replay
from properties.verdict import Result, Verdict, weakest

SAMPLING_ENGINES = frozenset({"conform", "corpus", "explore", "fuzz"})
"""Engines that run the model or a real scheduler on samples, or in small scopes: the best they can say is
HOLDS_WITHIN. Every other engine must prove."""

KNOWN = "VIOLATED(known)"
"""How a violation is called that the `--known` file accepts."""


@attrs.frozen
class Judgement:
    """`result`, found for `policy`.

    `signature` tells a violation from others of the same property and cell. `finding` is the id of the page in
    docs/findings that it is written up on, `known` marks one that the `--known` file accepts. `asked` is what the
    gate's configuration needs of the property, if it says anything about it.
    `replay` is the run that confirmed a violation; on a real engine, `tree` is its source.
    """

    policy: str
    result: Result
    signature: str = ""
    finding: str = ""
    known: bool = False
    asked: Verdict | None = None
    replay: Replay | None = attrs.field(default=None, eq=False, repr=False)
    tree: Path | None = None

    @property
    def required(self) -> bool:
        return self.result.required

    @property
    def verdict(self) -> Verdict:
        return self.result.verdict

    @property
    def needed(self) -> Verdict:
        """The weakest verdict that counts as reached without `--accept-bounded`."""
        if self.result.engine in SAMPLING_ENGINES:
            return Verdict.HOLDS_WITHIN
        return self.asked or Verdict.PROVED

    @property
    def word(self) -> str:
        """The verdict as it is reported."""
        return KNOWN if self.known else self.verdict.value

    @property
    def reason(self) -> str:
        """Why the verdict is not better, as it is reported: with the finding that it is written up as."""
        if not self.finding:
            return self.result.reason
        return f"{self.result.reason} [finding: {self.finding}]"

    def reached(self, accept_bounded: bool = False) -> bool:
        """Whether the result is what was needed, or a violation that is accepted."""
        if self.known:
            return self.verdict is Verdict.VIOLATED
        needed = Verdict.HOLDS_WITHIN if accept_bounded else self.needed
        return self.verdict.weakness <= needed.weakness


def combined(judgements: Collection[Judgement]) -> str:
    """The verdict on all that is required: as weak as its weakest part.

    A sampling engine that held within its scope does not weaken what was proved beside it; alone, it is all there is.
    """
    required = [judgement for judgement in judgements if judgement.required]
    missed = [judgement.verdict for judgement in required if not judgement.reached(accept_bounded=True)]
    if missed:
        return weakest(missed).value
    if any(judgement.known for judgement in required):
        return KNOWN
    proofs = [judgement.verdict for judgement in required if judgement.needed is Verdict.PROVED]
    return weakest(proofs or [judgement.verdict for judgement in required]).value
