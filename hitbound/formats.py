"""The formats of a report: each is a function of the report alone."""

from __future__ import annotations

from collections.abc import Callable

from hitbound.report import Report, to_json

FORMATS = ("text", "json", "sarif", "junit", "github", "markdown", "html")


def rendered(report: Report, form: str, width: int) -> str:
    """The report in a format of `FORMATS`; only text looks at `width`."""
    return _renderer(form, width)(report)


def _renderer(form: str, width: int) -> Callable[[Report], str]:
    match form:
        case "json":
            return to_json
        case "sarif":
            from hitbound.sarif import to_sarif

            return to_sarif
        case "junit":
            from hitbound.junit import to_junit

            return to_junit
        case "github":
            from hitbound.annotations import to_annotations

            return to_annotations
        case "markdown":
            from hitbound.report_markdown import to_markdown

            return to_markdown
        case "html":
            from hitbound.report_html import to_html

            return to_html
        case _:
            from hitbound.gate_text import gate_text

            return lambda report: gate_text(report, width)
