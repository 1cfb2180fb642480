"""The report of `telemetry-lake quality --docs`: every rule, the rows that break it, and what to do.

The page loads no external scripts or styles, so it works offline. Great Expectations' Data Docs, which it links to,
need the internet for theirs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from html import escape
from itertools import groupby
from pathlib import Path

from kafka_telemetry_lake.pipelines.quality.checks import Finding

STYLE = """
:root { color-scheme: light dark; --line: #8884; --broken: #c0271d; --passed: #1a7f37; --soft: #8882; }
@media (prefers-color-scheme: dark) { :root { --broken: #ff7b72; --passed: #56d364; } }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 68rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; margin-bottom: 0; } h2 { font-size: 1.05rem; margin: 2rem 0 .4rem; }
.verdict { font-weight: 600; } .broken { color: var(--broken); } .passed { color: var(--passed); }
table { border-collapse: collapse; width: 100%; } td, th { border-top: 1px solid var(--line); padding: .35rem .6rem;
text-align: left; vertical-align: top; } th { font-weight: 600; } td:first-child, th:first-child { width: 6rem; }
td.number, th.number { text-align: right; width: 6rem; font-variant-numeric: tabular-nums; }
ul { margin: .3rem 0; padding-left: 1.2rem; font-size: .9em; overflow-wrap: anywhere; } .soft { opacity: .75; }
"""


def write_page(
    folder: Path,
    lake: str,
    checked_at: datetime,
    findings: Sequence[Finding],
    passed: Mapping[str, bool],
    missing: Sequence[str],
    data_docs: str,
) -> Path:
    """Write ``index.html``.

    Args:
        folder: target folder; created if missing.
        findings: grouped by table.
        passed: name of a rule to whether it passed.
        missing: tables with rules that the lake doesn't have.
        data_docs: path of Great Expectations' index page, relative to `folder`.
    """
    broken = sum(not passed[each.rule.name] for each in findings)
    verdict = f"{broken} of {len(findings)} rules are broken" if broken else f"all {len(findings)} rules passed"
    tables = [_table(name, list(group), passed) for name, group in groupby(findings, lambda each: each.rule.table)]
    absent = f"<p class=soft>Not in this lake yet: {escape(', '.join(missing))}.</p>" if missing else ""
    page = folder / "index.html"
    folder.mkdir(parents=True, exist_ok=True)
    page.write_text(
        f"""<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content="width=device-width">
<title>Quality of {escape(lake)}: {verdict}</title><style>{STYLE}</style>
<h1>Quality of {escape(lake)}</h1>
<p>{checked_at:%Y-%m-%d %H:%M} UTC: <span class="verdict {"broken" if broken else "passed"}">{verdict}</span>.
<a href="{escape(data_docs)}">Great Expectations' pages</a> <span class=soft>(these need the internet)</span></p>
{"".join(tables)}{absent}</html>
""",
        "utf-8",
    )
    return page


def _table(name: str, findings: Sequence[Finding], passed: Mapping[str, bool]) -> str:
    since = findings[0].from_version
    rows = f"{findings[0].rows:,} rows" + (" in total" if since is None else f", new since version {since}")
    broken_first = sorted(findings, key=lambda finding: passed[finding.rule.name])
    lines = "".join(_rule(each, passed[each.rule.name]) for each in broken_first)
    return (
        f"<h2>{escape(name)} <span class=soft>{rows}</span></h2><table><tr><th>state<th>rule"
        f"<th class=number>rows</tr>{lines}</table>\n"
    )


def _rule(finding: Finding, passed: bool) -> str:
    says = escape(finding.rule.sentence)
    if passed:
        return f"<tr><td class=passed>passed<td>{says}<td class=number>0</tr>"
    examples = "".join(f"<li>{escape(text)}" for text in finding.examples)
    return (
        f"<tr><td class=broken>BROKEN<td><b>{says}</b><br>What to do: {escape(finding.rule.do)}"
        f"<ul>{examples}</ul><td class=number>{finding.broken:,}</tr>"
    )
