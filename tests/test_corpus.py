"""The corpus: every policy does on every trace what the trace states, number for number and invariant for invariant."""

from pathlib import Path

import pytest

from hitbound.corpus import corpus
from hitbound.corpus_check import check_corpus
from hitbound.expectation import unmet
from model.policies import DISTINCT, POLICIES, policy_named
from model.trace import Expectation, Trace
from properties.replay import replay
from properties.trace_document import read_trace
from properties.verdict import Verdict

CORPUS = sorted((Path(__file__).parent / "corpus").glob("*.json"))
CASES = [
    pytest.param(trace, expected, id=f"{path.stem}-{expected.policy}")
    for path in CORPUS
    for trace in (read_trace(path),)
    for expected in trace.expectations
]

pytestmark = pytest.mark.corpus


@pytest.mark.parametrize(("trace", "expected"), CASES)
def test_the_policy_does_what_the_trace_states(trace: Trace, expected: Expectation) -> None:
    assert unmet(expected, replay(trace, policy_named(expected.policy))) == []


ASSERTED = {("S14", "vllm-0.27"), ("S15", "vllm-0.27")}
"""Where that release fails an assertion of its own instead (record 19 of the public reports)."""


def test_every_scenario_states_what_every_policy_does() -> None:
    scenarios = [path for path in CORPUS if path.stem.startswith("S")]
    assert len(scenarios) == 15
    for path in CORPUS:
        stated = {expected.policy for expected in read_trace(path).expectations}
        asserted = {policy for stem, policy in ASSERTED if stem == path.stem}
        assert stated | asserted >= set(DISTINCT)


def test_vllm_0_28_passes_the_corpus_though_findings_about_it_are_in_it() -> None:
    findings = [trace for trace in corpus() if any(e.violates for e in trace.expectations if e.policy == "vllm-0.28")]
    assert findings
    results = check_corpus(POLICIES["vllm-0.28"])
    assert {result.verdict for result in results} == {Verdict.HOLDS_WITHIN}
    assert Verdict.VIOLATED in {result.verdict for result in check_corpus(POLICIES["vllm-0.24"])}
