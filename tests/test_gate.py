"""`hitbound gate`: what its configuration may say, what it requires beyond, and what it runs."""

from __future__ import annotations

import json
from pathlib import Path

import attrs
import pytest

from hitbound.corpus_check import CorpusError, check_folder
from hitbound.exit_codes import ExitCode, exit_code
from hitbound.gate import judge
from hitbound.gate_configuration import Engine, GateConfigurationError, Profile, find_gate, read_gate
from hitbound.gate_run import with_requirements
from hitbound.judgement import Judgement
from model.policies import POLICIES
from properties.trace_document import read_trace, write_trace
from properties.verdict import ALL_CELLS, REQUIRED_CELL, Result, Verdict
from tests.command_line import CHECKOUT, CORPUS, Hitbound

FAULTY = CHECKOUT / "tests" / "policies" / "no_fallback.py"
V028, V024 = POLICIES["vllm-0.28"], POLICIES["vllm-0.24"]


def configured(folder: Path, text: str, name: str = "hitbound.toml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_a_full_configuration_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "inner").mkdir()
    text = """
        policies = ["own/policy.py:Mine", "vllm-0.28"]
        engines = ["prove", "explore"]
        profile = "quick"
        seed = 7
        scopes = ["local"]
        corpus = "traces"
        known = "known.json"
        accept_bounded = true
        require = {REACH = "PROVED", ASK-PURE = "HOLDS_WITHIN"}
        cells = [{contract = "full", worker_order = "load_before_copy", configuration_class = "second_attention_spec"}]
    """
    gate = read_gate(configured(Path("inner"), text))
    assert gate.policies == ("inner/own/policy.py:Mine", "vllm-0.28")
    assert gate.path(gate.configuration.corpus) == Path("inner/traces")
    assert gate.configuration.engines == (Engine.PROVE, Engine.EXPLORE)
    assert gate.configuration.profile is Profile.QUICK
    assert gate.configuration.require == {"REACH": Verdict.PROVED, "ASK-PURE": Verdict.HOLDS_WITHIN}
    assert gate.configuration.cells[0] in ALL_CELLS


def test_the_configuration_may_stand_in_pyproject(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    configured(tmp_path, '[project]\nname = "x"\n[tool.hitbound]\npolicies = ["vllm-0.28"]\n', "pyproject.toml")
    assert find_gate(None).policies == ("vllm-0.28",)
    configured(tmp_path, 'policies = ["reference"]')
    with pytest.raises(GateConfigurationError, match="keep one"):
        find_gate(None)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "policies: name at least one"),
        ("policies = []", "policies: name at least one"),
        ('policies = ["a.py:A"]\nprofile = "fast"', 'profile: expected one of quick, ci, nightly, got "fast"'),
        ('policies = ["a.py:A"]\nengines = ["proof"]', "engines[0]: expected one of prove, corpus, fuzz, explore"),
        ('policies = ["a.py:A"]\nengines = []', "engines: name at least one of prove, corpus"),
        ('policies = ["a.py:A"]\n[require]\nHIT = "PROVED"', "require.HIT: no such property; use one of HIT-RESUME"),
        ('policies = ["a.py:A"]\n[require]\nREACH = "UNKNOWN"', "expected one of PROVED, HOLDS_WITHIN"),
        ('policies = ["a.py:A"]\ncells = [{contract = "all"}]', "contract: expected one of backed, endpoint, full"),
        ('policies = ["a.py:A"]\nscopes = ["local"]', "scopes: scopes are for the engine"),
        (
            'polices = ["a.py:A"]',
            'unknown key "polices"; remove it, or correct its spelling: the keys here are policies',
        ),
        ("policies = [1]", "policies[0]: expected a string, got an integer"),
        ("policies = [", "not TOML"),
    ],
)
def test_a_malformed_configuration_is_refused_with_file_and_key(tmp_path: Path, text: str, said: str) -> None:
    path = configured(tmp_path, text)
    with pytest.raises(GateConfigurationError) as refused:
        read_gate(path)
    assert str(refused.value).startswith(f"{path}: ")
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            'policies = ["a.py:A"]\nprofile = "fast"',
            'tool.hitbound.profile: expected one of quick, ci, nightly, got "fast"',
        ),
        ('polices = ["a.py:A"]', 'tool.hitbound: unknown key "polices"'),
        ("", "there is no table [tool.hitbound]"),
    ],
)
def test_in_pyproject_the_key_is_named_with_its_table(tmp_path: Path, text: str, said: str) -> None:
    path = configured(tmp_path, f"[tool.hitbound]\n{text}", "pyproject.toml")
    with pytest.raises(GateConfigurationError) as refused:
        read_gate(path)
    assert str(refused.value).startswith(f"{path}: ")
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("files", "arguments", "said"),
    [
        ({}, [], "`hitbound init` writes one"),
        ({}, ["--config", "none.toml"], "none.toml: cannot be read"),
        ({"hitbound.toml": 'policies = ["none.py:Mine"]'}, [], "none.py: cannot be read"),
        ({"hitbound.toml": 'policies = ["vllm-9"]'}, [], "no such policy"),
        ({"hitbound.toml": 'policies = ["vllm-0.28"]\nknown = "none.json"'}, [], "none.json: cannot be read"),
        ({"hitbound.toml": 'policies = ["vllm-0.28"]\ncorpus = "none"'}, [], "there is no trace"),
        ({"hitbound.toml": 'policies = ["vllm-0.28", "vllm-0.28"]'}, [], "is called 'vllm-0.28', as another policy is"),
        ({}, ["--output", "sarif"], "expected FORMAT=FILE"),
        ({}, ["--output", "pdf=x.pdf"], "with a format of text, json, sarif, junit, github, markdown"),
        ({}, ["--format", "pdf"], "'pdf' is not one of"),
    ],
)
def test_wrong_usage_of_the_gate_is_2(
    hitbound: Hitbound, tmp_path: Path, files: dict[str, str], arguments: list[str], said: str
) -> None:
    for name, text in files.items():
        configured(tmp_path, text, name)
    ran = hitbound("gate", *arguments)
    assert ran.code == 2
    assert ran.out == ""
    assert said in ran.err


def found(property: str, verdict: Verdict, engine: str = "prove", required: bool = False, **more: object) -> Judgement:
    base = Result(property=property, engine=engine, verdict=verdict, required=required)
    return Judgement("p", attrs.evolve(base, **more))  # type: ignore[arg-type]


PASSES = found("HIT-LAST", Verdict.PROVED, required=True)


@pytest.mark.parametrize(
    ("require", "judgement", "code"),
    [
        ({}, found("HIT-SHRINK", Verdict.HOLDS_WITHIN, required=True), ExitCode.NOT_REACHED),
        ({"HIT-SHRINK": Verdict.HOLDS_WITHIN}, found("HIT-SHRINK", Verdict.HOLDS_WITHIN), ExitCode.REACHED),
        ({"HIT-SHRINK": Verdict.HOLDS_WITHIN}, found("HIT-SHRINK", Verdict.UNKNOWN), ExitCode.NOT_REACHED),
        ({}, found("ASK-PURE", Verdict.VACUOUS, "fuzz"), ExitCode.REACHED),
        ({"ASK-PURE": Verdict.HOLDS_WITHIN}, found("ASK-PURE", Verdict.VACUOUS, "fuzz"), ExitCode.VACUOUS),
        ({"ASK-PURE": Verdict.HOLDS_WITHIN}, found("ASK-PURE", Verdict.HOLDS_WITHIN, "fuzz"), ExitCode.REACHED),
        ({"ASK-PURE": Verdict.PROVED}, found("ASK-PURE", Verdict.HOLDS_WITHIN, "fuzz"), ExitCode.VACUOUS),
        ({"ASK-PURE": Verdict.HOLDS_WITHIN}, found("OWN-LEAK", Verdict.HOLDS_WITHIN, "fuzz"), ExitCode.VACUOUS),
        ({"REACH": Verdict.PROVED}, found("REACH", Verdict.PROVED, cell=REQUIRED_CELL), ExitCode.REACHED),
        ({"REACH": Verdict.PROVED}, found("REACH", Verdict.PROVED, cell=ALL_CELLS[-1]), ExitCode.VACUOUS),
    ],
)
def test_what_a_configuration_requires_is_judged(
    require: dict[str, Verdict], judgement: Judgement, code: ExitCode
) -> None:
    judged = with_requirements(V028, (PASSES, judgement), require, (REQUIRED_CELL,))
    assert exit_code(judged) is code


def folder_of(tmp_path: Path, *names: str, keep: bool = False) -> Path:
    folder = tmp_path / "traces"
    folder.mkdir()
    for name in names:
        trace = read_trace(CORPUS / name)
        write_trace(trace if keep else attrs.evolve(trace, expectations=()), folder / name)
    return folder


def verdict_of(policy_name: str, folder: Path) -> ExitCode:
    policy = POLICIES[policy_name]
    return exit_code(judge(policy, check_folder(policy, folder), both_solvers=False))


def test_a_trace_of_the_folder_must_violate_nothing(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, "S01.json", "S02.json")
    assert verdict_of("vllm-0.28", folder) is ExitCode.REACHED
    assert verdict_of("vllm-0.24", folder) is ExitCode.VIOLATED


def test_what_a_trace_of_the_folder_states_must_happen(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, "S01.json", keep=True)
    assert verdict_of("vllm-0.24", folder) is ExitCode.REACHED
    path = folder / "S01.json"
    path.write_text(path.read_text(encoding="utf-8").replace('"HIT-RESUME"', '"HIT-LAST"'), encoding="utf-8")
    assert verdict_of("vllm-0.24", folder) is ExitCode.VIOLATED


def test_a_trace_of_the_folder_that_is_not_possible_shows_nothing(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, "S01.json", "S02.json")
    trace = read_trace(folder / "S01.json")
    write_trace(attrs.evolve(trace, actions=trace.actions[1:]), folder / "S01.json")
    assert verdict_of("vllm-0.28", folder) is ExitCode.VACUOUS


def test_a_folder_without_traces_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="no trace"):
        check_folder(V028, tmp_path)


@pytest.mark.slow
def test_a_known_finding_passes_and_one_that_is_gone_does_not(hitbound: Hitbound, tmp_path: Path) -> None:
    configured(tmp_path, 'policies = ["vllm-0.24"]\nengines = ["corpus"]\nknown = "known.json"')
    known = tmp_path / "known.json"
    known.write_text('{"schema": "hitbound-known/1", "findings": []}', encoding="utf-8")
    report = hitbound("gate", "--format", "json").json
    findings = [
        {key: each[key] for key in ("policy", "property", "cell", "signature")} | {"why": "the era's own fault"}
        for each in report["results"]
        if each["verdict"] == "VIOLATED"
    ]
    known.write_text(json.dumps({"schema": "hitbound-known/1", "findings": findings}), encoding="utf-8")
    assert hitbound("gate").code == 0
    gone = {**findings[0], "property": "HIT-SHRINK"}
    known.write_text(json.dumps({"schema": "hitbound-known/1", "findings": [*findings, gone]}), encoding="utf-8")
    ran = hitbound("gate", "--format", "github")
    assert ran.code == 5
    assert "no longer occurs; remove it from the file of known findings" in ran.out


@pytest.mark.slow
def test_a_faulty_policy_is_red_in_every_format_at_once(hitbound: Hitbound, tmp_path: Path) -> None:
    configured(tmp_path, 'policies = ["policy.py:NoFallback"]\nprofile = "quick"\nengines = ["prove"]')
    (tmp_path / "policy.py").write_text(FAULTY.read_text(encoding="utf-8"), encoding="utf-8")
    forms = {"sarif": "out/r.sarif", "junit": "out/r.xml", "markdown": "out/r.md", "json": "out/r.json"}
    outputs = [f"--output={form}={file}" for form, file in forms.items()]
    ran = hitbound("gate", "--format", "github", *outputs, "--traces", "found")
    assert ran.code == 1, ran.err
    assert "::error file=policy.py,line=7,title=hitbound%3A VIOLATED HIT-RESUME (E = 0)::" in ran.out
    assert json.loads((tmp_path / "out/r.json").read_text(encoding="utf-8"))["exit_code"] == 1
    (run,) = json.loads((tmp_path / "out/r.sarif").read_text(encoding="utf-8"))["runs"]
    place = run["results"][0]["locations"][0]["physicalLocation"]
    assert place == {"artifactLocation": {"uri": "policy.py"}, "region": {"startLine": 7}}
    assert (tmp_path / "out/r.xml").exists()
    assert "NOT passed" in (tmp_path / "out/r.md").read_text(encoding="utf-8")
    assert [path.name for path in (tmp_path / "found").iterdir()] == ["policy.py-NoFallback-HIT-RESUME-L.json"]


@pytest.mark.slow
def test_a_sound_policy_is_green_and_quiet_says_so_in_two_lines(hitbound: Hitbound, tmp_path: Path) -> None:
    configured(tmp_path, 'policies = ["vllm-0.28"]\nprofile = "quick"\n[require]\nASK-PURE = "HOLDS_WITHIN"')
    ran = hitbound("gate", "--quiet")
    assert ran.code == 0, ran.out + ran.err
    assert ran.err == ""
    assert len(ran.out.replace("\n    ", " ").splitlines()) == 2
    assert "exit code 0" in ran.out
    assert "\x1b" not in ran.out
