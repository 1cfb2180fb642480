# kafka-telemetry-lake. `make help` lists the targets. `make demo` needs only Python 3.11 to 3.13 and make, `make test` a JDK 17 or 21
# too; they install everything else into this folder.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
LAKE ?= demo-lake
TREE := tree
# For each of these the wheel of `make dist` has machine code. They need the packages of the lock.
PYTHONS ?= $(BIN)/python
# Tests of functions and of the job make many small files and wait for the disk at each: they do it in memory, if there is
# room. Brokers and browsers use the disk.
IN_MEMORY := PYTEST_DEBUG_TEMPROOT=$(shell [ -w /dev/shm ] && df -Pm /dev/shm | awk 'END { if ($$4 > 8192) print "/dev/shm" }')

# The target is the lane that prints what it took, beside its budget (tests/budget.toml).
PYTEST = TEST_LANE=$@ $(BIN)/pytest
# Those that take longest begin first.
SLOW_LANES := slow-kafka-2 slow-spark-2 slow-unit-2 slow-kafka slow-spark slow-receiver slow-unit slow-dashboard slow-property

.DEFAULT_GOAL := help
.PHONY: help install archive demo demo-proxy demo-files conformance check fmt test test-unit test-spark test-kafka test-dashboard test-receiver receiver test-slow test-slow-ci $(SLOW_LANES) test-matrix mutants lint docs dist tree bench soak lock clean

help: ## print this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | awk -F'\t' '{printf "  make %-14s %s\n", $$1, $$2}'

install: $(VENV)/.installed-all ## install telemetry-lake, the test tools and the jars into this folder

INSTALLS := pyproject.toml requirements.lock requirements-demo.lock tools/check-machine tools/install.py

$(VENV)/.installed-all: $(INSTALLS)
	@PYTHON=$(PYTHON) tools/check-machine
	@$(PYTHON) tools/install.py $(VENV)

# The demo needs neither the test tools nor the docs' site: two thirds of what is fetched and unpacked.
$(VENV)/.installed-demo: $(INSTALLS)
	@PYTHON=$(PYTHON) tools/check-machine
	@$(PYTHON) tools/install.py $(VENV) --demo

# Spark starts in every second test: with the archive each start takes 7 CPU-s less. A job leaves one anyway, when it ends.
archive: $(VENV)/.archive ## archive the classes that Spark loads, so that the job and its tests start faster

$(VENV)/.archive: $(VENV)/.installed-all tools/archive_classes.py
	$(BIN)/python tools/archive_classes.py >/dev/null
	@touch $@

demo: $(VENV)/.installed-demo ## run a broker with the plugin, real clients and the job; print a report of the lake
	$(BIN)/telemetry-lake demo --lake $(LAKE)

demo-proxy: $(VENV)/.installed-demo ## the same, but a proxy before the broker receives; with a third library where Go is installed
	$(BIN)/telemetry-lake demo --lake $(LAKE)-proxy --proxy --franz-go

demo-files: $(VENV)/.installed-demo ## the same without a broker, from captured pushes of real clients
	$(BIN)/telemetry-lake demo --lake $(LAKE)-files --files

# The command of a client, with {bootstrap} in place of the brokers' address, or a client of the sandbox.
CLIENT ?= librdkafka
conformance: install ## print which rules of KIP-714 a client library obeys: CLIENT='my-client {bootstrap}' (docs/conformance.md)
	$(BIN)/python -m kafka_telemetry_lake.sandbox.conformance '$(CLIENT)'

check: install ## ruff on what was changed, types and the fast tests, at the same time; before each commit
	$(IN_MEMORY) $(BIN)/python -m tools.check

fmt: install ## format the code and apply ruff's fixes
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .

test: install ## all checks and tests but the slow ones, several targets at a time: brokers mostly wait
	$(MAKE) --output-sync=target -j2 --keep-going archive lint test-receiver
	$(MAKE) --output-sync=target -j4 --keep-going test-unit test-kafka test-spark test-dashboard

test-unit: install ## tests of functions, without Spark or a broker
	$(IN_MEMORY) $(PYTEST) tests/unit -m "not slow" -n 2

test-spark: archive ## tests of the job in a local Spark session
	$(IN_MEMORY) $(PYTEST) tests/spark -m "not slow"

test-kafka: archive ## tests with real brokers, the plugin, real clients and the job
	$(PYTEST) tests/kafka -m "not slow"

test-dashboard: install ## tests of the dashboard, in headless Chromium if installed; with SCREENSHOTS=1 they leave some in tests/dashboard/screenshots
	$(PYTEST) tests/dashboard -m "not slow"

receiver: install ## build the receivers' jars: the plugin's in receiver/target, the proxy's in receiver/proxy/target
	$$($(BIN)/python -m kafka_telemetry_lake.pipelines.runtime.jars --maven) -q -B -DskipTests -f receiver/pom.xml package

test-receiver: install ## JUnit tests of the receivers
	$$($(BIN)/python -m kafka_telemetry_lake.pipelines.runtime.jars --maven) -q -B -f receiver/pom.xml verify

test-slow: archive ## slow tests, several lanes at a time: those with brokers mostly wait
	$(BIN)/python -m tools.slow_tests --all
	$(MAKE) --output-sync=target -j4 --keep-going $(SLOW_LANES)
	$(BIN)/python -m tools.slow_tests --passed

test-slow-ci: archive ## slow tests of what was changed, and an eighth of the others in turn (tools/slow_tests.py)
	$(BIN)/python -m tools.slow_tests
	$(MAKE) --output-sync=target -j4 --keep-going $(SLOW_LANES)

slow-spark slow-spark-2 slow-unit slow-unit-2: WITH = $(IN_MEMORY)
slow-property: WITH = PROPERTY_EXAMPLES=60
slow-property: SOME = not soak
$(SLOW_LANES): SOME ?= slow and not soak
$(SLOW_LANES): slow-%: archive
	[ ! -s .slow/$* ] || $(WITH) $(PYTEST) @.slow/$* -m "$(SOME)"

test-matrix: install ## tests of the job with Spark 4.0, 4.1 and 4.2 and each Python 3.11 to 3.13 found; before a release (docs/versions.md)
	$(BIN)/python -m tools.matrix $(ENVIRONMENTS)

mutants: install ## put mended faults back one at a time and see their tests fail (tests/mutants.toml)
	$(BIN)/python -m tools.mutants

lint: install ## ruff and mypy --strict, tests and benchmarks included
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: install ## build the docs as a site in site/, to be opened from the disk
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

dist: install ## build what a release has into dist/: wheel, sdist, the receivers' jars, a template for Databricks, SBOMs, checksums (RELEASING.md)
	rm -rf dist receiver/target receiver/*/target
	$(BIN)/python -m build --no-isolation --outdir dist .
	for python in $(PYTHONS); do $$python tools/machine_code.py dist/*.whl || exit 1; done
	$$($(BIN)/python -m kafka_telemetry_lake.pipelines.runtime.jars --maven) -q -B -DskipTests -Prelease -f receiver/pom.xml package
	cp receiver/target/*.jar receiver/target/*-sbom.json receiver/proxy/target/*.jar receiver/proxy/target/*-sbom.json dist
	$(BIN)/python tools/databricks_template.py dist/*.whl dist
	$(BIN)/uvx --quiet --from 'cyclonedx-bom==7.5.0' cyclonedx-py requirements --output-reproducible \
	  -o dist/$$(basename dist/*.tar.gz .tar.gz)-sbom.json requirements.lock
	cd dist && sha256sum -- * > SHA256SUMS && cat SHA256SUMS

bench: install ## run all benchmarks beside their peers; results in benchmarks/results.json
	$(BIN)/python -m benchmarks.first_use
	$(BIN)/python -m benchmarks.decode
	$(BIN)/python -m benchmarks.decompress
	$(BIN)/python -m benchmarks.task
	$(BIN)/python -m benchmarks.payload_compression
	$(BIN)/python -m benchmarks.state
	$(BIN)/python -m benchmarks.durable
	$(BIN)/python -m benchmarks.end_to_end
	$(BIN)/python -m benchmarks.comparison
	$(BIN)/python -m benchmarks.spark_engine
	$(BIN)/python -m benchmarks.small_collector
	$(BIN)/python -m benchmarks.bad_loads
	$(BIN)/python -m benchmarks.lifecycle
	$(BIN)/python -m benchmarks.aged
	$(BIN)/python -m benchmarks.week
	$(BIN)/python -m benchmarks.ninety_days
	$(BIN)/python -m benchmarks.merging
	$(BIN)/python -m benchmarks.iceberg
	$(BIN)/python -m benchmarks.rebootstrap
	$(BIN)/python -m benchmarks.proxy
	$(BIN)/python -m benchmarks.proxy --connections 10000
	$(BIN)/python -m benchmarks.proxy --kills 20
	$(BIN)/python -m benchmarks.fates
	$(BIN)/python -m benchmarks.quotas
	$(BIN)/python -m benchmarks.sustained --backlog 2000000
	$(BIN)/python -m benchmarks.sustained --clients 500000 --seconds 600 --fresh
	$(BIN)/python -m benchmarks.sustained --clients 10000 --seconds 180
	$(BIN)/python -m benchmarks.sustained --clients 100000 --seconds 180
	$(BIN)/python -m benchmarks.sustained --clients 100000 --seconds 180 --history 100000000
	$(BIN)/python -m benchmarks.sustained --clients 1000000 --seconds 900
	$(BIN)/python -m benchmarks.findings
	$(BIN)/python -m benchmarks.findings --hour
	$(BIN)/python -m benchmarks.findings --kinds
	$(BIN)/python -m benchmarks.findings --faults
	$(BIN)/python -m benchmarks.finding_path
	$(BIN)/python -m benchmarks.findings_cost
	$(BIN)/python -m benchmarks.dashboard --lake benchmarks/.build/dashboard-lake --pages --spark

soak: archive ## run the longest tests, inject every fault, at least 52 kills, run hostile clients; results in benchmarks/soak.json
	PROPERTY_EXAMPLES=300 $(BIN)/pytest tests/unit/conversion/test_property_engine.py
	$(BIN)/pytest tests -m soak
	$(BIN)/python -m benchmarks.soak

lock: install ## rewrite requirements.lock and requirements-demo.lock, .ci/go.lock and the jars' checksums (pipelines/runtime/jars.sha256)
	$(BIN)/pip-compile --quiet --strip-extras --allow-unsafe --generate-hashes --extra spark --extra dashboard --extra quality --extra notify --extra mcp --extra iceberg --extra docs --extra demo --extra dev --extra java \
	  --no-emit-index-url --no-emit-find-links --no-emit-trusted-host --output-file requirements.lock pyproject.toml
	$(BIN)/pip-compile --quiet --strip-extras --allow-unsafe --generate-hashes --extra spark --extra dashboard --extra demo \
	  --no-emit-index-url --no-emit-find-links --no-emit-trusted-host --constraint requirements.lock \
	  --output-file requirements-demo.lock pyproject.toml
	$(BIN)/pip-compile --quiet --strip-extras --generate-hashes \
	  --no-emit-index-url --no-emit-find-links --no-emit-trusted-host --output-file .ci/go.lock .ci/go.in
	$(BIN)/python tools/lock_jars.py

tree: ## copy the package with folders in place of links, for tools that draw imports and don't follow links
	rm -rf $(TREE)
	mkdir -p $(TREE)
	cp -RL kafka_telemetry_lake $(TREE)
	find $(TREE) -name __pycache__ -prune -exec rm -rf {} +

clean: ## remove everything that was installed or built
	rm -rf $(VENV) .jars .matrix .slow benchmarks/.build .mypy_cache .pytest_cache .ruff_cache receiver/target receiver/*/target site tree demo-lake demo-lake-proxy demo-lake-files
