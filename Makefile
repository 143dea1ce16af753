# build  one static binary into bin/
# test   installs what the tests need (test/install), then runs them all
# lint   gofmt, go vet for linux and darwin, staticcheck, govulncheck
# bench  the benchmarks, also against what a user would pick instead: that table goes to BENCH_JSON too
# prove  what is too long for test; writes PROOF.md

SHELL       := /bin/bash
.SHELLFLAGS := -euo pipefail -c

STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
GOVULNCHECK := golang.org/x/vuln/cmd/govulncheck@v1.9.0
GOTESTSUM   := gotest.tools/gotestsum@v1.13.0

BIN := $(CURDIR)/bin/mcp-sandbox

# What test/install prints are assignments: where the installed things are.
installed = vars=$$(bash test/install $(needs)) && eval "$$vars" && $(MAKE) --no-print-directory build && export MCP_SANDBOX_REQUIRE=1 MCP_SANDBOX_TEST_BIN='$(BIN)'

.PHONY: build test lint bench prove clean

build:
	CGO_ENABLED=0 go build -trimpath -o '$(BIN)' ./cmd/mcp-sandbox

# The race detector needs cgo; the tests of walls run the static binary. What fails is run
# once more, when nothing else runs, and fails for good if it does again: some tests count on a
# watchdog's pace, which a busy machine takes away. At most three are; a data race is none. The
# run names them at its end. What takes longest begins first.
test:
	@$(installed); again=$$(mktemp); trap 'rm -f "$$again"' EXIT; \
	CGO_ENABLED=1 go run $(GOTESTSUM) --format pkgname --hide-summary skipped --packages "./srt ./cmd/... ./..." \
	  --rerun-fails=1 --rerun-fails-max-failures=3 --rerun-fails-run-root-test --rerun-fails-abort-on-data-race --rerun-fails-report "$$again" \
	  -- -race -shuffle=on -timeout 25m; \
	if [ -s "$$again" ]; then echo 'test: passed only when run again:'; cat "$$again"; fi

lint:
	@unformatted=$$(gofmt -s -l .); if [ -n "$$unformatted" ]; then echo "lint: run gofmt -s -w on:" $$unformatted >&2; exit 1; fi
	GOOS=linux CGO_ENABLED=0 go vet ./...
	GOOS=darwin CGO_ENABLED=0 go vet ./...
	go run $(STATICCHECK) ./...
	@echo 'go run $(GOVULNCHECK) ./...'; \
	if out=$$(go run $(GOVULNCHECK) ./... 2>&1); then printf '%s\n' "$$out"; \
	elif grep -q 'exit status 3' <<<"$$out"; then printf '%s\n' "$$out" >&2; exit 1; \
	elif grep -qE 'dial tcp|no such host|i/o timeout|connection refused|Proxy|TLS handshake' <<<"$$out"; then echo 'lint: govulncheck skipped: database not reachable' >&2; \
	else printf '%s\n' "$$out" >&2; exit 1; fi

bench: needs := bench
bench: BENCH_JSON ?= bin/bench.json
bench:
	@$(installed); export MCP_SANDBOX_TEST_BENCH_JSON='$(abspath $(BENCH_JSON))'; \
	go test -run '^$$' -bench . -benchmem -timeout 60m ./...

# Each TestProve… prints its figures in lines that begin with "PROOF: ".
prove:
	@$(installed); log=$$(mktemp); trap 'rm -f "$$log"' EXIT; \
	MCP_SANDBOX_PROVE=1 go test -count=1 -run '^TestProve' -v -timeout 80m ./... 2>&1 | tee "$$log"; \
	figures=$$(sed -n 's/^.*PROOF: /- /p' "$$log"); \
	if [ -z "$$figures" ]; then echo 'prove: no test printed a figure; PROOF.md is left as it was' >&2; exit 1; fi; \
	commit=$$(git describe --always --dirty --abbrev=12 2>/dev/null || echo unknown); \
	{ printf '# Proof\n\nWritten by `make prove`: fuzzing, kills and soak, too long for `make test`.\n\n'; \
	  printf -- '- Date: %s\n- Commit: %s\n- Machine: %s, %s cores, %s\n\n' "$$(date -u +%Y-%m-%d)" "$$commit" "$$(uname -srm)" "$$(getconf _NPROCESSORS_ONLN)" "$$(go env GOVERSION)"; \
	  printf '## Figures\n\n%s\n' "$$figures"; } >PROOF.md; \
	echo 'prove: wrote PROOF.md' >&2

clean:
	rm -rf bin
