# make demo, make test: each sets up .venv when it has to, then does the job.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

# Where the real data sets lie (california_housing.csv.gz, credit_default.csv.gz).
ifneq ($(wildcard ../shared/data),)
export PRIVET_DATA ?= $(abspath ../shared/data)
endif

.PHONY: setup demo test docs reference test-mutants test-chaos test-browser test-slow fuzz lint format bench-reference bench-gates bench-paper \
        bench-protocols bench-attack bench-chaos bench-checkpoints bench-serving bench-soak bench-alignment bench-secretflow bench-same-tests bench-multiclass bench-growth bench-link \
        bench-reading bench-columns bench-boosters bench-options bench-dealers bench-masks bench-rows bench-shards bench-heads bench-engines bench-profile bench bench-quick clean

setup: $(READY)

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo "Privet needs Python 3.10 or later; set PYTHON=/path/to/python3"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@

demo: setup
	$(BIN)/privet demo

test: setup lint
	$(BIN)/pytest -n 3 --dist loadfile

# What takes long: the wheel in an empty environment, nonsense for commands that meet others.
test-slow: setup
	PRIVET_SLOW=1 $(BIN)/pytest -n 3 -m slow

# Losing privacy on purpose, 100 times: about forty minutes. Writes docs/mutants.md.
test-mutants: setup
	$(BIN)/python -m tests.privacy.mutants.run

# The site, in build/site; warnings are errors.
docs: setup
	PYTHONPATH=. $(BIN)/mkdocs build --strict

# docs/reference from the code, and what the notebooks print.
reference: setup
	$(BIN)/python -m manual

# A training watched from three pages of a real browser (Debian's chromium): about three minutes.
# Writes docs/figures/page.
test-browser: setup
	$(BIN)/python -m pip install --quiet 'playwright>=1.40,<2'
	PRIVET_BROWSER=1 PRIVET_PICTURES=docs/figures/page $(BIN)/pytest tests/browser

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@if $(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then \
	  echo $(BIN)/mypy; $(BIN)/mypy; \
	else echo "mypy: not run, numpy's newest release for Python 3.10 has other types"; fi
	$(BIN)/lint-imports

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench-reference: setup
	$(BIN)/python benchmarks/reference_cost.py

bench-gates: setup
	$(BIN)/python benchmarks/gates.py

bench-paper: setup
	$(BIN)/python benchmarks/paper_costs.py
	$(BIN)/python benchmarks/division.py

bench-protocols: setup
	$(BIN)/python benchmarks/protocols.py

bench-attack: setup
	$(BIN)/python -m benchmarks.attack

bench: setup
	$(BIN)/python -m benchmarks.evidence run
	$(BIN)/python -m benchmarks.evidence show

bench-quick: setup
	$(BIN)/python -m benchmarks.evidence run --quick
	$(BIN)/python -m benchmarks.evidence show --quick

# Nonsense from a peer with a good certificate, for as many seconds as are given. For so many cases,
# and docs/results/fuzz.json: python -m tests.fuzz --cases 10000000 --keep
SECONDS ?= 300
fuzz: setup
	$(BIN)/python -m tests.fuzz --seconds $(SECONDS)

# Federations interrupted 50 times, at every phase and in every way: about five minutes.
test-chaos: setup
	$(BIN)/python -m benchmarks.chaos --interruptions 50 --at-once 4

# The same 1,000 times. Writes docs/results/chaos.json.
bench-chaos: setup
	$(BIN)/python -m benchmarks.chaos --interruptions 1000 --at-once 6 --keep

bench-checkpoints: setup
	$(BIN)/python benchmarks/checkpoints.py

bench-serving: setup
	$(BIN)/python benchmarks/serving.py

# A few minutes each: with processes killed and frozen, and with a look at memory.
bench-soak: setup
	$(BIN)/python -m benchmarks.soak --minutes 5 --every 20
	$(BIN)/python -m benchmarks.soak --batches 10000
	$(BIN)/python -m benchmarks.soak --tables 1000

bench-alignment: setup
	$(BIN)/python benchmarks/alignment.py

# SecretFlow's package has wheels for few Pythons, the newest for 3.10, and lives apart.
HEU_VENV   := .venv-heu
HEU_PYTHON ?= python3.10

bench-secretflow: setup $(HEU_VENV)/.ready
	$(BIN)/python -m benchmarks.secretflow --heu $(HEU_VENV)/bin/python

$(HEU_VENV)/.ready:
	$(HEU_PYTHON) -m venv $(HEU_VENV)
	$(HEU_VENV)/bin/python -m pip install --quiet sf-heu==0.6.0b0
	@touch $@

bench-same-tests: setup
	$(BIN)/python -m benchmarks.same_tests

bench-columns: setup
	$(BIN)/python -m benchmarks.columns

bench-boosters: setup
	$(BIN)/python -m pip install --quiet 'lightgbm>=4.5,<5'
	$(BIN)/python -m benchmarks.boosters

bench-options: setup
	$(BIN)/python -m benchmarks.options

bench-dealers: setup
	$(BIN)/python -m benchmarks.dealers

bench-masks: setup
	$(BIN)/python -m benchmarks.masks

# All roles together take about 12 GB.
bench-shards: setup
	$(BIN)/python -m benchmarks.shards

bench-heads: setup
	$(BIN)/python -m benchmarks.heads

bench-engines: setup
	$(BIN)/python -m benchmarks.engines

# Ten trainings, two of them of a million rows: about ten minutes.
bench-profile: setup
	$(BIN)/python -m pip install --quiet 'xgboost>=2,<4'
	$(BIN)/python -m benchmarks.profile_rows

bench-rows: setup
	$(BIN)/python -m benchmarks.many_rows

bench-multiclass: setup
	$(BIN)/python -m benchmarks.multiclass

bench-growth: setup
	$(BIN)/python -m benchmarks.growth

bench-link: setup
	$(BIN)/python -m benchmarks.link

# Writes files of up to 3.2 GB into TMPDIR, one after the other.
bench-reading: setup
	$(BIN)/python benchmarks/reading.py

clean:
	rm -rf $(VENV) $(HEU_VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
