"""`hitbound invariants` as a page, in Markdown and HTML: each invariant with its evidence and a counterexample."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

import attrs

from hitbound import step_text
from hitbound.counterexamples import Counterexample, counterexamples, functions_behind
from hitbound.draw_command import NothingToDraw, drawn
from hitbound.last_run import LastRun
from hitbound.report_html import render
from hitbound.report_markdown import markdown_text
from hitbound.source_lines import DECIDED_BY, MIRRORS
from hitbound.trace_text import DRAWN_WIDTH, pictures, tells
from properties.catalogue import EVENTS, INVARIANTS, Invariant, Kind
from properties.replay import replay

KINDS = {
    Kind.SAFETY: "Safety: must always hold",
    Kind.PROTOCOL: "Protocol: how core and connectors talk; reported, not required",
    Kind.COMPLETENESS: "Completeness: the price of being too careful",
}


@attrs.frozen
class Entry:
    """What the page says of one invariant. `facts` are pairs of a name and what is said under it."""

    id: str
    number: str
    statement: str
    reason: str
    facts: tuple[tuple[str, str], ...]
    counterexample: Counterexample | None

    @property
    def drawing(self) -> str:
        """The counterexample's telling admission as SVG; nothing where there is none to draw."""
        if self.counterexample is None:
            return ""
        try:
            return drawn(self.counterexample.trace, self.counterexample.policy, f"drawing-{self.id}")
        except NothingToDraw:
            return ""

    @property
    def lines(self) -> tuple[str, ...]:
        """The counterexample as text, with a picture of its telling admission."""
        return tuple(counterexample_lines(self.counterexample)) if self.counterexample else ()


def entries(last: LastRun | None = None) -> dict[str, tuple[Entry, ...]]:
    """Heading -> its invariants, in the order of the catalogue; with what the last run said of each, if any."""
    return {
        heading: tuple(entry_of(invariant.id, last) for invariant in INVARIANTS.values() if invariant.kind is kind)
        for kind, heading in KINDS.items()
    }


def as_markdown(last: LastRun | None = None) -> str:
    """The page `docs/invariants.md`, which has no last run."""
    return "\n".join(_lines(last)).rstrip() + "\n"


def as_html(last: LastRun | None = None) -> str:
    """The page as one HTML file that needs nothing else."""
    return render("invariants.html", sections=entries(last), events=EVENTS.values())


def entry_of(property: str, last: LastRun | None = None) -> Entry:
    """What the page says of one invariant."""
    invariant = INVARIANTS[property]
    parts = DECIDED_BY.get(invariant.id, ())
    functions = dict.fromkeys([*(MIRRORS[part] for part in parts), *functions_behind(invariant.id)])
    facts = {
        "Proved": invariant.proof,
        "Checked": _checked(invariant),
        "Last run": last.about(property) if last else "",
        "Waits for": invariant.waits_for,
        "Decided by the policy's": ", ".join(f"`{part}`" for part in parts),
        "In vLLM": ", ".join(f"`{function}`" for function in functions),
        "Public reports": ", ".join(invariant.reports),
    }
    return Entry(
        id=invariant.id,
        number=invariant.number,
        statement=invariant.statement,
        reason=invariant.reason,
        facts=tuple((name, said) for name, said in facts.items() if said),
        counterexample=counterexamples().get(invariant.id),
    )


def _checked(invariant: Invariant) -> str:
    if invariant.checked_by:
        return invariant.checked_by
    return "on every step of every run: corpus, fuzz, explore and replay" if invariant.predicate else ""


def _lines(last: LastRun | None) -> Iterator[str]:
    yield "<!-- Written by `make pages`; do not edit. -->"
    yield ""
    yield "# The invariants"
    yield ""
    yield from textwrap.wrap(
        "What must hold, and why. R = L + E is the resume boundary of an admitted request: L local hit, E external "
        "tokens, N the tokens that the request has, state@n the recurrent state after exactly the first n tokens. Each "
        "counterexample is a run that violates the invariant once a guard is removed; a test replays all of them, with "
        "and without the guard.",
        DRAWN_WIDTH,
    )
    for heading, section in entries(last).items():
        yield ""
        yield f"## {heading}"
        for entry in section:
            yield from _invariant_lines(entry)
    yield ""
    yield "## Sometimes: has to happen in a run, else the run shows nothing about what follows"
    yield ""
    yield "| event | what happens | applies to |"
    yield "|---|---|---|"
    for event in EVENTS.values():
        yield f"| {event.id} | {markdown_text(event.statement)} | {markdown_text(event.applies_to)} |"


def _invariant_lines(entry: Entry) -> Iterator[str]:
    yield ""
    yield f"### {entry.id}" + (f" ({entry.number})" if entry.number else "")
    yield ""
    yield from textwrap.wrap(f"**{markdown_text(entry.statement)}**", DRAWN_WIDTH, break_on_hyphens=False)
    yield ""
    yield from textwrap.wrap(markdown_text(entry.reason), DRAWN_WIDTH, break_on_hyphens=False)
    yield ""
    for name, said in entry.facts:
        yield from textwrap.wrap(f"- {name}: {said}", DRAWN_WIDTH, subsequent_indent="  ", break_on_hyphens=False)
    if entry.counterexample:
        yield ""
        guard = f"Without its guard ({entry.counterexample.source}): {entry.counterexample.guard}."
        yield from textwrap.wrap(guard.replace("<", "\\<"), DRAWN_WIDTH, break_on_hyphens=False)
        yield ""
        yield "```text"
        yield from entry.lines
        yield "```"


def counterexample_lines(example: Counterexample) -> Iterator[str]:
    """A counterexample as text, step by step, with its telling admission drawn."""
    observations = replay(example.trace, example.policy).observations
    for number, same in enumerate(step_text.by_action(observations), 1):
        yield from step_text.numbered(number, same, DRAWN_WIDTH)
    telling = [observation for observation in observations if any(map(tells, observation.admissions))]
    yield from pictures(telling[-1:], example.policy, DRAWN_WIDTH)
    yield f"{example.invariant} violated: {example.message}"
