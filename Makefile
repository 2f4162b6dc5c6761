# Gradwire: `make help` lists what can be made. Everything is installed into .venv with the versions of constraints.txt.

PYTHON ?= python3
BIN    := .venv/bin
# DeepSpeed compiles its operators once; kept here, a build that was interrupted can be seen and removed.
export TORCH_EXTENSIONS_DIR ?= $(CURDIR)/.torch_extensions

# The documents of Gradwire's own, which become classes; the other schemas describe the files of other programs.
DOCUMENTS := comparison figures lowering measurement parity peak plan recipe step

# Made as dataclasses, then turned into structs: those take no time to define, and every command starts with them.
define documents_into
rm -rf build/document-schemas && mkdir -p build/document-schemas
cp $(DOCUMENTS:%=schemas/%.schema.json) build/document-schemas/
PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/datamodel-codegen --output $(1)
sed -i -E -e 's/^from dataclasses import dataclass/from msgspec import Struct/' -e '/^@dataclass/d' \
	-e 's/^class (\w+):/class \1(Struct, frozen=True, kw_only=True):/' $(1)/*.py
endef

# Tests that start processes run one at a time, and beside them those that need one core; `alone` ones with nothing beside.
HEAVY := distributed or slow
LIGHT := not distributed and not slow and not soak and not alone

.DEFAULT_GOAL := help
.PHONY: help demo test test-soak test-fast bench-comm bench-convergence lint format documents wheel clean

help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-18s %s\n", $$1, $$2}'

demo: .venv/installed ## Install, then train one recipe on three backends, 1 and 2 processes, and compare them
	$(BIN)/gradwire compare cpu/ddp --backends native,accelerate,deepspeed --num-gpus 1,2 --out runs/demo

test: .venv/installed-dev ## Install, then run every test that this machine can run
	@mkdir -p build
	$(BIN)/python -m pytest -m '$(LIGHT)' >build/light.log 2>&1 & light=$$!; failed=0; \
	$(BIN)/python -m pytest -m '($(HEAVY)) and not alone and not soak' || failed=$$?; \
	wait $$light || failed=$$?; cat build/light.log; exit $$failed
	$(BIN)/python -m pytest -m alone

test-soak: .venv/installed-dev ## Only the tests that repeat whole runs for minutes
	$(BIN)/python -m pytest -m soak

test-fast: .venv/installed-dev ## Only the tests that start no worker processes
	$(BIN)/python -m pytest -m '$(LIGHT)'

# LAB="--rates 1000,200,100 --hosts 2,4 --modes emulated,real" measures more; see `python -m benchmarks.netlab bench --help`.
bench-comm: .venv/installed-dev ## Gradient communication over slow links: step time, scaling efficiency, bytes; a table and a chart
	$(BIN)/python -m benchmarks.netlab bench $(LAB)

bench-convergence: .venv/installed-dev ## Train with every method to equal steps and to equal loss over a 100 Mb/s link (half an hour)
	$(BIN)/python -m benchmarks.netlab convergence $(LAB)

lint: .venv/installed-dev ## Check style, types, layers and that the documents match their schemas
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(call documents_into,build/documents)
	diff -r --exclude __pycache__ build/documents backend/gradwire/documents

format: .venv/installed-dev ## Rewrite the sources in the project's style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

documents: .venv/installed-dev ## Generate backend/gradwire/documents from the schemas of Gradwire's own documents
	$(call documents_into,backend/gradwire/documents)

wheel: .venv/installed-dev ## Build the wheel and the source archive into dist/
	$(BIN)/python -m build

clean: ## Remove everything that was made
	rm -rf .venv .torch_extensions build dist runs .mypy_cache .ruff_cache .pytest_cache .import_linter_cache

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[all]'
	@touch $@

.venv/installed-dev: .venv/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[all,dev]'
	@touch $@
