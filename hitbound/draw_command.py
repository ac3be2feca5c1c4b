"""`hitbound draw`: one admission of a trace as an image of its own."""

from __future__ import annotations

from hitbound.drawing import admission_svg
from hitbound.policy_loading import load_policy
from hitbound.trace_text import tells
from model.errors import HitboundError
from model.policies import DEFAULT_POLICY
from model.policy import Policy
from model.trace import Trace
from properties.replay import replay


class NothingToDraw(HitboundError):
    """A trace in which no admission has a hit or a load."""


def drawn(trace: Trace, policy: Policy | None, name: str = "admission") -> str:
    """The last admission with something to see, as SVG whose ids begin with `name`; raises NothingToDraw."""
    if policy is None:
        policy = load_policy(next((expected.policy for expected in trace.expectations), DEFAULT_POLICY))
    telling = [
        (observation, admission)
        for observation in replay(trace, policy).observations
        for admission in observation.admissions
        if tells(admission)
    ]
    if not telling:
        raise NothingToDraw(
            f"under {policy.name} no admission of this trace has a hit or a load; try `hitbound replay`"
        )
    return admission_svg(policy, *telling[-1], name)
