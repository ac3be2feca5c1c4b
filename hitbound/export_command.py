"""`hitbound export`: a trace as a regression test, as a trace of the gate's corpus, or for other tools."""

from __future__ import annotations

import json
import re

import attrs

from hitbound.policy_loading import load_policy
from model.policies import DEFAULT_POLICY
from model.release import REPAIRED
from model.trace import Trace
from properties.replay import replay
from properties.trace_document import dump_trace

FORMS = ("pytest", "corpus", "itf", "vllm-test")

RIGHT = "reference"
"""The policy whose admissions a test for vLLM asserts, unless another one is named."""

TEST = '''"""A regression test of {policy}, written by `hitbound export`: {title}"""

from __future__ import annotations

from hitbound.policy_loading import load_policy
from properties.replay import replay
from properties.trace_document import load_trace

TRACE = r"""
{trace}"""


def test_{name}() -> None:
    replayed = replay(load_trace(TRACE), load_policy({policy_text}))
    found = [f"{{each.property}}: {{each.message}}" for each in replayed.violations]
    assert not found, "\\n".join(found)
'''


def exported(trace: Trace, form: str, asked: str | None) -> str:
    """The text of the trace in a form of `FORMS`, under the policy that `asked` names.

    Raises PolicyError, or NotForVllm.
    """
    if form == "vllm-test":
        from subjects.vllm_test import vllm_test

        repaired = attrs.evolve(trace, configuration=attrs.evolve(trace.configuration, release=REPAIRED))
        return vllm_test(trace, replay(repaired, load_policy(asked or RIGHT)).admissions)
    asked = asked or DEFAULT_POLICY
    if form == "corpus":
        return dump_trace(_regression(trace))
    if form == "itf":
        from solver.itf import itf

        return itf(trace, load_policy(asked))
    return _test(trace, asked)


def _regression(trace: Trace) -> Trace:
    """The trace as one that must violate nothing."""
    return attrs.evolve(trace, expectations=())


def _test(trace: Trace, asked: str) -> str:
    """A test that fails while the trace violates anything under the policy."""
    properties = {each.property for each in replay(trace, load_policy(asked)).violations}
    properties |= {property for expected in trace.expectations for property in expected.violates}
    words = "_".join(sorted(properties)) or trace.title
    return TEST.format(
        title=trace.title.replace("\\", "/").replace('"', "'"),
        policy=asked,
        trace=dump_trace(_regression(trace)),
        name=re.sub(r"\W+", "_", words.lower()).strip("_")[:80] or "trace",
        policy_text=json.dumps(asked),
    )
