package main_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A real analyst's job behind the wall, with the packages that people use, from
// a venv given by --python.
func TestAnalyst(t *testing.T) {
	python, server := installed(t, "MCP_SANDBOX_TEST_ANALYST_PYTHON"), binary(t)
	job, err := filepath.Abs("../../test/analyst/job.py")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	var orders, customers strings.Builder
	orders.WriteString("date,customer,units,price\n")
	for i := range 240 {
		fmt.Fprintf(&orders, "2025-%02d-%02d,c%d,%d,%.2f\n", i%12+1, i%28+1, i%7, i%5+1, float64(i*37%100)/4+1)
	}
	customers.WriteString("customer,country\n")
	for i := range 7 {
		fmt.Fprintf(&customers, "c%d,%s\n", i, []string{"DE", "FR", "NL"}[i%3])
	}
	for name, text := range map[string]string{"orders.csv": orders.String(), "customers.csv": customers.String()} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}

	out := run(t, dir, nil, server, "exec", "--python", python, "--timeout", "100s", "-f", job)
	var line string
	for l := range strings.Lines(out) {
		if strings.HasPrefix(l, "{") {
			line = l
		}
	}
	var seen map[string]any
	if err := json.Unmarshal([]byte(line), &seen); err != nil {
		t.Fatalf("%v in:\n%s", err, out)
	}
	// What the same job gives outside any wall.
	countries := map[string]any{"DE": 4199.5, "FR": 2955.25, "NL": 2500.25}
	want := map[string]any{
		"rows":           240.0,
		"by_country":     countries,
		"pivot":          []any{12.0, 3.0},
		"mean_units":     3.0,
		"slope":          4.912587,
		"png":            true,
		"threads":        8000.0,
		"pool":           328350.0,
		"sqlite":         countries,
		"subprocess":     "42",
		"polars":         countries,
		"parquet":        true,
		"polars_parquet": 240.0,
		"scipy":          []any{1.0, 1.0, 1.0},
		"sklearn":        []any{3.0, 2.0, 1.0},
		"pillow":         []any{"JPEG", 32.0, 16.0},
	}
	if diff := cmp.Diff(want, seen); diff != "" {
		t.Errorf("the job's figures (-want +got):\n%s", diff)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 2 {
		t.Errorf("the folder holds %v, %v; want the two files that were there", left, err)
	}
}

// The README's first command.
func TestSalesExample(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	out := run(t, root, nil, binary(t), "exec", "-f", "examples/sales.py")
	for _, want := range []string{"4125 rows, 37 without units or price left out", "Top products", "1,725,878", "1725877.74", `"best_month":"2025-05"`} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in:\n%s", want, out)
		}
	}
}
