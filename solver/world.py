"""The unknowns of one admission: sizes, hits, the connector's answer, and what the policy makes of them.

One arbitrary group of each kind stands for all groups of that kind, so their number is not bounded.
"""

from __future__ import annotations

import attrs
import z3

from model.policy import Lookup, Summary
from solver.forking import ForkingRun


@attrs.frozen(eq=False)
class SpecSymbols:
    """One arbitrary spec: its own hit (tokens), and which boundaries are valid for it."""

    hit: z3.ArithRef
    valid: z3.FuncDeclRef


def spec_symbols(name: str) -> SpecSymbols:
    return SpecSymbols(z3.Int(f"hit of {name}"), z3.Function(f"valid for {name}", z3.IntSort(), z3.BoolSort()))


REFERENCE = spec_symbols("full attention")
"""The first full-attention spec; every multiple of the scheduler block below its hit is valid for it too."""
FULL = REFERENCE.hit
SECOND = spec_symbols("second attention spec")
RECURRENT = spec_symbols("recurrent group")
WITNESS = spec_symbols("recurrent witness")
"""The recurrent group that does not hold state@asked, if any does not."""

N = z3.Int("N")
CAP = z3.Int("cap")
"""The cap under which the hits were found: that of the policy whose decision is looked at."""
S = z3.Int("scheduler block")
B = z3.Int("mamba block")
COPIED_BEFORE_LOAD = z3.Int("mamba block that is copied before a synchronous load")
"""0 if there is none."""
SHALLOWEST = z3.Int("shallowest")
DEEPEST = z3.Int("deepest")
LOWEST_ATTENTION = z3.Int("lowest attention")
COMMON = z3.Int("common")
ALIGNED_COMMON = z3.Int("aligned common")

BACKED = z3.Bool("every recurrent group holds state@asked")
CONNECTED = z3.Bool("connected")
CLAIMS = z3.Bool("tree claims")
"""What the policy computes as the claim of the whole connector tree."""
WINNER_CLAIMS = z3.Bool("winner claims")
"""Whether the leaf that answered claims."""
STRENGTH = z3.Int("contract strength")
"""`Contract` of the leaf that answered."""
ASYNCHRONOUS = z3.Bool("asynchronous")
FIRST_CHUNK = z3.Int("first chunk")
"""Tokens of the chunk that runs from R."""


@attrs.frozen(eq=False)
class Decision:
    """What one policy decides in the world above; two policies in the same world have one each. Tokens."""

    cap: z3.ArithRef
    E: z3.ArithRef
    """The connector's answer, counted from `asked`."""
    per_group: z3.BoolRef
    first_local: z3.ArithRef
    asked: z3.ArithRef
    local: z3.ArithRef
    external: z3.ArithRef

    @property
    def resume(self) -> z3.ArithRef:
        return self.local + self.external


def decision_symbols(whose: str = "") -> Decision:
    suffix = f" of {whose}" if whose else ""
    return Decision(
        cap=z3.Int(f"cap{suffix}"),
        E=z3.Int(f"E{suffix}"),
        per_group=z3.Bool(f"lookup per group{suffix}"),
        first_local=z3.Int(f"first local{suffix}"),
        asked=z3.Int(f"asked{suffix}"),
        local=z3.Int(f"local{suffix}"),
        external=z3.Int(f"external{suffix}"),
    )


def summary_for(run: ForkingRun, lookup: Lookup) -> Summary:
    """The summary that the policy sees."""
    return Summary(
        lookup=lookup,
        full_attention=run.number(FULL),  # type: ignore[arg-type]
        shallowest=run.number(SHALLOWEST),  # type: ignore[arg-type]
        deepest=run.number(DEEPEST),  # type: ignore[arg-type]
        lowest_attention=run.number(LOWEST_ATTENTION),  # type: ignore[arg-type]
        common=run.number(COMMON),  # type: ignore[arg-type]
        aligned_common=run.number(ALIGNED_COMMON),  # type: ignore[arg-type]
        scheduler_block=run.number(S),  # type: ignore[arg-type]
        copied_before_load=run.number(COPIED_BEFORE_LOAD),  # type: ignore[arg-type]
    )
