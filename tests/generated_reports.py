"""Reports as an engine might leave them, in every combination of verdicts: strategies for the tests of the formats."""

from __future__ import annotations

from hypothesis import strategies as st

from hitbound.judgement import Judgement
from hitbound.report import Report
from model.policies import POLICIES
from properties.trace_document import read_trace
from properties.verdict import ALL_CELLS, Case, Result, Verdict
from tests.command_line import CORPUS

POLICY = POLICIES["vllm-0.24"]
OVERSTATED = read_trace(CORPUS / "S01.json")
"""POLICY violates HIT-RESUME with E = 0 on it."""

texts = st.text(max_size=12)


@st.composite
def judgements(draw: st.DrawFn) -> Judgement:
    """One result, of any verdict, required or not, known or not."""
    verdict = draw(st.sampled_from(Verdict))
    violated = verdict is Verdict.VIOLATED
    result = Result(
        property="HIT-RESUME" if violated else draw(st.sampled_from(["HIT-RESUME", "CAP-MEET", "POLICY-TOTAL"])),
        engine=draw(st.sampled_from(["prove", "corpus", "fuzz", "explore", "gate"])),
        verdict=verdict,
        required=draw(st.booleans()),
        cell=draw(st.sampled_from([None, *ALL_CELLS])),
        case=Case.LOCAL if violated else None,
        scope=draw(texts),
        reason=draw(texts),
        trace=OVERSTATED if violated else None,
    )
    return Judgement(POLICY.name, result, signature=draw(texts), known=violated and draw(st.booleans()))


reports = st.builds(
    Report,
    command=st.just("gate"),
    policies=st.just((POLICY,)),
    judgements=st.lists(judgements(), max_size=6).map(tuple),
    profile=st.just("ci"),
    seed=st.just(0),
    accept_bounded=st.booleans(),
    configured_in=st.sampled_from(["", "hitbound.toml"]),
)
