# A menu. meson and ninja build, scripts/ do the work; there is no compile rule here.
.PHONY: help setup build test seeds demo sim bench bench-trainer bench-cluster soak validate check-aarch64 check-cuda check-tokenizer check-tales cuda fuzz mutants cov lint format ci clean
SEEDS ?= 1..1000
T ?= 60
N ?= 20
BUILD_SETUP = @scripts/setup build
ALL_SETUP = @scripts/setup all

help:
	@echo 'make build             the program, build/pelago'
	@echo 'make test              set up, build, run every quick test'
	@echo 'make seeds N=20        run the quick tests again and again with seeds nobody has tried'
	@echo 'make demo              four learners train one model; one is killed and comes back; about a minute'
	@echo 'make sim SEEDS=1..1000 simulate these seeds; SEED=7 one of them with its trace'
	@echo 'make bench             speed and scale of the simulator, as JSON'
	@echo 'make bench-trainer     race PyTorch (PYTHON=... has it) on two cores, memory, sampling, tokenizer; ONLY=14m,fp32 some rows'
	@echo 'make bench-cluster     what a real cluster shows: waiting, kills, merges, links (ROWS=kills,wan some rows, SHORT=1)'
	@echo 'make soak              the long forms: 30 minutes of kills, 1,000 kills of the syncer, 2,000 faults, partitions'
	@echo 'make validate          the same faults on real processes and in the simulator, side by side'
	@echo 'make cuda              the back end for NVIDIA GPUs, build/libpelago_cuda.so (needs nvcc)'
	@echo 'make check-cuda        its operations and whole models against the others, on a machine with a GPU'
	@echo 'make check-aarch64     on aarch64, under qemu: the same bits of merges and codecs, every operation of the trainer'
	@echo 'make check-tokenizer   the tokens of all of ../shared/data against Hugging Face tokenizers; some ten minutes'
	@echo 'make check-tales       does a better model get a better loss on the tales? an hour and a half'
	@echo 'make fuzz T=60         fuzz each target for T seconds'
	@echo 'make mutants           prove that the simulator finds every planted fault'
	@echo 'make cov               branch coverage of wire, core and store'
	@echo 'make lint              layers, purity, format, clang-tidy, shellcheck, length table'
	@echo 'make format            rewrite the sources as clang-format wants them'
	@echo 'make ci                all of it, as CI does (about half an hour)'
	@echo 'make setup             install what all of these need (Debian, Ubuntu)'
	@echo 'make clean             remove every build folder'

setup:
	$(ALL_SETUP)

build:
	$(BUILD_SETUP)
	@scripts/build.sh release

test:
	$(BUILD_SETUP)
	@scripts/test.sh release
	@scripts/sim.sh recorded
	@scripts/sim.sh 1..40

seeds:
	$(BUILD_SETUP)
	@FRESH=$(N) scripts/test.sh release

demo: build
	@scripts/demo.sh

sim: build
	@$(if $(SEED),build/pelago sim --seed $(SEED) --trace,scripts/sim.sh $(SEEDS))

bench: build
	@build/pelago sim --bench

bench-trainer: build
	@scripts/bench_trainer.sh $(if $(ONLY),--only $(ONLY))

bench-cluster: build
	@scripts/setup bench
	@scripts/bench_cluster.sh $(if $(SHORT),--short) $(if $(ROWS),--row $(ROWS))

soak: build
	@scripts/bench_cluster.sh --row kills,crowd,syncer-kills,storm,partition,stale,edge,lines

validate: build
	@bench/validate.py $(if $(SHORT),--short)

cuda: build
	@scripts/cuda.sh

check-cuda: cuda
	@scripts/check_cuda.sh

check-aarch64:
	@scripts/setup bench
	@scripts/check_aarch64.sh

check-tokenizer: build
	$(ALL_SETUP)
	@tests/e2e/tokenizer_vs_hf.py

check-tales:
	$(BUILD_SETUP)
	@scripts/check_tales.sh

fuzz:
	$(ALL_SETUP)
	@scripts/fuzz.sh $(T)

mutants:
	$(BUILD_SETUP)
	@scripts/mutants.sh

cov:
	$(ALL_SETUP)
	@scripts/cov.sh

lint:
	$(ALL_SETUP)
	@scripts/lint.sh

format:
	$(ALL_SETUP)
	@find src tests bench \( -name '*.[ch]' -o -name '*.inc' \) ! -name unicode.inc | xargs clang-format -i

ci:
	@.ci/run

clean:
	rm -rf build build-*
