# The two commands are `make race` and `make test`; each does all set-up first. `make help` lists the rest.
SHELL := bash
.DEFAULT_GOAL := help
.PHONY: help race test test-long guest-test guest-cuts setup image lint audit lock fuzz clean clean-all

help: ## what can be made
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

race: setup ## set up, run the main job, print its report (RACE_ARGS: further flags for Rally)
	@scripts/race.sh

test: export FOR_TESTS = yes
test: setup ## set up, run the unit tests and the system tests (TEST_ARGS: further flags for pytest)
	@scripts/test.sh

test-long: export TEST_MARKS = system
test-long: test ## make test, and the tests of minutes that go the way of shorter ones

guest-test: setup ## boot Debian guests under QEMU, run tests/guest in them, cut their power (GUEST_TESTS: which; CUTS)
	@scripts/guest/test.sh

guest-cuts: export GUEST_TESTS = tests/guest/host_power.py
guest-cuts: export CUTS ?= 30
guest-cuts: guest-test ## only cut the power of such a guest, 30 times (CUTS)

setup: ## packages, Docker engine, Compose, .venv, Elasticsearch image; safe to run again
	@scripts/setup.sh

image: ## build the local Elasticsearch image again, for machines that reach no registry
	compose/image/build.sh

lint: setup ## ruff, mypy, import-linter, bandit, pip check
	@PATH="$(CURDIR)/.venv/bin:$$PATH" scripts/lint.sh

audit: setup ## look up known vulnerabilities of all packages; needs the package index's service for that
	@scripts/audit.sh

lock: setup ## write requirements.txt anew: the newest packages that fit setup.cfg, with hashes of their files
	@scripts/lock.sh

fuzz: setup ## try tens of thousands of changed inputs (FUZZ_INPUTS of each kind, 4000 by default); ten minutes
	@FUZZ_INPUTS="$${FUZZ_INPUTS:-4000}" FUZZ_LINES="$${FUZZ_LINES:-1000}" .venv/bin/python -m pytest -n 2 tests/fuzz

clean: ## end what killed sessions left behind; remove test and lint caches
	@scripts/clean.sh

clean-all: ## clean, and remove .venv, the logs and an engine that set-up started; sessions and images stay
	@scripts/clean.sh all
