# Two commands do it all on a fresh machine with Python 3.11 or newer: `make demo` and `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
READY = $(VENV)/.ready

.DEFAULT_GOAL := help
.PHONY: help install demo test check unit engines matrix bench faults soak references dashboards table snapshots pictures versions clean

help: ## This list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## (.*)/  make \1\t\2/' | expand -t 18

install: $(READY) ## An environment in .venv: vLLM's CPU build, NIXL, vllm-router, pushscope, test tools
$(READY): requirements/install.sh requirements/cpu.lock requirements/dev.lock pyproject.toml
	@sh requirements/install.sh $(PYTHON) $(VENV)
	@touch $@

demo: $(READY) ## Two real engines, a router and a load; the live screen, or without a terminal a report
	@$(BIN)/pushscope demo

test: check unit engines ## Everything that CI runs: lint, types, unit tests, tests on real engines

check: $(READY) ## Lint, format and strict types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy -p pushscope.connector -p pushscope.telemetry -p pushscope.dashboards -p pushscope.tui -p pushscope.lab
	MYPYPATH=.layout:. $(BIN)/mypy -p bench -p upstream -p versions -p faults -p diagnoses -p soak

unit: $(READY) ## Tests that need neither vLLM nor NIXL
	$(BIN)/python -m pytest tests/unit

engines: $(READY) ## Tests on real vLLM engines with real NIXL between them
	$(BIN)/python -m pytest tests/vllm

matrix: $(READY) ## The tests on vLLM in every layout and with many random schedules: what is too long for CI
	PUSHSCOPE_RANDOM_SCHEDULES=1000 $(BIN)/python -m pytest tests/vllm -m "slow or not slow"

bench: $(READY) ## Benchmarks against the budgets, as ratios in one run
	$(BIN)/python -m bench

faults: $(READY) ## Every fault of the lab on real engines: when it is named, and when it has cleared (half an hour)
	$(BIN)/python -m faults

table: $(READY) ## What every failure mode is diagnosed as, and how soon: made by the tests, written to the docs (five minutes)
	$(BIN)/python -m pytest tests/unit/test_diagnosis_seconds.py tests/vllm/fake -k diagnosis --write-table

references: $(READY) ## Write the pages of docs/reference that are made from code alone
	$(BIN)/python -m pushscope.telemetry.spans.reference
	$(BIN)/python -m pushscope.telemetry.metrics.reference
	$(BIN)/python -m pushscope.dashboards.reference

dashboards: $(READY) ## Write the files of dashboards/ that are made from code
	$(BIN)/python -m pushscope.dashboards.files

soak: $(READY) ## No false alarm: 5,000 transfers on real engines, a million on simulated ones (half an hour)
	$(BIN)/python -m soak

snapshots: $(READY) ## Draw the pictures anew that the screens are tested against
	$(BIN)/python -m pytest tests/unit -k tui --snapshot-update

pictures: $(READY) ## Draw the pictures of the README from a real run
	$(BIN)/python docs/make_pictures.py

versions: $(READY) ## Read every vLLM release and run those that install here (40 minutes, 10 GB in a cache folder)
	$(BIN)/python -m versions

clean: ## Remove the environment and what tools left behind
	rm -rf $(VENV) build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis snapshot_report.html
