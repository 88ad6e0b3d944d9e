# make demo: set up and run the main job. make test: set up and run every test.
CARGO ?= cargo
MARGAY = target/release/margay

.PHONY: demo test test-long bench bench-doors league flash-peers reproduce docs build wheel site

build:
	$(CARGO) build --release -p margay -p margay-preload

# The Python package as one wheel for Python 3.11 and later: target/wheels/. `pip install .` builds and installs it too.
wheel:
	python3 -m pip wheel --quiet --no-deps --wheel-dir target/wheels .

demo: build
	@mkdir -p out
	@echo; echo "== a disk on flash: format, serve, copy data in and out over NBD, check"
	@rm -f out/demo-flash.img
	$(MARGAY) format out/demo-flash.img --size 24M --pages-per-segment 32
	@scripts/demo-disk.sh $(MARGAY) out/demo-flash.img
	$(MARGAY) check out/demo-flash.img
	@echo; echo "== a file system on flash: format, mount, unpack and build a source tree, kill -9 in the middle, check"
	@rm -f out/demo-files.img
	$(MARGAY) fs format out/demo-files.img --size 64M
	@scripts/demo-files.sh $(MARGAY) out/demo-files.img
	@echo; echo "== a sort with its heap on flash: 2 MiB of it in RAM"
	@scripts/demo-vm.sh $(MARGAY)
	@echo; echo "== the schemes of cleaning under a page cache, on the pages that a sort touches"
	$(MARGAY) vm replay samples/sort.vmt.zst --cache 1M
	@echo; echo "== the usual policies on the writes of SQLite (samples/sqlite-messages.mgt), 10 times over"
	$(MARGAY) compare samples/sqlite-messages.mgt --repeat 10 --force --plot out/demo-sqlite.svg
	@echo; echo "== the usual policies on hot and cold data, 90 % of the writes to 10 % of the pages, the 24 MB card of the FMS papers"
	$(MARGAY) compare hot-cold:90/10,poisson=24609375us --until-steady --device intel-series2plus-24mb --force --plot out/demo-hot-cold.svg
	@echo; echo "== how much over-provisioning makes a card last five years, and with which policies"
	$(MARGAY) advise hot-cold:90/10 --device intel-series2plus-24mb --years 5 --per-day 100M
	@echo; echo "== the same engine from Python: pip install . into target/venv, a comparison, a policy in Python"
	@scripts/demo-python.sh
	@echo "plots: out/demo-sqlite.svg out/demo-hot-cold.svg out/demo-python.png"

test:
	scripts/test.sh

# Bounds: 2,000 random histories per property (some minutes), 60 s of fuzzing per target where cargo-fuzz and a
# nightly toolchain are there, the whole FMS study with 8 seeds (half a minute), the MODA and LDA-GC studies, the whole fault campaign (a quarter of an hour), attacks from outside (some minutes),
# raw flash in a guest with six power cuts (up to half an hour), a short run beside UBIFS (a minute).
test-long: test build
	scripts/guest.sh long $(MARGAY)
	scripts/flash-peers.sh smoke $(MARGAY)
	$(CARGO) build --release -p margay-trials
	target/release/margay-trials full
	MARGAY_ATTACK=20 $(CARGO) test -p margay --test attack
	PROPTEST_CASES=2000 $(CARGO) test --release -p margay-ftl -p margay-fs -p margay-hybrid -p margay-policy -p margay-trace -p margay-vm
	$(MARGAY) reproduce fms --force
	$(MARGAY) reproduce moda --force
	$(MARGAY) reproduce lda-gc --force
	scripts/fuzz.sh 60

bench:
	$(CARGO) build --release -p margay-bench
	target/release/margay-bench speed 1 4 16 64 256
	target/release/margay-bench m6
	target/release/margay-bench disk
	target/release/margay-bench paging
	target/release/margay-bench instructions

# Served images and mounted files beside their peers, by turns: on an idle disk, and beside a program that writes and
# syncs. Needs root; installs the peers.
bench-doors: build
	$(CARGO) build --release -p margay-bench
	scripts/bench-doors.py --margay $(MARGAY)
	scripts/bench-doors.py --margay $(MARGAY) --busy
	target/release/margay-bench files $(MARGAY)

reproduce: build
	$(MARGAY) reproduce fms --force
	$(MARGAY) reproduce moda --force
	$(MARGAY) reproduce lda-gc --force

# Every published placement beside the others, as docs/league.md: a quarter of an hour on two cores.
league: build
	python3 scripts/league.py --margay $(MARGAY) --traces ../shared/traces --out out/league

# UBIFS, JFFS2, f2fs and margay on the same simulated chips, into docs/mtd-peers.md: half an hour and more on two cores.
flash-peers: build
	scripts/flash-peers.sh table $(MARGAY)

# The documentation as a site: out/site. Runs the notebooks and draws each policy: a minute the first time.
site:
	scripts/python.sh install
	NO_MKDOCS_2_WARNING=1 target/venv/bin/mkdocs build --strict -f site/mkdocs.yml

# Generated references; a test fails when they are stale.
docs: build
	$(MARGAY) policies --markdown > docs/policies.md
	$(MARGAY) man --force docs/man
