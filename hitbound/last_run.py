"""What the last run said of each invariant, from a JSON report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs

from hitbound.report import SCHEMA
from model.errors import HitboundError
from properties import strict_json
from properties.strict_json import DocumentError
from properties.verdict import Verdict

_WEAKNESS = {verdict.value: verdict.weakness for verdict in Verdict} | {"VIOLATED(known)": Verdict.VIOLATED.weakness}


class LastRunError(HitboundError):
    """A file that is no JSON report of hitbound."""


@attrs.frozen
class LastRun:
    """The results of a report, as they stand in its document."""

    results: tuple[dict[str, Any], ...]

    def about(self, property: str) -> str:
        """The weakest verdict per policy and engine, of what was required where anything was; nothing if none is."""
        own = [result for result in self.results if result["property"] == property]
        counted = [result for result in own if result["required"]] or own
        words: dict[tuple[str, str], str] = {}
        for result in counted:
            key = (result["policy"], result["engine"])
            words[key] = max(words.get(key, result["verdict"]), result["verdict"], key=lambda word: _WEAKNESS[word])
        required = "" if any(result["required"] for result in own) else ", not required"
        told = [f"{policy}: {word} ({engine}{required})" for (policy, engine), word in words.items()]
        return "; ".join(told)


def read_last_run(path: Path) -> LastRun:
    """The report in the file `path`; raises LastRunError."""
    try:
        document = strict_json.parse(strict_json.read_text(path))
    except DocumentError as error:
        raise LastRunError(f"{path}: {error}") from None
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise LastRunError(f'{path}: $.schema: expected "{SCHEMA}"; write one with `hitbound gate --output json=FILE`')
    return LastRun(tuple(document["results"]))
