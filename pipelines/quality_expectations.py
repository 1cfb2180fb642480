"""Great Expectations over what the rules found: a suite per table, validated, and Data Docs as pages.

An expectation judges a count that DuckDB has taken (rows that break a rule: at most 0), not the rows: pandas frames of
a day's data points would not fit into memory, and a count has no size.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from pathlib import Path
from typing import Any

import great_expectations as gx
import pandas as pd
from great_expectations.checkpoint.actions import UpdateDataDocsAction, ValidationAction
from great_expectations.checkpoint.checkpoint import CheckpointResult
from great_expectations.data_context.types.base import ProgressBarsConfig
from great_expectations.expectations.core.expect_column_max_to_be_between import ExpectColumnMaxToBeBetween

from pipelines.quality import Finding

SITE = "pages"


def judge(findings: Iterable[Finding], docs: Path | None) -> dict[str, bool]:
    """Whether each rule, by name, holds.

    Args:
        findings: those of one table in a row.
        docs: folder for the pages, index.html first; the pages of an earlier check there are replaced.
    """
    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = ProgressBarsConfig(globally=False)
    for site in list(context.get_site_names()):
        context.delete_data_docs_site(site)
    if docs is not None:
        context.add_data_docs_site(SITE, _site(docs))
    lake = context.data_sources.add_pandas("lake")
    passed: dict[str, bool] = {}
    for table, found in groupby(findings, lambda finding: finding.rule.table):
        rules = list(found)
        rows = lake.add_dataframe_asset(table).add_batch_definition_whole_dataframe("new rows")
        suite = context.suites.add(gx.ExpectationSuite(name=table, expectations=[_expected(each) for each in rules]))
        validation = context.validation_definitions.add(gx.ValidationDefinition(name=table, data=rows, suite=suite))
        actions: list[ValidationAction] = [] if docs is None else [UpdateDataDocsAction(name=SITE, site_names=[SITE])]
        check = gx.Checkpoint(name=table, validation_definitions=[validation], actions=actions)
        frame = pd.DataFrame({each.rule.name: [each.broken] for each in rules})
        result = context.checkpoints.add(check).run(batch_parameters={"dataframe": frame})
        passed |= dict(_judged(result))
    return passed


def _expected(finding: Finding) -> ExpectColumnMaxToBeBetween:
    rule = finding.rule
    return ExpectColumnMaxToBeBetween(
        column=rule.name,
        max_value=0,
        description=f"{rule.sentence}: at most 0 rows break it.",
        notes="\n\n".join([f"{finding.rows} new rows.", *finding.examples, f"When broken: {rule.do}"]),
        meta={"rule": rule.name},
    )


def _judged(result: CheckpointResult) -> Iterable[tuple[str, bool]]:
    for validation in result.run_results.values():
        for each in validation.results:
            assert each.expectation_config is not None
            yield each.expectation_config.meta["rule"], bool(each.success)


def _site(docs: Path) -> Any:  # the library's TypedDict leaves keys out that it takes
    return {
        "class_name": "SiteBuilder",
        "site_name": "kafka-telemetry-lake",
        "show_how_to_buttons": False,
        "store_backend": {"class_name": "TupleFilesystemStoreBackend", "base_directory": str(docs.resolve())},
        "site_index_builder": {"class_name": "DefaultSiteIndexBuilder"},
    }
