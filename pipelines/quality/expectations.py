"""Validates the findings with Great Expectations, one suite per table, and writes Data Docs.

An expectation checks the count of broken rows that DuckDB took (at most 0), not the rows themselves: a pandas frame of
a day's data points wouldn't fit into memory.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from pathlib import Path
from typing import Any

import great_expectations as gx
import pandas as pd
from great_expectations.checkpoint.actions import UpdateDataDocsAction, ValidationAction
from great_expectations.data_context.types.base import ProgressBarsConfig
from great_expectations.expectations.core.expect_column_max_to_be_between import ExpectColumnMaxToBeBetween

from kafka_telemetry_lake.pipelines.quality.checks import Finding

SITE = "pages"


def judge(findings: Iterable[Finding], docs: Path | None) -> dict[str, bool]:
    """Whether each rule passed, by rule name.

    Args:
        findings: grouped by table.
        docs: folder for Data Docs (start page: index.html), which replace those of an earlier check; None: no pages.
    """
    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = ProgressBarsConfig(globally=False)
    for site in list(context.get_site_names()):
        context.delete_data_docs_site(site)
    if docs is not None:
        context.add_data_docs_site(SITE, _site(docs))
    lake, findings, validations = context.data_sources.add_pandas("lake"), list(findings), []
    for table, group in groupby(findings, lambda finding: finding.rule.table):
        rows = lake.add_dataframe_asset(table).add_batch_definition_whole_dataframe("new rows")
        suite = context.suites.add(gx.ExpectationSuite(name=table, expectations=[_expected(each) for each in group]))
        definition = gx.ValidationDefinition(name=table, data=rows, suite=suite)
        validations.append(context.validation_definitions.add(definition))
    actions: list[ValidationAction] = [] if docs is None else [UpdateDataDocsAction(name=SITE, site_names=[SITE])]
    checkpoint = gx.Checkpoint(name="rules", validation_definitions=validations, actions=actions)
    counts = pd.DataFrame({each.rule.name: [each.broken] for each in findings})
    result = context.checkpoints.add(checkpoint).run(batch_parameters={"dataframe": counts})
    checked = [each for validation in result.run_results.values() for each in validation.results]
    configs = [(each.expectation_config, each.success) for each in checked]
    return {config.kwargs["column"]: bool(success) for config, success in configs if config is not None}


def _expected(finding: Finding) -> ExpectColumnMaxToBeBetween:
    rule = finding.rule
    return ExpectColumnMaxToBeBetween(
        column=rule.name,
        max_value=0,
        description=f"{rule.sentence}: at most 0 rows break it.",
        notes="\n\n".join([f"{finding.rows} new rows.", *finding.examples, f"When broken: {rule.do}"]),
    )


def _site(docs: Path) -> Any:  # the library's TypedDict omits keys that it accepts
    return {
        "class_name": "SiteBuilder",
        "site_name": "kafka-telemetry-lake",
        "show_how_to_buttons": False,
        "store_backend": {"class_name": "TupleFilesystemStoreBackend", "base_directory": str(docs.resolve())},
        "site_index_builder": {"class_name": "DefaultSiteIndexBuilder"},
    }
