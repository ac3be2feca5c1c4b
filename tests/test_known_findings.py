"""The findings of the newest release that are written up: all of them, and no other."""

from __future__ import annotations

import pytest

from hitbound.gate import judge
from hitbound.known_findings import mark_known, read_known, stale
from model.policies import DEFAULT_POLICY, POLICIES
from properties.verdict import Verdict
from tests.command_line import CHECKOUT
from tests.proofs import proof_of

FILE = CHECKOUT / "hitbound" / "known" / "vllm.json"


@pytest.mark.slow
def test_every_violation_of_the_newest_release_is_written_up_and_occurs() -> None:
    findings = read_known(FILE)
    judgements = mark_known(judge(POLICIES[DEFAULT_POLICY], proof_of(DEFAULT_POLICY), both_solvers=True), findings)
    violated = [judgement for judgement in judgements if judgement.verdict is Verdict.VIOLATED]
    assert violated
    assert [judgement for judgement in violated if not judgement.known] == []
    assert not stale(findings, judgements)


def test_what_is_written_up_is_about_the_newest_release_and_has_its_page() -> None:
    findings = read_known(FILE)
    assert {finding.policy for finding in findings} == {DEFAULT_POLICY}
    assert all((CHECKOUT / finding.why).is_file() for finding in findings)
    assert len(set(findings)) == len(findings)
