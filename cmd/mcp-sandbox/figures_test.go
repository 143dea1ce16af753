package main_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

// figure is what was measured of one contestant.
type figure struct {
	Measure    string  `json:"measure"`
	Unit       string  `json:"unit"`
	Contestant string  `json:"contestant"`
	Median     float64 `json:"median"`
	P99        float64 `json:"p99"`
	N          int     `json:"n"`              // 0 = was not measured
	Note       string  `json:"note,omitempty"` // what the figure does not say
}

// figures are a table: a row for each measure and a column for each contestant, both
// in the order of their appearance.
type figures []figure

// perSecond is the unit of which more is better.
const perSecond = "1/s"

// add takes the median of values and what 99 % of them are no worse than: below a
// hundred values that is the worst.
func (f *figures) add(measure, unit, contestant, note string, values ...float64) {
	row := figure{Measure: measure, Unit: unit, Contestant: contestant, N: len(values), Note: note}
	if len(values) > 0 {
		row.Median, row.P99 = percentile(values, 50), percentile(values, 99)
		if unit == perSecond {
			row.P99 = percentile(values, 1)
		}
	}
	*f = append(*f, row)
}

// percentile is the smallest of values that p percent of them do not exceed.
func percentile(values []float64, p int) float64 {
	v := slices.Sorted(slices.Values(values))
	return v[max(1, (len(v)*p+99)/100)-1]
}

// String is the table in Markdown: median · 99th percentile (number of values), and
// after it how many times the first column's median it is.
func (f figures) String() string {
	var measures, contestants []string
	cells := map[[2]string]figure{}
	for _, c := range f {
		measure := c.Measure + ", " + c.Unit
		if !slices.Contains(measures, measure) {
			measures = append(measures, measure)
		}
		if !slices.Contains(contestants, c.Contestant) {
			contestants = append(contestants, c.Contestant)
		}
		cells[[2]string{measure, c.Contestant}] = c
	}
	rows := [][]string{append([]string{""}, contestants...)}
	for _, m := range measures {
		row := []string{m}
		for _, name := range contestants {
			row = append(row, cells[[2]string{m, name}].cell(cells[[2]string{m, contestants[0]}]))
		}
		rows = append(rows, row)
	}
	return aligned(rows)
}

func (f figure) cell(first figure) string {
	if f.N == 0 {
		return f.Note
	}
	s := short(f.Median, 3)
	if f.N > 1 {
		s += " · " + short(f.P99, 3)
	}
	s += fmt.Sprintf(" (%d)", f.N)
	if f != first && first.N > 0 && first.Median > 0 && f.Median > 0 {
		s += " ×" + short(f.Median/first.Median, 2)
	}
	if f.Note != "" {
		s += ", " + f.Note
	}
	return s
}

// short has so many digits that count, or more before the point, and three after it at
// most.
func short(v float64, digits int) string {
	if v == 0 {
		return "0"
	}
	return fmt.Sprintf("%.*f", min(3, max(0, digits-1-int(math.Floor(math.Log10(math.Abs(v)))))), v)
}

func aligned(rows [][]string) string {
	width := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			width[i] = max(width[i], utf8.RuneCountInString(cell))
		}
	}
	var b strings.Builder
	for n, row := range rows {
		for i, cell := range row {
			fmt.Fprintf(&b, "| %s%s ", cell, strings.Repeat(" ", width[i]-utf8.RuneCountInString(cell)))
		}
		b.WriteString("|\n")
		if n == 0 {
			for _, w := range width {
				b.WriteString("| " + strings.Repeat("-", w) + " ")
			}
			b.WriteString("|\n")
		}
	}
	return b.String()
}

func TestFigures(t *testing.T) {
	var hundred []float64
	for i := range 100 {
		hundred = append(hundred, float64(100-i))
	}
	var f figures
	f.add("call", "ms", "ours", "", 2, 1, 3)
	f.add("call", "ms", "theirs", "", hundred...)
	f.add("recovery", "ms", "ours", "", 12.344)
	f.add("recovery", "ms", "theirs", "variables lost")
	f.add("sessions", perSecond, "ours", "", hundred...)
	want := `|               | ours              | theirs                |
| ------------- | ----------------- | --------------------- |
| call, ms      | 2.00 · 3.00 (3)   | 50.0 · 99.0 (100) ×25 |
| recovery, ms  | 12.3 (1)          | variables lost        |
| sessions, 1/s | 50.0 · 1.00 (100) |                       |
`
	if diff := cmp.Diff(want, f.String()); diff != "" {
		t.Error(diff)
	}
}
