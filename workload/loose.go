package workload

import (
	"bytes"
	"encoding/json"
	"time"
)

// loose is a field of the platform's that may be missing, null, or of another
// type than it was when this was written: then it is absent, and the rest of
// the answer counts.
type loose[T any] struct {
	v  T
	ok bool
}

// UnmarshalJSON implements json.Unmarshaler; it never fails.
func (l *loose[T]) UnmarshalJSON(b []byte) error {
	var v T
	*l = loose[T]{}
	if !bytes.Equal(b, []byte("null")) && json.Unmarshal(b, &v) == nil {
		*l = loose[T]{v, true}
	}
	return nil
}

// list is the elements that are of T.
func list[T any](l loose[[]loose[T]]) []T {
	var all []T
	for _, e := range l.v {
		if e.ok {
			all = append(all, e.v)
		}
	}
	return all
}

// parseTime reads what the platform writes: RFC 3339, or Python's str of a
// datetime. Zero = none of these.
func parseTime(s string) time.Time {
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02 15:04:05.999999999Z07:00", "2006-01-02 15:04:05.999999999"} {
		if t, err := time.Parse(layout, s); err == nil {
			return t.UTC()
		}
	}
	return time.Time{}
}
