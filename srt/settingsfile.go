package srt

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
)

// MaxSettings bounds a settings file, in bytes.
const MaxSettings = 1 << 20

// ParseSettings reads a settings file of Anthropic's Sandbox Runtime, as of its version
// 0.0.83. home is what "~" stands for, dir is where relative paths begin: both absolute. All
// faults are returned together, each with the path of its key. A key that is not known is
// one: to pass it over could be to pass over what keeps code in.
func ParseSettings(data []byte, home, dir string) (Settings, error) {
	if len(data) > MaxSettings {
		return Settings{}, fmt.Errorf("settings of more than %s", size(MaxSettings))
	}
	r := &settingsReader{s: Settings{given: true, home: home, dir: dir}}
	if !json.Valid(data) {
		var v any
		err := json.Unmarshal(data, &v)
		return Settings{}, fmt.Errorf("no JSON: %w", err)
	}
	r.object("", data, topKeys)
	for _, key := range requiredKeys {
		if !slices.Contains(r.seen, key) {
			r.fault(key, "the key is missing")
		}
	}
	if err := errors.Join(r.faults...); err != nil {
		return Settings{}, err
	}
	return r.s, nil
}

// requiredKeys must be there, as in the runtime itself.
var requiredKeys = []string{
	"network", "network.allowedDomains", "network.deniedDomains",
	"filesystem", "filesystem.denyRead", "filesystem.allowWrite", "filesystem.denyWrite",
}

// settingsReader gathers what a file says, and all that is wrong with it.
type settingsReader struct {
	s      Settings
	faults []error
	seen   []string // paths of keys
}

// settingsKey reads the value of one key.
type settingsKey func(r *settingsReader, key string, raw json.RawMessage)

func (r *settingsReader) fault(key, format string, a ...any) {
	if key == "" {
		key = "the file"
	}
	r.faults = append(r.faults, fmt.Errorf("%.300s: %w", key, fmt.Errorf(format, a...)))
}

// asks notes what only some walls can give; none: what no wall gives.
func (r *settingsReader) asks(key, why string, walls ...string) {
	r.s.asks = append(r.s.asks, ask{key: key, why: why, walls: walls})
}

// object reads an object with these keys. A key that stands there twice is a fault: which of
// the two holds would be anybody's guess.
func (r *settingsReader) object(at string, raw json.RawMessage, keys map[string]settingsKey) {
	d := json.NewDecoder(bytes.NewReader(raw))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		r.fault(at, "expected an object")
		return
	}
	for d.More() {
		t, err := d.Token()
		name, ok := t.(string)
		if err != nil || !ok {
			r.fault(at, "expected a key")
			return
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			r.fault(at, "%w", err)
			return
		}
		key := name
		if at != "" {
			key = at + "." + name
		}
		switch read, known := keys[name]; {
		case slices.Contains(r.seen, key):
			r.fault(key, "the key stands there twice")
		case !known:
			r.fault(key, "no such key is known")
		default:
			r.seen = append(r.seen, key)
			read(r, key, value)
		}
	}
}

// strict decodes a value of exactly the type of into.
func (r *settingsReader) strict(key string, raw json.RawMessage, into any, what string) bool {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	err := d.Decode(into)
	if err == nil {
		if _, e := d.Token(); !errors.Is(e, io.EOF) {
			err = errors.New("more follows")
		}
	}
	if err != nil || bytes.Equal(bytes.TrimSpace(raw), []byte("null")) {
		r.fault(key, "expected %s", what)
		return false
	}
	return true
}

// list reads a list, value by value.
func (r *settingsReader) list(key string, raw json.RawMessage, each func(key string, raw json.RawMessage)) {
	var values []json.RawMessage
	if r.strict(key, raw, &values, "a list") {
		for i, v := range values {
			each(key+"["+strconv.Itoa(i)+"]", v)
		}
	}
}

// strings reads a list of strings, none of them empty.
func (r *settingsReader) strings(key string, raw json.RawMessage) (all []string) {
	r.list(key, raw, func(key string, raw json.RawMessage) {
		var s string
		if r.strict(key, raw, &s, "a string") {
			if s == "" {
				r.fault(key, "is empty")
			}
			all = append(all, s)
		}
	})
	return all
}

// paths reads a list of paths: a string, or {"path": …, "literal": true}.
func (r *settingsReader) paths(key string, raw json.RawMessage) (all []settingsPath) {
	r.list(key, raw, func(key string, raw json.RawMessage) {
		p := settingsPath{key: key}
		if len(raw) > 0 && raw[0] == '{' {
			r.object(key, raw, map[string]settingsKey{
				"path": func(r *settingsReader, key string, raw json.RawMessage) { r.strict(key, raw, &p.text, "a string") },
				"literal": func(r *settingsReader, key string, raw json.RawMessage) {
					if r.strict(key, raw, &p.literal, "true") && !p.literal {
						r.fault(key, "expected true")
					}
				},
			})
			if !p.literal {
				r.fault(key, `expected a path, or {"path": "…", "literal": true}`)
			}
		} else if !r.strict(key, raw, &p.text, `a path, or {"path": "…", "literal": true}`) {
			return
		}
		if err := r.s.check(p); err != nil {
			r.fault(key, "%w", err)
			return
		}
		all = append(all, p)
	})
	return all
}
