"""The exit code, exhaustively: nothing unknown, vacuous, not inductive or weaker than required leads to success."""

from __future__ import annotations

import itertools

import pytest

from hitbound.exit_codes import PRECEDENCE, ExitCode, exit_code
from hitbound.judgement import Judgement, combined
from properties.verdict import Result, Verdict

ENGINES = ("prove", "fuzz", "an engine of tomorrow")

EVERY = [
    Judgement("p", Result(property="HIT-RESUME", engine=engine, verdict=verdict, required=required), known=known)
    for engine in ENGINES
    for verdict in Verdict
    for required in (True, False)
    for known in (False, True)
    if not known or verdict is Verdict.VIOLATED
]

ALONE = {
    Verdict.PROVED: ExitCode.REACHED,
    Verdict.HOLDS_WITHIN: ExitCode.NOT_REACHED,
    Verdict.UNKNOWN: ExitCode.NOT_REACHED,
    Verdict.VACUOUS: ExitCode.VACUOUS,
    Verdict.CTI: ExitCode.NOT_INDUCTIVE,
    Verdict.VIOLATED: ExitCode.VIOLATED,
}
"""What one required verdict of an engine that must prove leads to."""


def expected_alone(judgement: Judgement, accept_bounded: bool) -> ExitCode:
    if not judgement.result.required:
        return ExitCode.VACUOUS
    if judgement.known:
        return ExitCode.REACHED
    if judgement.result.verdict is Verdict.HOLDS_WITHIN and (accept_bounded or judgement.result.engine == "fuzz"):
        return ExitCode.REACHED
    return ALONE[judgement.result.verdict]


def rank(code: ExitCode) -> int:
    return [listed for listed, _ in PRECEDENCE].index(code)


@pytest.mark.parametrize("accept_bounded", [False, True])
def test_every_single_judgement(accept_bounded: bool) -> None:
    for judgement in EVERY:
        assert exit_code([judgement], accept_bounded) == expected_alone(judgement, accept_bounded), judgement


@pytest.mark.parametrize("accept_bounded", [False, True])
def test_every_pair_and_triple_is_as_bad_as_its_worst(accept_bounded: bool) -> None:
    for size in (2, 3):
        for judgements in itertools.combinations_with_replacement(EVERY, size):
            required = [judgement for judgement in judgements if judgement.result.required]
            codes = [expected_alone(judgement, accept_bounded) for judgement in required] or [ExitCode.VACUOUS]
            assert exit_code(judgements, accept_bounded) == min(codes, key=rank), judgements


def test_nothing_is_vacuous() -> None:
    assert exit_code([]) == ExitCode.VACUOUS
    assert combined([]) == "VACUOUS"


def test_success_and_the_combined_verdict_agree() -> None:
    for judgements in itertools.combinations_with_replacement(EVERY, 2):
        success = exit_code(judgements, accept_bounded=True) == ExitCode.REACHED
        assert success == (combined(judgements) in {"PROVED", "HOLDS_WITHIN", "VIOLATED(known)"}), judgements


def test_a_sampling_engine_does_not_weaken_a_proof_but_is_no_proof() -> None:
    proof = Judgement("p", Result(property="a", engine="prove", verdict=Verdict.PROVED, required=True))
    sample = Judgement("p", Result(property="a", engine="fuzz", verdict=Verdict.HOLDS_WITHIN, required=True))
    assert combined([proof, sample]) == "PROVED"
    assert combined([sample]) == "HOLDS_WITHIN"


def test_a_known_violation_never_reads_as_proved() -> None:
    proof = Judgement("p", Result(property="a", engine="prove", verdict=Verdict.PROVED, required=True))
    known = Judgement("p", Result(property="b", engine="prove", verdict=Verdict.VIOLATED, required=True), known=True)
    assert combined([proof, known]) == "VIOLATED(known)"


def test_every_code_is_listed_once() -> None:
    assert sorted(code for code, _ in PRECEDENCE) == sorted(ExitCode)
