# make lab     opens a copy of the course in JupyterLab: yours, in course/. make course copies it, or what is new of it
# make test    checks everything; one part alone: make lint, make imports, make tests, make notebooks
# make exercises writes the notebooks of exercises and solutions anew, from the files in solutions/
# make exhaustive  the tests that take too long for every time: whole campaigns, all sizes, scratch notebooks
# make processors  notebooks and tests as other processors would compute them, with 1 and 2 threads; takes an hour
# make smallest    of that, what .ci/run adds to make test: the fewest instructions, and only what depends on them
# make kernels  adds Triton, which make test does, too: for the cells of chapter 10b in which you write a kernel
# make compatibility TORCH=2.15.0    runs the tests that touch torch most, with another torch
# make systems  installs DeepSpeed, Megatron-core, Accelerate in .venv-systems, and holds their steps to ours
# make compilers  installs llvmlite and JAX in .venv-compilers, and tests the code that is generated for LLVM and Triton
# make dist    a wheel and a source distribution, with the course in them, in dist/
# make gpu     runs what needs GPUs, on those of this machine, and writes a report
# make architecture  writes ARCHITECTURE.md anew, from the first sentence of each file
# make site    writes the course as web pages into build/site, and looks at them with Chromium where there is one

# The Python that makes the environment, 3.11 or later: make lab PYTHON=python3.12
PYTHON ?= python3
# What JupyterLab is told besides: make lab OPTIONS="--no-browser --port 9999"
OPTIONS ?=
# Where your copy is, if not here: make lab COURSE=$HOME/course
COURSE ?= course

VENV = .venv
# With the bytecode of what is imported kept, whatever is set outside: each process would compile it anew
IN_VENV = PYTHONDONTWRITEBYTECODE= PATH="$(CURDIR)/$(VENV)/bin:$$PATH"
# A worker for each core, so one thread for each: more would wait for one another
PYTEST = OMP_NUM_THREADS=1 $(IN_VENV) pytest -q --tb=short --color=no -n auto --maxprocesses 4 \
	--dist loadscope --no-loadscope-reorder
NOTEBOOKS = --nbval notebooks site/index.ipynb solutions exercises
TOUCHING_TORCH = simulator collectives data_parallel zero pipeline_parallel
# For Linux without a working NVIDIA driver: PyTorch's build without CUDA, 0.2 GB instead of 3. Whoever has told pip where
# packages are gets them from there; if this does not work, the next line of the recipe installs PyPI's build
WITHOUT_CUDA = test `uname` != Linux || nvidia-smi || $(IN_VENV) pip config list | grep -E "index|find-links" || \
	$(IN_VENV) pip install --progress-bar off --retries 1 -c constraints.txt --no-deps \
	--index-url https://download.pytorch.org/whl/cpu torch
AS_ROOT = $(shell test `id -u` -ne 0 || echo --allow-root)

# $(call step,name,what it does,command): one line that ends with the last of the log, or else the log's end.
define step
@mkdir -p $(VENV)/logs; log=$(VENV)/logs/$(1).log; printf '%s' "$(2) (log: $$log) ... "; \
if { $(3); } >$$log 2>&1; then tail -n 1 $$log; \
else echo failed; tail -n 20 $$log; echo "$(2): failed. The whole log is in $$log"; exit 1; fi
endef

.PHONY: lab course test exercises exhaustive lint imports tests notebooks processors smallest compatibility systems compilers kernels gpu \
	dist architecture site

lab: course
	@echo "Opening JupyterLab on $(COURSE)/notebooks/00_start_here.ipynb; its log follows, Ctrl-C twice stops it"
	@cd "$(COURSE)" && $(IN_VENV) jupyter lab --config="$(CURDIR)/jupyter_lab_config.py" $(AS_ROOT) $(OPTIONS)

course: .venv/made
	@$(IN_VENV) python -m tinydist copy-course "$(COURSE)"

# Notebooks take longest, so they come first
test: lint imports kernels
	$(call step,tests,Running the notebooks and the tests,$(PYTEST) $(NOTEBOOKS) tests)
	@$(IN_VENV) python -c 'import triton' 2>/dev/null || echo 'Triton is for Linux: its kernels were not tested'

lint: .venv/made
	$(call step,lint,Reading the code with ruff,$(IN_VENV) ruff check && $(IN_VENV) ruff format --check)

imports: .venv/made
	$(call step,imports,Checking the import rule,$(IN_VENV) lint-imports)

tests: kernels
	$(call step,tests,Running the tests,$(PYTEST) tests)

exhaustive: kernels
	$(call step,exhaustive,Running the tests that take long,$(PYTEST) -m "exhaustive or hypothesis" \
	--hypothesis-profile exhaustive -o faulthandler_timeout=0 tests)

notebooks: kernels
	$(call step,notebooks,Running the notebooks and comparing their outputs,$(PYTEST) $(NOTEBOOKS))

processors: kernels
	@$(IN_VENV) python tests/processors.py

smallest: kernels
	@$(IN_VENV) python tests/processors.py --smallest

# The notebooks of exercises/ and solutions/, from the files of the exercises
exercises: .venv/made
	$(call step,exercises,Writing the notebooks of exercises,$(IN_VENV) python -m tinydist.syllabus.notebooks)

gpu: .venv/made
	@$(IN_VENV) python -m gpu build/gpu

# Every file of the library with its first sentence, in ARCHITECTURE.md
architecture: .venv/made
	@$(IN_VENV) python site/architecture.py

# What explorers show is drawn once, and again when their notebook or the library changes
site: .venv/site
	$(call step,explorers,Drawing what explorers show,$(IN_VENV) python site/explorers.py)
	$(call step,site,Writing the pages,$(IN_VENV) sphinx-build -W --keep-going -q -d build/site_read site build/site && \
	echo "open build/site/index.html")
	$(call step,pages,Looking at the pages,$(PYTEST) --dist load -m site tests/test_site_in_browser.py)

.venv/made: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "tinydist needs Python 3.11 or later; \
	$(PYTHON) is " + sys.version.split()[0] + ". Try: make PYTHON=python3.12 $(MAKECMDGOALS)")'
	$(call step,install,Making the environment in .venv,$(PYTHON) -m venv .venv && { $(WITHOUT_CUDA); \
	$(IN_VENV) pip install --progress-bar off -c constraints.txt -e ".[test]"; } && echo done)
	@touch $@

# What make lab goes without: torch's builds with CUDA bring Triton, the others do not, and it takes 0.7 GB
kernels: .venv/kernels
.venv/kernels: .venv/made
	$(call step,kernels,Adding Triton where there is one,$(IN_VENV) pip install --progress-bar off -c constraints.txt \
	-e ".[kernels]" && echo done)
	@touch $@

# From what is committed or new, by way of the source distribution; in an environment of its own
dist: .venv-dist/made
	@rm -rf dist
	$(call step,dist,Building the wheel and the source distribution,PATH="$(CURDIR)/.venv-dist/bin:$$PATH"; \
	python -m build && twine check --strict dist/*)

.venv-dist/made:
	@mkdir -p $(VENV)/logs
	$(call step,dist-install,Making the environment that builds,$(PYTHON) -m venv .venv-dist && \
	.venv-dist/bin/pip install --progress-bar off build==1.6.1 twine==7.0.0 && echo done)
	@touch $@

# Sphinx and what it needs: only the site does
.venv/site: .venv/made
	$(call step,site-install,Adding Sphinx,$(IN_VENV) pip install --progress-bar off -c constraints.txt -e ".[site]" \
	&& echo done)
	@touch $@

compatibility: VENV = .venv-torch-$(TORCH)
compatibility:
	@test -n "$(TORCH)" || { echo "Which torch? For example: make compatibility TORCH=2.15.0"; exit 1; }
	@# Without the pins of torch, of its Triton, and of setuptools, which torch 2.12 wants older
	$(call step,install,Making the environment in $(VENV),$(PYTHON) -m venv $(VENV) && \
	grep -vE "^(torch|triton|setuptools)==" constraints.txt >$(VENV)/constraints.txt && \
	$(IN_VENV) pip install --progress-bar off -c $(VENV)/constraints.txt -e ".[test]" "torch==$(TORCH)" && echo done)
	$(call step,tests,Running the tests with torch $(TORCH),$(PYTEST) $(addprefix tests/,$(TOUCHING_TORCH)))

systems .venv-systems/made: VENV = .venv-systems
systems: .venv-systems/made
	$(call step,tests,Running the tests of other systems,$(PYTEST) tests/systems)

.venv-systems/made: EXTRAS = test,systems
# Each in a folder of its own, from which one test imports it
.venv-systems/made: BESIDE = $(IN_VENV) pip install --progress-bar off --no-deps --upgrade --target .venv-systems
.venv-systems/made: pyproject.toml constraints.txt
	$(call step,install,Making the environment in .venv-systems,$(PYTHON) -m venv .venv-systems && \
	$(IN_VENV) pip install --progress-bar off -c constraints.txt -e ".[$(EXTRAS)]" && echo done)
	$(call step,deepspeed,Adding the last DeepSpeed with 1-bit optimizers,$(BESIDE)/deepspeed-0.19.6 deepspeed==0.19.6 && echo done)
	$(call step,timm,Adding timm for its LAMB,$(BESIDE)/timm-1.0.31 timm==1.0.31 && echo done)
	@touch $@

compilers .venv-compilers/made: VENV = .venv-compilers
compilers: .venv-compilers/made
	$(call step,tests,Running the tests of generated code,$(PYTEST) tests/compilers tests/quantization)

.venv-compilers/made: EXTRAS = test,compilers,kernels
.venv-compilers/made: pyproject.toml constraints.txt
	$(call step,install,Making the environment in .venv-compilers,$(PYTHON) -m venv .venv-compilers && { $(WITHOUT_CUDA); \
	$(IN_VENV) pip install --progress-bar off -c constraints.txt -e ".[$(EXTRAS)]"; } && echo done)
	@touch $@
