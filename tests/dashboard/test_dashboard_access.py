"""The pages for everybody: axe-core's rules, the keyboard alone, text in place of plots, contrast of the axes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from kafka_telemetry_lake.dashboards.plot_style import AXIS, GREY
from tests.dashboard.conftest import Open, Serve, settled
from tests.dashboard.planted_faults import bad_instance, client_id, planted_lake

# .ci/run installs it: npm install --prefix .tools axe-core@4
AXE = Path(__file__).parents[2] / ".tools" / "node_modules" / "axe-core" / "axe.min.js"
# Of Streamlit's own elements: its icons' names, its multiselects, the frame of the page.
STREAMLITS = "[data-testid=stMultiSelect], [data-testid=stSelectbox], [data-testid=stHeader], [data-testid=stToolbar]"
BACKGROUNDS = {"light": "#ffffff", "dark": "#191919"}
FINDING = "failed_records"
LOOKS: tuple[tuple[str, dict[str, str], str], ...] = (
    ("", {}, "light"),
    ("client-id", {"client": client_id(FINDING)}, "light"),
    ("client", {"instance": bad_instance(FINDING)}, "dark"),
)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return planted_lake(tmp_path_factory.mktemp("access") / "lake")


@pytest.fixture(scope="module")
def address(serve: Serve, lake: Path, browser: Browser) -> str:
    return serve(lake)


def violations(page: Page) -> list[str]:
    """Rule and element of each violation of WCAG 2.1 A and AA that axe-core finds."""
    page.evaluate(AXE.read_text("utf-8"))
    options: dict[str, Any] = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]}
    found = page.evaluate(
        "([options, skipped]) => axe.run({exclude: [skipped]}, options)", [options, STREAMLITS.split(", ")]
    )
    return [f"{rule['id']}: {node['html'][:120]}" for rule in found["violations"] for node in rule["nodes"]]


@pytest.mark.slow
@pytest.mark.skipif(not AXE.exists(), reason="axe-core is not installed: npm install --prefix .tools axe-core@4")
@pytest.mark.parametrize(("path", "query", "scheme"), LOOKS)
def test_axe_finds_nothing(open_page: Open, path: str, query: dict[str, str], scheme: str) -> None:
    assert violations(open_page(path, scheme, **query)) == []


@pytest.mark.slow
def test_three_clicks_by_keyboard_alone(open_page: Open) -> None:
    page = open_page("")
    for name, heading in (
        (client_id(FINDING), f"Client id {client_id(FINDING)}"),
        (bad_instance(FINDING), f"Client instance {bad_instance(FINDING)}"),
    ):
        # What has the focus may be inside of an element of its own.
        focused = """(() => {
            let active = document.activeElement;
            while (active?.shadowRoot) active = active.shadowRoot.activeElement;
            return active?.textContent;
        })()"""
        for _ in range(150):
            page.keyboard.press("Tab")
            if page.evaluate(focused) == name:
                break
        else:
            pytest.fail(f"no Tab leads to {name}")
        page.keyboard.press("Enter")
        expect(page.locator("[data-testid=stMain] h1")).to_have_text(heading)
        settled(page)


@pytest.mark.slow
def test_plots_say_in_words_what_they_show_and_headings_are_headings(open_page: Open) -> None:
    page = open_page("client", instance=bad_instance(FINDING))
    main = page.get_by_test_id("stMain")
    expect(main.get_by_role("heading", level=1)).to_have_count(1)
    expect(main.get_by_role("heading", level=2, name="Throughput, records")).to_have_count(1)
    expect(main).to_contain_text("sent: last 150 records per second, least 150 records per second")
    expect(main.locator("[data-testid=stVegaLiteChart]:not([aria-hidden=true])")).to_have_count(0)


def luminance(colour: str) -> float:
    """Relative luminance, as WCAG 2.1 defines it."""
    parts = [int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    lighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("scheme", BACKGROUNDS)
def test_axes_can_be_read(scheme: str) -> None:
    text, line, _ = AXIS[scheme]
    assert contrast(text, BACKGROUNDS[scheme]) >= 4.5
    assert contrast(line, BACKGROUNDS[scheme]) >= 3
    assert contrast(GREY, BACKGROUNDS[scheme]) >= 3
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
