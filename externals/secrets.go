package externals

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"net/url"
	"slices"
	"strings"
)

// redacted stands where a secret was.
const redacted = "[redacted]"

// shortest is the length of a secret, in bytes, below which it is left alone:
// it would be found everywhere, and is none.
const shortest = 6

// redactor takes a server's secrets out of texts: as they are, and in the forms
// in which servers repeat what they were given.
type redactor struct {
	replace *strings.Replacer // nil = there is none
}

func newRedactor(secrets []string) redactor {
	var forms []string
	add := func(s string) {
		s = strings.TrimSpace(s)
		if len(s) < shortest {
			return
		}
		forms = append(forms, s, url.QueryEscape(s), url.PathEscape(s),
			base64.StdEncoding.EncodeToString([]byte(s)), base64.URLEncoding.EncodeToString([]byte(s)),
			base64.RawStdEncoding.EncodeToString([]byte(s)), base64.RawURLEncoding.EncodeToString([]byte(s)))
		if quoted, err := json.Marshal(s); err == nil {
			forms = append(forms, string(quoted[1:len(quoted)-1]))
		}
	}
	for _, s := range secrets {
		add(s)
		words := strings.Fields(s)
		if len(words) < 2 {
			continue
		}
		for _, w := range words { // "Bearer x": x alone is one too
			if len(w) >= 12 {
				add(w)
			}
		}
		if strings.EqualFold(words[0], "basic") {
			if plain, err := base64.StdEncoding.DecodeString(words[1]); err == nil {
				add(string(plain))
				_, password, _ := strings.Cut(string(plain), ":")
				add(password)
			}
		}
	}
	slices.SortFunc(forms, func(a, b string) int { return len(b) - len(a) }) // what holds another is replaced first
	forms = slices.Compact(forms)
	if len(forms) == 0 {
		return redactor{}
	}
	var pairs []string
	for _, f := range forms {
		pairs = append(pairs, f, redacted)
	}
	return redactor{strings.NewReplacer(pairs...)}
}

func (r redactor) text(s string) string {
	if r.replace == nil {
		return s
	}
	return r.replace.Replace(s)
}

// json is data without the secrets, or an error where they were part of its form.
func (r redactor) json(data json.RawMessage) (json.RawMessage, bool) {
	if r.replace == nil || len(data) == 0 {
		return data, true
	}
	clean := json.RawMessage(r.replace.Replace(string(r.unescape(data))))
	return clean, json.Valid(clean)
}

// unescape is data without the secrets in strings some of whose characters are written
// in other ways than ours: \/, or \u for what is not ASCII.
func (r redactor) unescape(data []byte) []byte {
	var clean []byte
	for {
		begin := bytes.IndexByte(data, '"')
		if begin < 0 {
			return append(clean, data...)
		}
		end, escaped := begin+1, false
		for end < len(data) && data[end] != '"' {
			if data[end] == '\\' {
				escaped = true
				end++
			}
			end++
		}
		end = min(end+1, len(data))
		clean = append(clean, data[:begin]...)
		clean = append(clean, r.quoted(data[begin:end], escaped)...)
		data = data[end:]
	}
}

// quoted is a string of JSON, as it was if no secret is in it.
func (r redactor) quoted(data []byte, escaped bool) []byte {
	var s string
	if !escaped || json.Unmarshal(data, &s) != nil {
		return data
	}
	if clean := r.text(s); clean != s {
		if again, err := json.Marshal(clean); err == nil {
			return again
		}
	}
	return data
}

func (r redactor) bytes(data []byte) []byte {
	if r.replace == nil {
		return data
	}
	return []byte(r.replace.Replace(string(data)))
}
