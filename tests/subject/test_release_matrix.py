"""The scenarios S1 to S15 on every installed release: what was seen before, number for number."""

from __future__ import annotations

import pytest

from benchmarks.release_matrix import cell_on
from hitbound.corpus import named_corpus
from subjects.process import SubjectProcess
from tests.scenarios import SCENARIOS, adopted, is_wrong

pytestmark = pytest.mark.subject


def test_a_release_adopts_in_the_scenarios_what_was_seen_before(process: SubjectProcess) -> None:
    corpus = named_corpus()
    cells = {scenario: cell_on(corpus[scenario], process) for scenario in SCENARIOS}
    assert {scenario: cell.strip("*") for scenario, cell in cells.items()} == {
        scenario: adopted(scenario, process.release) for scenario in SCENARIOS
    }
    assert [scenario for scenario, cell in cells.items() if cell.startswith("**")] == [
        scenario for scenario in SCENARIOS if is_wrong(scenario, process.release)
    ]
