"""What the rules do that are in no report's case."""

from __future__ import annotations

import pytest

from properties.fuzz import Profile, findings, seek
from tests.rule_searches import SEARCHES

RUNS = Profile("rules", runs=100, actions=18, series=3, seed=0, needs_events=False)


@pytest.mark.nightly
@pytest.mark.parametrize("name", SEARCHES)
def test_what_a_rule_violates_is_found(name: str) -> None:
    search = SEARCHES[name]
    if search.violates is None:
        assert findings(search.campaign, RUNS, 0) == ()
    else:
        assert seek(search.campaign, (search.violates, search.case), RUNS, 0) is not None
