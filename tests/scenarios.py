"""What real vLLM releases adopt in the scenarios S1 to S15, as L+E in tokens: a table that was measured before hitbound
existed, by a harness of its own."""

from __future__ import annotations

_COMMON, _DEEPEST, _FOR_ALL, _FOR_CLAIMERS = "0.23", "0.24 0.25 0.26", "0.27", "0.28 0.29 0.30 0.31 0.32 0.33"
_STOPPED = "AssertionError"
_TABLE = {
    "S01": ("16+0", "64+0", "16+0", "16+0"),
    "S02": ("16+16", "64+16", "64+16", "16+16"),
    "S03": ("16+16", "64+16", "64+16", "64+16"),
    "S04": ("16+0", "64+0", "16+0", "16+0"),
    "S05": ("16+16", "64+16", "64+16", "16+16"),
    "S06": ("16+16", "64+16", "64+16", "16+16"),
    "S07": ("16+16", "64+16", "64+16", "64+16"),
    "S08": ("16+0", "16+0", "16+0", "16+0"),
    "S09": ("0+0", "48+0", "0+0", "0+0"),
    "S10": ("0+16", "48+16", "48+16", "0+16"),
    "S11": ("0+0", "48+0", "0+0", "0+0"),
    "S12": ("0+16", "48+16", "48+16", "0+16"),
    "S13": ("0+0", "64+0", "0+0", "0+0"),
    "S14": ("0+64", "64+64", _STOPPED, "0+64"),
    "S15": ("0+64", "64+64", _STOPPED, "64+64"),
}
_AT_026 = {"S13": "112+0", "S14": "112+64", "S15": "112+64"}
"""There hits are fine-grained, and not rounded to the scheduler block."""

_WRONG_AT_024 = {"S01", "S02", "S04", "S05", "S09", "S10", "S11", "S12", "S13", "S14"}
_WRONG_AT_027 = {"S02", "S05", "S10", "S12", "S14", "S15"}


def adopted(scenario: str, release: str) -> str:
    """What the release adopts, or the exception that its scheduler raises."""
    era = ".".join(release.split(".")[:2])
    if era == "0.26" and scenario in _AT_026:
        return _AT_026[scenario]
    eras = (_COMMON, _DEEPEST, _FOR_ALL, _FOR_CLAIMERS)
    return next(found for found, of in zip(_TABLE[scenario], eras, strict=True) if era in of.split())


def is_wrong(scenario: str, release: str) -> bool:
    """Whether what it then reads is wrong, with loads that keep no more than the leaf's contract."""
    era = ".".join(release.split(".")[:2])
    return scenario in (_WRONG_AT_024 if era in _DEEPEST.split() else _WRONG_AT_027 if era in _FOR_ALL.split() else ())


SCENARIOS = tuple(_TABLE)
