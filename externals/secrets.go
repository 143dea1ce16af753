package externals

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"unicode/utf16"
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
		forms = append(forms, s, url.QueryEscape(s), url.PathEscape(s))
		forms = append(append(forms, encoded(s)...), quoted(s)...)
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

// encoded is what any base64 of a text with s in it must hold, wherever s begins.
func encoded(s string) []string {
	forms := []string{base64.StdEncoding.EncodeToString([]byte(s)), base64.URLEncoding.EncodeToString([]byte(s))}
	for _, e := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		for before := range 3 {
			form := e.EncodeToString(append(make([]byte, before), s...))
			end := len(form)
			if (before+len(s))%3 != 0 {
				end-- // this one depends on what follows
			}
			if form = form[(before*8+5)/6 : end]; len(form) >= shortest {
				forms = append(forms, form)
			}
		}
	}
	return forms
}

// quoted is s as different writers of JSON have it within a string.
func quoted(s string) []string {
	var forms []string
	for _, html := range []bool{true, false} {
		var b bytes.Buffer
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(html)
		if e.Encode(s) != nil {
			continue
		}
		form := strings.TrimSuffix(b.String(), "\n")
		form = form[1 : len(form)-1]
		var ascii strings.Builder
		for _, r := range form {
			if r < 0x80 {
				ascii.WriteRune(r)
				continue
			}
			for _, u := range utf16.AppendRune(nil, r) {
				fmt.Fprintf(&ascii, `\u%04x`, u)
			}
		}
		for _, f := range []string{form, ascii.String()} {
			forms = append(forms, f, strings.ReplaceAll(f, "/", `\/`))
		}
	}
	return forms
}

// json is data without the secrets, however they are written in it: its strings are
// judged by what they say. Other values that hold one become a string.
func (r redactor) json(data json.RawMessage) (json.RawMessage, bool) {
	if r.replace == nil || len(data) == 0 {
		return data, true
	}
	clean := make([]byte, 0, len(data))
	for i := 0; i < len(data); {
		end := i + 1
		switch c := data[i]; {
		case c == '"':
			for end < len(data) && data[end] != '"' {
				if data[end] == '\\' {
					end++
				}
				end++
			}
			end = min(end+1, len(data))
			clean = append(clean, r.literal(data[i:end])...)
		case c == '-' || '0' <= c && c <= '9':
			for end < len(data) && bytes.IndexByte([]byte("+-.0123456789Ee"), data[end]) >= 0 {
				end++
			}
			number := string(data[i:end])
			if r.replace.Replace(number) != number {
				number = `"` + redacted + `"`
			}
			clean = append(clean, number...)
		default:
			clean = append(clean, c)
		}
		i = end
	}
	return clean, json.Valid(clean)
}

// literal is a string of JSON without the secrets.
func (r redactor) literal(raw []byte) []byte {
	var said string
	if json.Unmarshal(raw, &said) != nil {
		return raw
	}
	without := r.replace.Replace(said)
	if without == said {
		return raw
	}
	out, err := json.Marshal(without)
	if err != nil {
		return []byte(`"` + redacted + `"`)
	}
	return out
}

func (r redactor) bytes(data []byte) []byte {
	if r.replace == nil {
		return data
	}
	return []byte(r.replace.Replace(string(data)))
}
