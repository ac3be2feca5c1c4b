"""The commands, as a user types them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from hitbound import __version__, engines, exit_codes, interrupts
from hitbound.explore_command import explore_options, explore_run
from hitbound.export_command import FORMS, exported
from hitbound.gate_command import gate_options, gate_report, publish, read_outputs, smallest_traces
from hitbound.judgement import Judgement
from hitbound.known_findings import KnownFinding, KnownFindingsError, mark_known, read_known, stale
from hitbound.policy_loading import load_policy
from hitbound.progress import Say, progress
from hitbound.report import Report, to_json
from hitbound.subject_command import subject
from hitbound.terminal import show, width
from model.errors import HitboundError
from model.policies import DEFAULT_POLICY, POLICIES
from model.policy import Policy
from model.ready_connectors import READY
from model.trace import Trace
from properties.policy_guard import PolicyLoops
from properties.trace_document import read_trace, write_trace
from properties.verdict import Result, Verdict

FILE = click.Path(path_type=Path)

policy_option = click.option(
    "--policy",
    "asked",
    metavar="P",
    help="A shipped policy or FILE.py:NAME (a class or an instance). "
    f"Default: {DEFAULT_POLICY}, then reference. Shipped: {', '.join(POLICIES)}.",
)
profile_option = click.option(
    "--profile",
    type=click.Choice(engines.PROFILES),
    default="ci",
    show_default=True,
    help="How much is sampled; ci and nightly also need both solvers for a proof, and nightly draws a seed.",
)
format_option = click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="What is printed on standard output.",
)
seed_option = click.option("--seed", type=click.IntRange(min=0), help="Repeats the sampled runs of an earlier report.")
bounded_option = click.option(
    "--accept-bounded", is_flag=True, help="Accept HOLDS_WITHIN where PROVED is required (list-shaped policies)."
)
known_option = click.option(
    "--known", type=FILE, metavar="FILE", help="Accept exactly the written-up findings in this JSON file."
)
traces_option = click.option(
    "--traces", type=FILE, metavar="DIR", help="Write the trace of each violation to this directory."
)


class TracesNotWritten(HitboundError):
    """The directory given with `--traces` cannot be written to."""


@click.group(epilog=exit_codes.help_text(), context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__)
def command() -> None:
    """Prove, or refute with a trace, that no reported cache hit exceeds the boundary of valid recurrent state, for any
    connector composition."""


@command.command(epilog=exit_codes.help_text())
@policy_option
@profile_option
@format_option
@seed_option
@bounded_option
@known_option
@traces_option
def check(
    asked: str | None,
    profile: str,
    form: str,
    seed: int | None,
    accept_bounded: bool,
    known: Path | None,
    traces: Path | None,
) -> int:
    """Prove a policy, replay the corpus under it and fuzz it: the gate for CI."""
    findings = read_known(known) if known else ()
    chosen = engines.seed_of(profile, seed)

    def run(policy: Policy, say: Say) -> tuple[Result, ...]:
        return (
            *engines.prove(policy, say),
            *engines.replay_corpus(policy, say),
            *engines.fuzz(policy, profile, chosen, say),
        )

    report = _report(
        "check",
        asked,
        run,
        both_solvers=profile != "quick",
        profile=profile,
        seed=chosen,
        known=findings,
        accept_bounded=accept_bounded,
    )
    code = _publish(report, form, traces)
    if code == exit_codes.ExitCode.REACHED:
        _refuse_stale(known, findings, report)
    return code


@command.command(epilog=exit_codes.help_text())
@gate_options
@traces_option
def gate(
    file: Path | None,
    form: str,
    outputs: tuple[str, ...],
    revision: str | None,
    profile: str | None,
    quiet: bool,
    traces: Path | None,
) -> int:
    """Run the gate that hitbound.toml, or [tool.hitbound] in pyproject.toml, configures, and report in any format."""
    files = read_outputs(outputs)
    report = gate_report(file, revision, profile, quiet)
    if traces is not None:
        _write_traces(traces, smallest_traces(report))
    with interrupts.after_writing():
        return publish(report, form, files, quiet, width())


@command.command()
@click.argument("directory", type=FILE, default=Path())
def init(directory: Path) -> int:
    """Write a commented hitbound.toml and a policy that passes the gate to DIRECTORY (default: here)."""
    from hitbound.init_command import init

    for path in init(directory):
        click.echo(f"wrote {path}")
    click.echo("Now run `hitbound gate` there, change the policy, and run it again.")
    return exit_codes.ExitCode.REACHED


@command.command(epilog=exit_codes.help_text())
@policy_option
@format_option
@bounded_option
@traces_option
@click.option(
    "--soundness",
    is_flag=True,
    help="Prove the cache that every policy rests on instead: each action keeps each invariant, as one table.",
)
def prove(asked: str | None, form: str, accept_bounded: bool, traces: Path | None, soundness: bool) -> int:
    """Prove a policy for every size, in every cell of contract, worker order and configuration class."""
    if soundness:
        return _prove_soundness(form)
    return _publish(_report("prove", asked, engines.prove, accept_bounded=accept_bounded), form, traces)


@command.command(epilog=exit_codes.help_text())
@policy_option
@profile_option
@format_option
@seed_option
@click.option(
    "--leaf",
    type=click.Choice(list(READY)),
    help="Put this ready-made leaf into the connector trees. Some are dishonest: what is found then shows which clause "
    "of the contract the policy relies on.",
)
@traces_option
def fuzz(asked: str | None, profile: str, form: str, seed: int | None, leaf: str | None, traces: Path | None) -> int:
    """Run the model under a policy with random configurations and actions."""
    chosen = engines.seed_of(profile, seed)

    def run(policy: Policy, say: Say) -> tuple[Result, ...]:
        return engines.fuzz(policy, profile, chosen, say, leaf)

    return _publish(_report("fuzz", asked, run, profile=profile, seed=chosen), form, traces)


@command.command(epilog=exit_codes.help_text())
@policy_option
@format_option
@traces_option
@explore_options
def explore(asked: str | None, form: str, traces: Path | None, **options: Any) -> int:
    """Search every reachable state of small scopes under a policy; violations come with a shortest trace."""
    return _publish(_report("explore", asked, explore_run(**options)), form, traces)


@command.command()
@click.argument("file", type=FILE)
@click.option("--policy", "asked", metavar="P", help="Replay under this policy. Default: each one the trace names.")
def replay(file: Path, asked: str | None) -> int:
    """Run the trace in FILE, draw it and name what it violates. Exit code 0 if every expectation is met, else 1."""
    from hitbound.replay_text import replay_text

    trace = read_trace(file)
    try:
        met, text = replay_text(trace, load_policy(asked) if asked else None, width())
    except PolicyLoops as loops:
        click.echo(f"hitbound: UNKNOWN: {loops}", err=True)
        return exit_codes.ExitCode.NOT_REACHED
    show(text)
    return exit_codes.ExitCode.REACHED if met else exit_codes.ExitCode.VIOLATED


@command.command(epilog=exit_codes.help_text())
@click.argument("report", required=False)
@click.option("--all", "every", is_flag=True, help="Reproduce every case.")
@click.option("--unaided", is_flag=True, help="Let an engine find the violation without the trace of the record.")
@format_option
def reproduce(report: str | None, every: bool, unaided: bool, form: str) -> int:
    """Reproduce the public REPORT (its number, `vllm#46453`, or a FILE.json): its trace before the fix and after it.

    Exit code 0 only if every case is violated as stated before the fix, and absent after it."""
    from hitbound import reproduce_command, reproduce_text, unaided_text
    from hitbound.unaided import hunt
    from properties.reproduce import reproduce

    cases = reproduce_command.chosen(report, every)
    if unaided:
        with progress() as say:
            hunts = [found for case in cases for found in (hunt(case, say),) if found is not None]
        if form == "json":
            click.echo(unaided_text.as_json(hunts), nl=False)
        else:
            show(unaided_text.table(hunts))
        return exit_codes.exit_code(unaided_text.judgements(hunts))
    reproductions = [reproduce(case) for case in cases]
    if form == "json":
        click.echo(reproduce_command.as_json(reproductions), nl=False)
    elif every:
        show(reproduce_text.table(reproductions))
    else:
        show("\n\n".join(reproduce_text.drawn(each, width()) for each in reproductions))
    return exit_codes.exit_code(reproduce_command.judgements(reproductions))


@command.command()
@click.argument("file", type=FILE)
@click.option("--as", "form", type=click.Choice(["svg"]), default="svg", show_default=True)
@click.option(
    "--policy", "asked", metavar="P", help="Draw it under this policy. Default: the first one the trace names."
)
def draw(file: Path, form: str, asked: str | None) -> int:
    """Draw the last admission of the trace in FILE that has a hit or a load, as an image on standard output."""
    from hitbound.draw_command import drawn

    click.echo(drawn(read_trace(file), load_policy(asked) if asked else None))
    return exit_codes.ExitCode.REACHED


@command.command()
@click.option(
    "--format", "form", type=click.Choice(["text", "json", "markdown", "html"]), default="text", show_default=True
)
@click.option(
    "--report",
    "report_file",
    type=FILE,
    metavar="FILE",
    help="For a page: say also what this JSON report says.",
)
def invariants(form: str, report_file: Path | None) -> int:
    """List every invariant: what it states, and what checks it. As a page (markdown, html) also with the functions
    behind it, and a drawn run that violates it once its guard is removed."""
    if form in ("markdown", "html"):
        from hitbound import catalogue_page
        from hitbound.last_run import read_last_run

        page = catalogue_page.as_html if form == "html" else catalogue_page.as_markdown
        click.echo(page(read_last_run(report_file) if report_file else None), nl=False)
        return exit_codes.ExitCode.REACHED
    if report_file is not None:
        raise click.UsageError("--report is for a page: use --format markdown or --format html")
    from hitbound import catalogue_text

    if form == "json":
        click.echo(catalogue_text.as_json(), nl=False)
    else:
        show(catalogue_text.as_text(width()))
    return exit_codes.ExitCode.REACHED


command.add_command(subject)


@command.command(epilog=exit_codes.help_text())
@click.option("--subject", "named", metavar="vllm==X", help="An installed release; `hitbound subject` installs it.")
@click.option("--source", type=FILE, metavar="DIR", help="A checkout of vLLM.")
@click.option(
    "--connector",
    metavar="MODULE:CLASS",
    help="Test this KV connector instead: which contract it keeps, and whether its claim is honest.",
)
@click.option("--config", type=FILE, metavar="FILE", help="The connector's configuration, as JSON.")
@profile_option
@format_option
@seed_option
@known_option
@traces_option
def conform(
    named: str | None,
    source: Path | None,
    connector: str | None,
    config: Path | None,
    profile: str,
    form: str,
    seed: int | None,
    known: Path | None,
    traces: Path | None,
) -> int:
    """Run a real vLLM scheduler under the same checks, and compare its decisions with those of the model."""
    from hitbound import connector_command
    from hitbound.conform_command import run, subject_named

    if config is not None and connector is None:
        raise connector_command.NoConnector("--config configures a connector: name it with --connector MODULE:CLASS")
    tested_connector = connector_command.named_connector(connector, config) if connector is not None else None
    findings = read_known(known) if known else ()
    chosen = engines.seed_of(profile, seed)
    tested = subject_named(named, source)
    with progress() as say:
        checkout = source is not None
        if tested_connector is None:
            found = run(tested, profile, chosen, say, checkout=checkout)
        else:
            found = connector_command.run(tested, tested_connector, profile, chosen, say, checkout=checkout)
    report = Report(
        "conform",
        (found.policy,),
        mark_known(found.judgements, findings),
        profile=profile,
        seed=chosen,
        subject=f"vllm=={found.release}",
    )
    code = _publish(report, form, traces=traces)
    if code == exit_codes.ExitCode.REACHED:
        _refuse_stale(known, findings, report)
    return code


@command.command()
@click.argument("thing", metavar="PROPERTY|TRACE|OBLIGATION")
@click.option("--policy", "asked", metavar="P", help="For a property: what the proof of this policy says of it.")
def explain(thing: str, asked: str | None) -> int:
    """Explain a property (HIT-RESUME), a trace (a file), or an obligation of the proof (words of its title)."""
    from hitbound.explain_command import explained
    from hitbound.wrapping import wrapped

    show("\n".join(part for line in explained(thing, asked) for part in wrapped(line, width())))
    return exit_codes.ExitCode.REACHED


@command.command()
@click.argument("file", type=FILE)
@click.option(
    "--as",
    "form",
    type=click.Choice(FORMS),
    required=True,
    help="pytest: a test that fails while the trace violates anything. corpus: a trace for the gate's folder, which "
    "must violate nothing. itf: the states, for Apalache and Quint. vllm-test: a test for vLLM's own repository, which "
    "asserts what the policy (default: reference) admits.",
)
@click.option("--policy", "asked", metavar="P", help=f"The policy that is tested, or run. Default: {DEFAULT_POLICY}.")
def export(file: Path, form: str, asked: str | None) -> int:
    """Write the trace in FILE as something else, on standard output."""
    click.echo(exported(read_trace(file), form, asked), nl=False)
    return exit_codes.ExitCode.REACHED


def _report(
    name: str,
    asked: str | None,
    run: Callable[[Policy, Say], Sequence[Result]],
    *,
    both_solvers: bool = False,
    known: Sequence[KnownFinding] = (),
    **settings: Any,
) -> Report:
    """Run the engines for each policy and judge what they found."""
    from hitbound.gate import judge

    policies = [load_policy(name) for name in ((asked,) if asked else (DEFAULT_POLICY, "reference"))]
    judgements: list[Judgement] = []
    with progress() as say:
        for policy in policies:
            judgements += judge(policy, run(policy, say), both_solvers=both_solvers)
    return Report(name, tuple(policies), mark_known(judgements, known), **settings)


def _refuse_stale(known: Path | None, findings: Sequence[KnownFinding], report: Report) -> None:
    """Where something falls short, that a known finding looks otherwise now only follows from it."""
    left = stale(findings, report.judgements)
    if left:
        gone = "; ".join(f"{finding.policy} {finding.told}" for finding in left)
        raise KnownFindingsError(f"{known}: these findings no longer occur, remove them: {gone}")


def _prove_soundness(form: str) -> int:
    """Decide the matrix of cache soundness anew and print every cell of it."""
    from hitbound.soundness_text import soundness_text
    from solver.soundness.results import soundness_results

    with progress() as say:
        found = engines.prove_soundness(say)
    report = Report("prove", (), tuple(Judgement("every policy", result) for result in soundness_results(found)))
    with interrupts.after_writing():
        if form == "json":
            click.echo(to_json(report), nl=False)
        else:
            meaning = dict(exit_codes.PRECEDENCE)[report.code]
            show(f"{soundness_text(found, width())}\n\nexit code {report.code.value}: {meaning}")
    return report.code


def _publish(report: Report, form: str, traces: Path | None) -> int:
    """Write the traces, print the report, return the exit code."""
    if traces is not None:
        violated = [judgement.result for judgement in report.judgements if judgement.verdict is Verdict.VIOLATED]
        names = {f"{result.property}-{number:02}": result.trace for number, result in enumerate(violated, 1)}
        _write_traces(traces, names)
    with interrupts.after_writing():
        if form == "json":
            click.echo(to_json(report), nl=False)
        else:
            from hitbound.report_text import report_text

            show(report_text(report, width()))
    return report.code


def _write_traces(directory: Path, traces: Mapping[str, Trace | None]) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, trace in traces.items():
            if trace is not None:
                write_trace(trace, directory / f"{name}.json")
    except OSError as error:
        raise TracesNotWritten(f"{directory}: {error.strerror}; --traces takes a directory to write to") from None
