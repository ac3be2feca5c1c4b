"""`hitbound conform --connector` on a real vLLM: each clause of the contract is seen broken once; an honest connector
passes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hitbound.connector_command import DRIVER
from hitbound.known_findings import written_up
from model.connector import Contract
from properties.verdict import Result, Verdict
from properties.wording import without_numbers
from subjects.conform import NO_ENGINE_ERROR
from subjects.connector_conform import (
    CLAIM,
    STARTS,
    Outcome,
    Profile,
    RealConnector,
    conform,
    does_not_start,
    findings,
    results,
    strongest,
)
from subjects.connector_engine import Clause
from subjects.process import Failure, SubjectProcess
from tests.installed import REQUIRED, installed_subject

CONNECTORS = Path(__file__).resolve().parents[1] / "connectors"
OFFLOADING = "vllm.distributed.kv_transfer.kv_connector.v1.offloading_connector"
SHORT = Profile("short", traces=2, actions=25, seed=0)

pytestmark = [pytest.mark.subject, pytest.mark.slow]


@pytest.fixture(scope="module")
def process() -> Iterator[SubjectProcess]:
    with SubjectProcess(installed_subject(REQUIRED[-1]), driver=DRIVER) as started:
        yield started


def run(
    process: SubjectProcess, module: str, name: str, traces: int = SHORT.traces, **extra: object
) -> Outcome | Failure:
    tested = RealConnector(module, name, dict(extra), "kv_both", {}, (str(CONNECTORS),))
    return conform(process, tested, Profile("short", traces, SHORT.actions, 0), 0)


def verdicts(outcome: Outcome | Failure) -> tuple[Contract | None, dict[str, Result]]:
    assert isinstance(outcome, Outcome)
    found = findings(outcome)
    return strongest(outcome, {finding.property for finding in found}), {
        result.property: result for result in results(outcome, found, "")
    }


def test_an_honest_connector_keeps_the_strongest_contract_and_passes(process: SubjectProcess) -> None:
    contract, found = verdicts(run(process, "honest", "Honest", traces=4))
    assert contract is Contract.FULL
    assert {result.verdict for result in found.values()} == {Verdict.HOLDS_WITHIN}
    assert {clause.value for clause in Clause} | {CLAIM, NO_ENGINE_ERROR} == found.keys()


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("name", "broken", "telling"),
    [
        ("WholePrompt", Clause.RANGE, "it answers"),
        ("NoAttention", Clause.EXACT, "the attention KV of"),
        ("OneAnswer", Clause.PURE, "asked 3 times instead of once"),
        ("Meddler", Clause.UNASSIGNED, "it was told to load nothing into"),
        ("Twice", Clause.COMPLETION, "has none under way"),
        ("Silent", Clause.COMPLETION, "has not ended after"),
        ("AttentionOnly", Clause.BACKED, "state@"),
        ("FalseClaim", Clause.ENDPOINT, "state@"),
    ],
)
def test_a_broken_clause_is_found_with_a_short_trace(
    process: SubjectProcess, name: str, broken: Clause, telling: str
) -> None:
    _, found = verdicts(run(process, "dishonest", name))
    result = found[broken.value]
    assert result.verdict is Verdict.VIOLATED
    assert result.required
    assert telling in result.reason
    assert result.trace is not None
    assert len(result.trace.actions) <= 10


@pytest.mark.nightly
def test_a_load_that_is_not_pinned_is_told_from_one_that_lacks_something(process: SubjectProcess) -> None:
    _, found = verdicts(run(process, "dishonest", "NoPin", traces=4))
    assert found[Clause.PIN.value].verdict is Verdict.VIOLATED
    assert "it is there if the load ends at once" in found[Clause.PIN.value].reason
    assert found[Clause.EXACT.value].verdict is not Verdict.VIOLATED


def test_a_claim_is_honest_exactly_if_the_endpoint_is_kept(process: SubjectProcess) -> None:
    contract, found = verdicts(run(process, "dishonest", "FalseClaim"))
    assert contract is Contract.BACKED
    assert found[CLAIM].verdict is Verdict.VIOLATED
    contract, found = verdicts(run(process, "dishonest", "Endpoint"))
    assert contract is Contract.ENDPOINT
    assert found[CLAIM].verdict is Verdict.HOLDS_WITHIN
    assert not found[Clause.FULL.value].required


@pytest.mark.nightly
def test_what_could_not_be_seen_is_no_success(process: SubjectProcess) -> None:
    _, found = verdicts(run(process, "dishonest", "AnswersNothing", traces=1))
    assert {found[clause.value].verdict for clause in Clause if clause is not Clause.UNASSIGNED} == {Verdict.VACUOUS}
    assert found[CLAIM].verdict is Verdict.UNKNOWN
    _, found = verdicts(run(process, "dishonest", "NeedsGpu", traces=1))
    assert found[Clause.EXACT.value].verdict is Verdict.UNKNOWN
    assert "no GPU" in found[Clause.EXACT.value].reason


def test_a_connector_that_ends_the_process_ends_the_campaign(process: SubjectProcess) -> None:
    outcome = run(process, "dishonest", "Crashes")
    assert isinstance(outcome, Outcome)
    assert outcome.traces == 1
    _, found = verdicts(outcome)
    assert found[NO_ENGINE_ERROR].verdict is Verdict.UNKNOWN
    assert "the process ended with code 3" in found[NO_ENGINE_ERROR].reason


def test_a_connector_that_raises_or_does_not_start_says_what(process: SubjectProcess) -> None:
    _, found = verdicts(run(process, "dishonest", "Raises", traces=1))
    assert "no connection to the store" in found[NO_ENGINE_ERROR].reason
    for module, name, raised in (
        ("dishonest", "NeedsNetwork", "ConnectionError: cannot reach store.example:1234"),
        ("no_such_module", "Honest", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("honest", "NoSuchClass", "AttributeError"),
    ):
        failure = run(process, module, name)
        assert isinstance(failure, Failure)
        result = does_not_start(failure)
        assert (result.property, result.verdict, result.required) == (STARTS, Verdict.UNKNOWN, True)
        assert raised in result.reason


@pytest.mark.nightly
def test_a_store_that_takes_the_block_around_a_boundary_is_found_unaided(process: SubjectProcess) -> None:
    _, found = verdicts(run(process, OFFLOADING, "OffloadingConnector", traces=8, cpu_bytes_to_use=12 * 4096))
    result = found[Clause.BACKED.value]
    assert result.verdict is Verdict.VIOLATED
    signature = without_numbers(result.reason)
    assert signature in {sighting.signature for sighting in written_up()["block-around-a-boundary"]}
