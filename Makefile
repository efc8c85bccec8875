# Two commands matter: `make demo` and `make test`. Both make .venv and install what they need.
PYTHON ?= python3
VENV   := .venv
ifeq ($(OS),Windows_NT)
BIN    := $(VENV)/Scripts
else
BIN    := $(VENV)/bin
endif
TORCH  := torch==2.13.0
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check
# torch comes first: an open range drags in the newest build. pip takes the build that its registry has, on Linux with
# gigabytes of CUDA libraries; `make TORCH_BACKEND=cpu test` lets uv fetch the CPU build from PyTorch's own packages.
ifdef TORCH_BACKEND
INSTALL_TORCH = $(PIP) uv && $(BIN)/uv pip install --quiet --python $(BIN)/python --torch-backend=$(TORCH_BACKEND) $(TORCH)
else
INSTALL_TORCH = $(PIP) $(TORCH)
endif

.DEFAULT_GOAL := help
.PHONY: help demo test test-all coverage lint format docs release-check soak guard-docs fuzz backbones clean

help:  ## show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 12

$(VENV)/pyvenv.cfg:
	$(PYTHON) -m venv $(VENV)

# Stamps: a second run installs nothing unless pyproject.toml changed.
$(VENV)/.core: pyproject.toml | $(VENV)/pyvenv.cfg
	$(PIP) -e .
	@touch $@

$(VENV)/.dev: pyproject.toml | $(VENV)/pyvenv.cfg
	$(INSTALL_TORCH)
	$(PIP) -e '.[dev]'
	$(PIP) --no-deps timm==1.0.30  # it asks for torchvision, which experiments/torchvision_stub.py stands in for
	@touch $@ $(VENV)/.core

demo: $(VENV)/.core  ## predict the example photos and write demo/index.html
	$(BIN)/fastgaze demo --out demo

test: lint  ## lint, then every test of the default suite
	$(BIN)/python -m pytest -n 2

test-all: lint  ## the default suite and the slow tests
	$(BIN)/python -m pytest -n 2 -m "slow or not slow"

coverage: $(VENV)/.dev  ## the default suite, and which lines of the package it runs; fails below the floor
	$(BIN)/python -m pytest -n 2 --cov=fastgaze --cov-report=term:skip-covered

lint: $(VENV)/.dev  ## ruff, mypy --strict, import contract
	$(BIN)/ruff check src tests experiments tools
	$(BIN)/ruff format --check src tests experiments tools
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

format: $(VENV)/.dev  ## let ruff format and sort imports
	$(BIN)/ruff check --fix src tests experiments tools
	$(BIN)/ruff format src tests experiments tools

docs: $(VENV)/.dev  ## write the documentation into site/; warnings are errors
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

release-check: $(VENV)/.dev  ## build sdist and wheel, check them, try them in empty environments
	$(BIN)/python tools/release_check.py

soak: $(VENV)/.dev  ## attack a server on loopback for six minutes and write results/soak*.json; `make guard-docs` shows them
	$(BIN)/python -m experiments.soak --out results/soak.json
	$(BIN)/python -m experiments.soak --fresh --out results/soak_fresh.json

guard-docs: $(VENV)/.dev  ## write what was measured of the server into docs/server.md and docs/deploy.md
	$(BIN)/python -m experiments.server_docs

fuzz: $(VENV)/.dev  ## feed damaged files to every reader, a minute each
	$(BIN)/python -m experiments.fuzz

backbones: $(VENV)/.dev  ## get the ImageNet weights that training starts from, about a minute
	$(BIN)/python tools/get_backbones.py

clean:  ## remove .venv and caches
	rm -rf $(VENV) demo site .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
