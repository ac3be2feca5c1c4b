"""The HTML report: one file without the network, readable by everyone, and stepped through in a real browser."""

from __future__ import annotations

import itertools
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import attrs
import pytest

from hitbound.corpus import cases, corpus
from hitbound.draw_command import NothingToDraw, drawn
from hitbound.explain_trace import trace_explained
from hitbound.formats import rendered
from hitbound.gate import judge
from hitbound.report import Report
from hitbound.report_html import TEMPLATES
from hitbound.trace_page import trace_view
from model.policies import POLICIES
from properties.trace_document import read_trace
from properties.verdict import Result, Verdict
from tests.command_line import CORPUS, Hitbound

POLICY = POLICIES["vllm-0.24"]
TRACES = ("S01.json", "S02.json")
PROPERTIES = ("HIT-RESUME", "CAP-MEET")
"""What POLICY violates on them."""
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def page() -> str:
    results = [
        Result(
            property=property,
            engine="fuzz",
            verdict=Verdict.VIOLATED,
            required=True,
            reason="<script>alert(1)</script>",
            trace=read_trace(CORPUS / name),
        )
        for name, property in zip(TRACES, PROPERTIES, strict=True)
    ]
    return rendered(Report("gate", (POLICY,), judge(POLICY, results, both_solvers=False)), "html", 100)


class Reader(HTMLParser):
    """What a page consists of: tags with their attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attributes}))


def test_the_page_needs_no_network_and_runs_no_foreign_text(page: str) -> None:
    assert not re.search(r"\b(src|srcset|data)=|@import|url\(|<link|<iframe", page)
    assert set(re.findall(r"https?://[^\"' <]+", page)) == {"http://www.w3.org/2000/svg"}
    assert "default-src 'none'" in page
    assert "<script>alert" not in page
    assert page.count("<script>") == 1


def test_every_step_has_an_address_and_every_reference_a_target(page: str) -> None:
    tags = Reader(page).tags
    ids = [attributes["id"] for _, attributes in tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    for name, trace in enumerate(TRACES, 1):
        for step in range(1, len(read_trace(CORPUS / trace).actions) + 1):
            assert f"policy-1-trace-{name}-step-{step}" in ids
    for _, attributes in tags:
        targets = attributes.get("aria-labelledby", "").split()
        targets += [attributes["href"].removeprefix("#")] if attributes.get("href", "").startswith("#") else []
        assert set(targets) <= set(ids)


def test_the_page_is_structured_for_those_who_do_not_see_it(page: str) -> None:
    tags = Reader(page).tags
    names = [tag for tag, _ in tags]
    assert names.count("h1") == names.count("main") == 1
    levels = [int(tag[1]) for tag in names if re.fullmatch("h[1-6]", tag)]
    assert all(below - above <= 1 for above, below in itertools.pairwise(levels))
    assert names.count("table") == names.count("caption")
    assert all("scope" in attributes for tag, attributes in tags if tag == "th")
    assert all("aria-labelledby" in attributes for tag, attributes in tags if tag == "svg")
    assert ("html", {"lang": "en"}) in tags


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    darker, lighter = sorted([luminance(one), luminance(other)])
    return (lighter + 0.05) / (darker + 0.05)


def test_both_themes_have_the_contrast_that_accessibility_asks_for() -> None:
    style = (TEMPLATES / "style.css.template").read_text(encoding="utf-8")
    palettes = [dict(re.findall(r"--(\w+): (#\w{6})", block)) for block in re.findall(r":root \{(.*?)\}", style, re.S)]
    assert len(palettes) == 2
    for palette in palettes:
        for text in ("ink", "faint", "good", "bad"):
            assert contrast(palette[text], palette["paper"]) >= 4.5
            assert contrast(palette[text], palette["panel"]) >= 4.5
        assert contrast(palette["focus"], palette["paper"]) >= 3


def test_the_drawing_says_in_words_what_it_shows() -> None:
    svg = ElementTree.fromstring(drawn(read_trace(CORPUS / "S02.json"), POLICY))
    assert svg.findtext(f"{SVG}title") == "replay: L = 64, E = 16, R = 80 of N = 96 tokens"
    assert "read in vain state@80 in block 10" in (svg.findtext(f"{SVG}desc") or "")
    texts = [element.text or "" for element in svg.iter(f"{SVG}text")]
    assert "R = 80, the resume boundary" in texts
    assert "!*10!" in texts
    assert any("store: does not claim" in text and "<== wins" in text for text in texts)


def test_the_drawing_is_to_scale() -> None:
    svg = ElementTree.fromstring(drawn(read_trace(CORPUS / "S02.json"), POLICY))
    at = {element.text: float(element.attrib["x"]) for element in svg.iter(f"{SVG}text")}
    assert at["64"] - at["0"] == pytest.approx(4 * (at["16"] - at["0"]))
    assert at["!*10!"] == at["80"]


def test_draw_prints_the_image(hitbound: Hitbound) -> None:
    ran = hitbound("draw", str(CORPUS / "S02.json"))
    assert ran.code == 0, ran.err
    assert ElementTree.fromstring(ran.out).tag == f"{SVG}svg"


def test_a_trace_without_a_hit_is_not_drawn() -> None:
    trace = read_trace(CORPUS / "S01.json")
    with pytest.raises(NothingToDraw, match="hitbound replay"):
        drawn(attrs.evolve(trace, actions=trace.actions[:2]), POLICY)


BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
in_a_browser = pytest.mark.skipif(
    BROWSER is None, reason="there is no chromium here; on Debian: apt-get install chromium"
)


def browse(folder: Path, page: str, *arguments: str, address: str = "") -> str:
    """What the browser makes of the page."""
    assert BROWSER is not None
    file = folder / "page.html"
    file.write_text(page, encoding="utf-8")
    settings = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder / 'browser'}"]
    ran = subprocess.run(
        [BROWSER, *settings, *arguments, f"{file.as_uri()}{address}"],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return ran.stdout


def shown(dom: str) -> list[str]:
    """The steps that are shown, by their address."""
    return [
        attributes["id"]
        for tag, attributes in Reader(dom).tags
        if "shown" in attributes.get("class", "").split() and tag == "section"
    ]


def pressing(page: str, *keys: str) -> str:
    """The page, with keys pressed once it is loaded."""
    events = "".join(f'document.dispatchEvent(new KeyboardEvent("keydown", {{key: "{key}"}}));' for key in keys)
    return page.replace("</body>", f"<script>{events}</script></body>")


@in_a_browser
@pytest.mark.slow
def test_the_browser_shows_the_last_step_first_and_goes_where_the_keys_say(page: str, tmp_path: Path) -> None:
    last = len(read_trace(CORPUS / TRACES[0]).actions)
    for keys, step in (((), last), (("ArrowLeft",), last - 1), (("Home", "ArrowRight"), 2), (("Home", "End"), last)):
        dom = browse(tmp_path, pressing(page, *keys), "--dump-dom")
        assert shown(dom)[0] == f"policy-1-trace-1-step-{step}"
        assert f"step {step} of {last}" in dom


@in_a_browser
@pytest.mark.slow
def test_the_browser_follows_the_address_of_a_step(page: str, tmp_path: Path) -> None:
    dom = browse(tmp_path, page, "--dump-dom", address="#policy-1-trace-2-step-3")
    assert shown(dom)[1] == "policy-1-trace-2-step-3"


@in_a_browser
@pytest.mark.slow
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_browser_uses_the_theme_of_the_reader(page: str, tmp_path: Path, theme: str) -> None:
    dark = ["--force-dark-mode", "--blink-settings=preferredColorScheme=0"] if theme == "dark" else []
    picture = tmp_path / f"{theme}.png"
    browse(tmp_path, page, *dark, "--window-size=1000,2000", f"--screenshot={picture}")
    assert picture.read_bytes().startswith(b"\x89PNG")
    asked = "<script>document.title = getComputedStyle(document.body).backgroundColor</script>"
    dom = browse(tmp_path, page.replace("</body>", f"{asked}</body>"), *dark, "--dump-dom")
    assert ("rgb(255, 255, 255)" in dom) == (theme == "light")


@pytest.mark.slow
@pytest.mark.corpus
def test_every_trace_of_the_corpus_can_be_stepped_through_and_explained() -> None:
    runs = [(trace, POLICIES["vllm-0.28"]) for trace in corpus()]
    runs += [(case.before.trace, case.before.rules) for case in cases()]
    for trace, policy in runs:
        view = trace_view(trace, policy, "name")
        assert view.steps
        for step in view.steps:
            for drawing in step.drawings:
                ElementTree.fromstring(drawing)
        assert list(trace_explained(trace, policy))
