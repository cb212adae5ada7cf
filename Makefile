# Two commands: `make` sets up and runs the pipeline, `make test` sets up and runs the tests.
PYTHON ?= python3.11
BIN := .venv/bin
RUN := env PATH="$(CURDIR)/$(BIN):$$PATH"

.PHONY: run test lint types tests course seeds verify lock preset clean

# The check comes first: DVC deletes a stage's outs before it runs, even if only to fail.
run: .venv/core
	$(BIN)/python -m vlm check
	$(RUN) dvc repro
	@echo
	@echo "Done. Look at reports/index.html; the figures are in metrics/, the curves in plots/."
	@echo "Change params.yaml, run make again, and see the effect: $(BIN)/dvc metrics diff"

test: lint types tests

lint: .venv/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/dev
	$(BIN)/basedpyright

tests: .venv/dev
	$(RUN) pytest

# Six short lessons, from one picture's patches to an evaluated model.
course: .venv/core
	@set -e; for lesson in examples/course/lesson*.py; do \
		echo; echo "== $$lesson"; $(BIN)/python $$lesson; \
	done

# make seeds N=3 PARAMS=presets/notebook.yaml: the pipeline under N seeds, with mean and spread.
seeds: .venv/core
	$(BIN)/python -m vlm seeds $(or $(PARAMS),params.yaml) --count $(or $(N),3)

# make verify: the committed pipeline anew in a clone, every result's hash against dvc.lock.
verify: .venv/core
	$(BIN)/python -m vlm verify

# The lock file pins every package; a plain run leaves out those that only the tests need.
.venv/core: requirements.lock pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint requirements.lock --editable .
	@touch $@

.venv/dev: .venv/core
	$(BIN)/python -m pip install --quiet --constraint requirements.lock --editable '.[dev]'
	@touch $@

# Pins what pyproject.toml's ranges resolve to today.
lock:
	rm -rf .venv
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet torch==2.13.0
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	$(BIN)/python -m pip freeze --exclude-editable | sed 's/+cpu$$//' > requirements.lock
	@touch .venv/core .venv/dev

# make preset NAME=tiny. Refuses to overwrite edits of yours; a preset copied before isn't one.
preset: .venv/core
	@test -f "presets/$(NAME).yaml" || { \
		known=$$(cd presets && printf ', %s' *.yaml | sed 's/\.yaml//g'); \
		echo "make preset NAME=$(or $(NAME),...): expected one of $${known#, }" >&2; exit 2; }
	@test "$(FORCE)" = 1 || ! test -e params.yaml || \
		{ git ls-files --error-unmatch params.yaml && git diff --quiet HEAD -- params.yaml; } \
			>/dev/null 2>&1 || \
		( for known in presets/*.yaml; do cmp -s $$known params.yaml && exit 0; done; exit 1 ) || { \
		echo "params.yaml has uncommitted edits; commit them, or add FORCE=1" >&2; exit 2; }
	cp "presets/$(NAME).yaml" params.yaml
	$(BIN)/python -m vlm check

clean:
	rm -rf .venv .runtime .resume .pytest_cache .ruff_cache .hypothesis
