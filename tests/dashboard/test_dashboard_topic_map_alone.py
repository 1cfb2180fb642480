"""The drawn topic map alone in a browser, without a lake: what the keyboard and a screen reader get of it."""

from __future__ import annotations

import json

import pandas as pd
from playwright.sync_api import Browser, expect

from kafka_telemetry_lake.dashboards.address import Selection
from kafka_telemetry_lake.dashboards.show import FOLDER
from kafka_telemetry_lake.dashboards.topic_use import picture, use_of

ROWS = [
    ("orders", "written", "shop", "w", None, 90.0),
    ("orders", "read", "bill, shop", None, "small", 1.0),
    ("orders", "read", "bill", None, "large", 89.0),
]


def test_dashboard_topic_map_alone_says_whose_a_small_group_is_and_lights_ribbons_while_the_focus_is_there(
    browser: Browser,
) -> None:
    rows = pd.DataFrame(ROWS, columns=["topic", "role", "application", "client_id", "group_id", "bytes"])
    drawn = json.dumps(picture(use_of(rows.assign(records=None)), {}, Selection()))
    source = "\n".join((FOLDER / name).read_text("utf-8") for name in ("common.js", "flow.js"))
    called = source.replace("export default function", "const draw = function")
    style = (FOLDER / "style.css").read_text("utf-8")
    page = browser.new_page()
    page.set_default_timeout(20_000)
    page.set_content(f"<style>{style}</style><div id=map></div><a href=#after>after</a>")
    page.add_script_tag(content=f"{called}\ndraw({{parentElement: document.getElementById('map'), data: {drawn}}});")
    groups, lit = page.get_by_role("list", name="Groups that read"), page.locator("path.lit")
    small = groups.get_by_role("link", name="small (bill, shop)", exact=True)
    expect(groups.get_by_role("link", name="large", exact=True)).to_have_count(1)  # it has room: bill stands below
    small.focus()
    expect(lit).to_have_count(1)
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="after")).to_be_focused()
    assert lit.count() == 0
    page.close()
