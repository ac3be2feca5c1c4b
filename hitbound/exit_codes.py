"""What the process tells its caller. CI reads nothing else, so it is one small pure function."""

from __future__ import annotations

import enum
from collections.abc import Collection

from hitbound.judgement import Judgement
from properties.verdict import Verdict


class ExitCode(enum.IntEnum):
    """Exit codes; where several apply, the first of the order in `PRECEDENCE` is used."""

    REACHED = 0
    VIOLATED = 1
    USAGE = 2
    NOT_REACHED = 3
    NOT_INDUCTIVE = 4
    VACUOUS = 5
    INTERNAL_ERROR = 70
    INTERRUPTED = 130


PRECEDENCE = (
    (ExitCode.INTERNAL_ERROR, "internal error of hitbound"),
    (ExitCode.INTERRUPTED, "interrupted"),
    (ExitCode.USAGE, "wrong usage, policy file, trace or configuration"),
    (ExitCode.VIOLATED, "a required property is violated, with a replayed trace"),
    (ExitCode.NOT_INDUCTIVE, "a required property is not inductive (CTI), or its counterexample does not replay"),
    (ExitCode.VACUOUS, "a required check is vacuous, or nothing was required"),
    (ExitCode.NOT_REACHED, "a required verdict is unknown, met a limit, or is weaker than required"),
    (ExitCode.REACHED, "all that is required was reached"),
)
"""Every exit code and what it means, the first that applies first."""


def exit_code(judgements: Collection[Judgement], accept_bounded: bool = False) -> ExitCode:
    """The exit code that the judgements deserve; only verdicts that reach what is needed lead to success."""
    required = [judgement for judgement in judgements if judgement.required]
    open_ones = [judgement for judgement in required if not judgement.reached(accept_bounded)]
    missed = {judgement.verdict for judgement in open_ones}
    if Verdict.VIOLATED in missed:
        return ExitCode.VIOLATED
    if Verdict.CTI in missed:
        return ExitCode.NOT_INDUCTIVE
    if Verdict.VACUOUS in missed or not required:
        return ExitCode.VACUOUS
    if missed:
        return ExitCode.NOT_REACHED
    return ExitCode.REACHED


def help_text() -> str:
    """The table of exit codes for `--help`."""
    lines = [f"{code.value:>5}  {meaning}" for code, meaning in PRECEDENCE]
    return "\b\nExit codes, the first that applies:\n" + "\n".join(lines)
