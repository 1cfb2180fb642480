# kafka-telemetry-lake. `make help` lists what there is; `make demo` and `make test` need nothing installed by hand
# but Python 3.11+, a JDK 17+ and make.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
LAKE ?= demo-lake

.DEFAULT_GOAL := help
.PHONY: help install demo demo-files test test-unit test-spark test-kafka test-dashboard test-receiver receiver test-slow test-slow-unit test-slow-jobs lint bench soak lock clean

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | awk -F'\t' '{printf "  make %-14s %s\n", $$1, $$2}'

install: $(VENV)/.installed ## .venv with telemetry-lake and the test tools, and the jars, all in this folder

$(VENV)/.installed: pyproject.toml requirements.lock tools/check-machine
	@PYTHON=$(PYTHON) tools/check-machine
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -r requirements.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps -e .
	$(BIN)/python -m pipelines.jars spark kafka-4.3.1 kafka-logging
	@touch $@

demo: install ## a broker with the plugin, real clients, the job, a lake folder and a report
	$(BIN)/telemetry-lake demo --lake $(LAKE)

demo-files: install ## the same without a broker: captured pushes of real clients
	$(BIN)/telemetry-lake demo --lake $(LAKE)-files --files

test: install lint test-unit test-receiver test-spark test-kafka test-dashboard ## every check and test that ends within minutes

test-unit: install ## pure functions: no Spark, no broker
	$(BIN)/pytest tests/unit -m "not slow"

test-spark: install ## the job in a local Spark session
	$(BIN)/pytest tests/spark -m "not slow"

test-kafka: install ## real brokers with the plugin, real clients, and the job between them
	$(BIN)/pytest tests/kafka -m "not slow"

test-dashboard: install ## the dashboard's pages in a headless Chromium, where there is one; screenshots in tests/dashboard/screenshots
	$(BIN)/pytest tests/dashboard -m "not slow"

receiver: install ## the receiver plugin's jar, in receiver/target
	$$($(BIN)/python -m pipelines.jars --maven) -q -B -DskipTests -f receiver/pom.xml package

test-receiver: install ## the plugin's JUnit tests
	$$($(BIN)/python -m pipelines.jars --maven) -q -B -f receiver/pom.xml verify

test-slow: install ## the tests that take longer; those of brokers and Spark mostly wait, so the others run beside them
	$(MAKE) -j2 test-slow-unit test-slow-jobs

test-slow-unit: install
	$(BIN)/pytest tests/unit -m slow

test-slow-jobs: install
	$(BIN)/pytest tests/kafka tests/spark tests/dashboard -m slow

lint: install ## ruff and mypy --strict
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: install ## figures of decoder, state and the whole job, each beside its peer's, into benchmarks/results.json
	$(BIN)/python -m benchmarks.decode
	$(BIN)/python -m benchmarks.decompress
	$(BIN)/python -m benchmarks.state
	$(BIN)/python -m benchmarks.end_to_end
	$(BIN)/python -m benchmarks.bad_loads
	$(BIN)/python -m benchmarks.lifecycle
	$(BIN)/python -m benchmarks.rebootstrap
	$(BIN)/python -m benchmarks.fates
	$(BIN)/python -m benchmarks.quotas
	$(BIN)/python -m benchmarks.sustained --backlog 2000000
	$(BIN)/python -m benchmarks.sustained --clients 500000 --seconds 600 --fresh
	$(BIN)/python -m benchmarks.sustained --clients 10000 --seconds 180
	$(BIN)/python -m benchmarks.sustained --clients 100000 --seconds 180
	$(BIN)/python -m benchmarks.sustained --clients 100000 --seconds 180 --history 100000000
	$(BIN)/python -m benchmarks.sustained --clients 1000000 --seconds 900
	$(BIN)/python -m benchmarks.dashboard --lake benchmarks/.build/dashboard-lake --pages --spark

soak: install ## every fault, 50 kills and hostile clients: is anything lost or doubled? into benchmarks/soak.json
	$(BIN)/python -m benchmarks.soak

lock: ## resolve requirements.lock anew from pyproject.toml
	$(BIN)/pip-compile --quiet --strip-extras --extra spark --extra dashboard --extra quality --extra dev --no-emit-index-url --no-emit-find-links \
	  --no-emit-trusted-host --output-file requirements.lock pyproject.toml

clean: ## everything that was installed or built
	rm -rf $(VENV) .jars benchmarks/.build .mypy_cache .pytest_cache .ruff_cache receiver/target demo-lake
