# Each target installs what it needs; you need Python 3.11 or newer (with venv) and make. See CONTRIBUTING.md.
#   make PYTHON=/path/to/python ...   selects the Python for .venv
#   make serve ARGS="--set num.partitions=6"; make test ARGS="-k heartbeat"

PYTHONS = $(or $(PYTHON),python3.13 python3.12 python3.11 python3)
BIN = .venv/bin
COMPAT2 = .cache/kafka-python-2
SOAKS = soak-tests soak-examples soak-everything-at-once soak-mistakes soak-checks soak-kills soak-groups soak-bank soak-cluster soak-cluster-bank soak-streams soak-jobs soak-partitions soak-kafka-python
ARGS ?=
# A test process compiles 900 modules before its first test unless the last run has left them compiled.
CACHED = PYTHONDONTWRITEBYTECODE=

# uv uses the system's certificates and the interpreter of .venv. It ignores pip's settings, so pass it pip's index.
UV = index="$${UV_DEFAULT_INDEX:-$${PIP_INDEX_URL:-$$($(BIN)/python -m pip config get global.index-url 2>/dev/null)}}"; \
	if [ -n "$$index" ]; then export UV_DEFAULT_INDEX="$$index"; fi; \
	UV_SYSTEM_CERTS=1 UV_PYTHON_DOWNLOADS=never $(BIN)/uv --quiet
INSTALL = $(UV) pip install --python $(BIN)/python
LOCK = $(UV) pip compile --python $(BIN)/python --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --custom-compile-command "make lock" $(UPGRADE)

.PHONY: help serve test test-more check format demo bench compat-general compat-kafka compat-cluster compat-kafka-cluster soak lock clean $(SOAKS)

help: ## Show this list
	@sed -n 's/^\([a-z-]*\):.* ## \(.*\)/\1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{printf "make %-20s %s\n", $$1, $$2}'

serve: .venv/runtime.stamp ## Run the broker on 127.0.0.1:9092 with its data in ./data
	@exec $(BIN)/kwire serve --listen 127.0.0.1:9092 --data-dir data $(ARGS)

test: .venv/dev.stamp .cache/jars.stamp ## Run the tests that a person waits for: 8 minutes on two cores
	$(CACHED) $(BIN)/python -m pytest -n auto --budgets=test --durations=20 $(ARGS)

test-more: .venv/dev.stamp .cache/jars.stamp ## Run what CI runs besides: most of Spark, clusters of processes, kills
	$(CACHED) $(BIN)/python -m pytest -n auto --budgets=more --durations=20 -m "more and not soak" $(ARGS)

compat-general: .venv/dev.stamp .cache/jars.stamp ## Run the compat tests against kwire without its fast paths
	KWIRE_FAST_PATHS=off $(CACHED) $(BIN)/python -m pytest -n auto compat_tests $(ARGS)

compat-kafka: .venv/dev.stamp .cache/jars.stamp $(COMPAT2).stamp ## Run the compat tests against Apache Kafka instead of kwire
	KWIRE_COMPAT=kafka $(BIN)/python -m pytest -m "" compat_tests $(ARGS)
	KWIRE_COMPAT=kafka PYTHONPATH=$(COMPAT2) $(BIN)/python -m pytest compat_tests/test_kafka_python*.py $(ARGS)

compat-cluster: .venv/dev.stamp .cache/jars.stamp ## Run the compat tests against node 1 of three
	KWIRE_COMPAT=cluster $(BIN)/python -m pytest -m "not soak" compat_tests $(ARGS)

compat-kafka-cluster: .venv/dev.stamp .cache/jars.stamp ## Run the compat tests against node 1 of three Apache Kafkas
	KWIRE_COMPAT=kafka-cluster $(BIN)/python -m pytest -m "not soak" compat_tests $(ARGS)

soak: $(SOAKS) ## Run the long tests, including 1,000 kills: hours; ARGS="--kills 200"; make -j2 -Otarget soak

$(SOAKS): .venv/dev.stamp .cache/jars.stamp $(COMPAT2).stamp

soak-tests:
	$(CACHED) $(BIN)/python -m pytest -n auto --durations=20 -m soak -o timeout=1800 -o faulthandler_timeout=1830

soak-examples: # forty times the examples of make test
	KWIRE_EXAMPLES_TIMES=40 $(CACHED) $(BIN)/python -m pytest -n auto -o timeout=1800 -o faulthandler_timeout=1830 \
		$$(grep -rlE --include='test_*.py' 'examples\([0-9]+\)' protocol storage kwire)

soak-everything-at-once:
	@$(BIN)/python -m testkit.everything_at_once --minutes 60 --seeds 20

soak-mistakes: # five injected races, each of which must be found within a minute
	@$(BIN)/python -m testkit.everything_at_once.mistakes

soak-checks: # each check of security is broken, and a test has to notice
	@$(BIN)/python -m testkit.security.checks

soak-kills:
	@$(BIN)/python -m testkit.kills sigkill $(ARGS)

soak-groups: # members of both protocols, of a share group, and their broker, 500 kills
	@$(BIN)/python -m testkit.kills groups $(ARGS)

soak-bank: # a bank's transactions, 300 kills
	@$(BIN)/python -m testkit.kills bank $(ARGS)

soak-cluster: # 500 faults of clusters of three nodes
	@$(BIN)/python -m testkit.kills cluster

soak-cluster-bank: # the bank over three nodes, 70 kills in each form
	@$(BIN)/python -m testkit.kills bank --cluster local --kills 70
	@$(BIN)/python -m testkit.kills bank --cluster zookeeper --kills 70

soak-streams: # 20 kills with each protocol
	@$(BIN)/python -m testkit.kills streams --protocol classic
	@$(BIN)/python -m testkit.kills streams --protocol streams

soak-jobs: # the pipeline's jobs and their broker, 200 kills
	@$(BIN)/python -m testkit.kills jobs $(ARGS)

soak-partitions: # 10,000 on 1,024 descriptors
	@$(BIN)/python -m testkit.servers.many_partitions

soak-kafka-python: # version 2.2
	PYTHONPATH=$(COMPAT2) $(BIN)/python -m pytest compat_tests/test_kafka_python*.py

check: .venv/dev.stamp ## Lint, types, package dependencies, generated code, source rules
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/lint-imports --config devtools/type_imports.toml
	$(BIN)/python -m codegen --check
	$(BIN)/python -m pytest -q -m "" devtools/tests/test_source_rules.py devtools/tests/test_import_circles.py

format: .venv/dev.stamp ## Format the code, and fix what ruff can
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

demo: .venv/dev.stamp .cache/jars.stamp ## Run kafka-python, confluent-kafka and Spark against a broker
	@$(BIN)/python -m devtools.demo $(ARGS)

bench: .venv/dev.stamp .cache/jars.stamp ## Compare kwire with Apache Kafka: hours, or ARGS=--quick
	@$(BIN)/python -m benchmarks $(ARGS)

lock: .venv/uv.stamp ## Pin requirements/*.in again (UPGRADE=--upgrade takes newer versions)
	@$(LOCK) requirements/uv.in -o requirements/uv.txt
	@$(LOCK) requirements/dev.in -o requirements/dev.txt
	@$(LOCK) requirements/runtime.in -c requirements/dev.txt -o requirements/runtime.txt
	@$(LOCK) requirements/build.in -c requirements/dev.txt -o requirements/build.txt
	@$(LOCK) requirements/kafka-python-2.in -o requirements/kafka-python-2.txt

clean: ## Remove everything that make created, except ./data
	rm -rf .venv .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist spark-warehouse artifacts
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Each stamp is newer than its inputs, so a second run has nothing to do.

.venv/pyvenv.cfg:
	@python="$$(for name in $(PYTHONS); do \
		case "$$name" in \
			*/*) echo "$$name" ;; \
			*) (IFS=:; for folder in $$PATH; do echo "$$folder/$$name"; done) ;; \
		esac; \
	done | while read -r python; do "$$python" devtools/probe_python.py 2>/dev/null; done | sort -s -n -k 1,1 | head -n 1)"; \
	if [ -z "$$python" ]; then \
		echo "kwire needs Python 3.11 or newer with its venv module. None found among: $(PYTHONS)." >&2; \
		echo "Install one (on Debian and Ubuntu: python3 and python3-venv), or pass its path: make PYTHON=/path/to/python" >&2; \
		exit 1; \
	fi; \
	set -- $$python; \
	echo "creating .venv with $$2 $$3"; \
	"$$2" -m venv .venv || { rm -rf .venv; exit 1; }

.venv/uv.stamp: requirements/uv.txt | .venv/pyvenv.cfg
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/uv.txt
	@touch $@

.venv/runtime.stamp: requirements/runtime.txt requirements/build.txt pyproject.toml .venv/uv.stamp
	@echo "installing kwire and its dependencies"
	@$(INSTALL) --compile-bytecode --require-hashes -r requirements/runtime.txt -r requirements/build.txt
	@$(INSTALL) --no-deps --no-build-isolation --editable .
	@$(BIN)/python -m compileall -q kwire protocol/kwire_protocol storage/kwire_storage # a broker starts twice as fast
	@touch $@

.venv/dev.stamp: requirements/dev.txt .venv/runtime.stamp
	@echo "installing the dependencies of tests and checks"
	@$(INSTALL) --require-hashes -r requirements/dev.txt
	@touch $@

.cache/jars.stamp: requirements/jars.txt .venv/dev.stamp
	@echo "fetching Apache Kafka and Spark's connector"
	@$(BIN)/python -m devtools.jars fetch
	@touch $@

$(COMPAT2).stamp: requirements/kafka-python-2.txt .venv/uv.stamp
	@rm -rf $(COMPAT2) && mkdir -p .cache
	@$(INSTALL) --require-hashes --no-deps --target $(COMPAT2) -r requirements/kafka-python-2.txt
	@touch $@
