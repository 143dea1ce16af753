package workload

import (
	"encoding/json"
	"errors"
	"strings"
	"time"
)

// row is one record of a workload's logs.
type row struct {
	Time       time.Time
	Level      string // upper case; "" = not told
	Message    string
	Stacktrace string
}

// key tells rows apart as far as anything does: they have no id.
func (r row) key() string {
	return r.Time.Format(time.RFC3339Nano) + "\x00" + r.Level + "\x00" + r.Message
}

// platform reports whether the platform wrote the row, and not the container.
func (r row) platform() bool {
	return strings.HasPrefix(r.Message, "lrs-")
}

// logPage is one page of them, newest first as they come.
type logPage struct {
	rows  []row
	count int // of what was on the page, readable or not
	next  string
}

// UnmarshalJSON implements json.Unmarshaler. Data that is no list makes a page
// that is none: what a gateway says in place of the logs is not their end.
func (p *logPage) UnmarshalJSON(b []byte) error {
	var fields struct {
		Data json.RawMessage
		Next loose[string]
	}
	if err := json.Unmarshal(b, &fields); err != nil {
		return err
	}
	var rows []loose[struct{ Timestamp, Level, Message, Stacktrace loose[string] }]
	if len(fields.Data) == 0 || fields.Data[0] != '[' {
		return errors.New("data is no list")
	}
	if err := json.Unmarshal(fields.Data, &rows); err != nil {
		return err
	}
	*p = logPage{count: len(rows), next: fields.Next.v}
	for _, r := range rows {
		if r.ok {
			p.rows = append(p.rows, row{parseTime(r.v.Timestamp.v), strings.ToUpper(r.v.Level.v), r.v.Message.v, r.v.Stacktrace.v})
		}
	}
	return nil
}
