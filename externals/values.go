package externals

import (
	"encoding/json"
	"net/url"
	"regexp"
	"strings"
	"unicode"
)

// text reads a string and expands its variables. carries says that it stands where
// secrets are usually given: what a variable puts in there is one, unless it plainly is
// none.
func (f *file) text(at string, data json.RawMessage, s *Server, carries bool) string {
	var raw *string
	if json.Unmarshal(data, &raw) != nil || raw == nil {
		f.fault("%s must be a string", at)
		return ""
	}
	text, used := f.expand(at, *raw)
	for _, u := range used {
		if secretVariable(u.name, u.value) || carries && !strings.HasPrefix(u.value, "/") && !plainVariable.MatchString(u.name) {
			s.secrets = append(s.secrets, u.value)
		}
	}
	s.secrets = append(s.secrets, loginsOf(text)...)
	return text
}

// login is what stands before the host in an address, as in a database's.
var login = regexp.MustCompile(`\b[A-Za-z][A-Za-z0-9+.-]*://([^/?#@\s]+)@`)

// loginsOf are the passwords in the addresses that a text holds, as they are written and
// as they are meant. A name without one may be a token, if it is long; a password
// that is the name itself is none, and would be found everywhere.
func loginsOf(text string) (secrets []string) {
	for _, found := range login.FindAllStringSubmatch(text, -1) {
		name, password, both := strings.Cut(found[1], ":")
		if !both && len(name) >= 16 {
			password = name
		} else if password == name {
			continue
		}
		secrets = append(secrets, password)
		if plain, err := url.PathUnescape(password); err == nil {
			secrets = append(secrets, plain)
		}
	}
	return secrets
}

// texts reads a list of strings. Of arguments what looks like a token is a secret.
func (f *file) texts(at string, data json.RawMessage, s *Server, arguments bool) []string {
	var raw []json.RawMessage
	if json.Unmarshal(data, &raw) != nil {
		f.fault("%s must be a list of strings", at)
		return nil
	}
	var all []string
	option := "" // the last argument, where a value may follow
	for _, r := range raw {
		text := f.text(at, r, s, false)
		if arguments {
			s.secrets = append(s.secrets, secretArgument(option, text)...)
		}
		if option = ""; strings.HasPrefix(text, "-") && !strings.Contains(text, "=") {
			option = text
		}
		all = append(all, text)
	}
	return all
}

// secretArgument is the secret in an argument, if any: --token=x, Authorization: x, or x
// behind --token.
func secretArgument(option, text string) []string {
	if _, value, ok := strings.Cut(text, "="); ok && secretName.MatchString(text) {
		return []string{value}
	}
	if name, value, ok := strings.Cut(text, ":"); ok && headerName.MatchString(name) && secretName.MatchString(name) {
		return []string{value}
	}
	if secretName.MatchString(option) && !strings.HasPrefix(text, "-") {
		return []string{text}
	}
	return nil
}

// named reads an object of strings; secret says of which the value must not be seen.
func (f *file) named(at string, data json.RawMessage, s *Server, secret func(name, value string) bool) map[string]string {
	all, _ := f.object(at, data)
	values := map[string]string{}
	for _, m := range all {
		here := at + "." + m.key
		value := f.text(here, m.value, s, true)
		if secret(m.key, value) {
			s.secrets = append(s.secrets, value)
		}
		values[m.key] = value
	}
	return values
}

func (f *file) flag(at string, data json.RawMessage) bool {
	var v *bool
	if json.Unmarshal(data, &v) != nil || v == nil {
		f.fault("%s must be true or false", at)
		return false
	}
	return *v
}

// variable is ${VAR} or ${VAR:-default}; the default holds no brace.
var variable = regexp.MustCompile(`\$\{([^}:]*)(:-([^}]*))?([^}]*)\}?`)

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// plainVariable are variables that hold no secret, and whose values are found in much
// that is none.
var plainVariable = regexp.MustCompile(`^(HOME|PATH|PWD|USER|USERNAME|LOGNAME|SHELL|TMPDIR|LANG|LANGUAGE|TZ|TERM|HOSTNAME|EDITOR|LC_.*|XDG_.*)$`)

// setting is a variable's name and value.
type setting struct{ name, value string }

// expand puts in the values of variables, and returns those that the environment
// gave. As in a shell, a default stands for a variable that is empty too.
func (f *file) expand(at, text string) (expanded string, used []setting) {
	expanded = variable.ReplaceAllStringFunc(text, func(found string) string {
		m := variable.FindStringSubmatch(found)
		name, hasDefault, other := m[1], m[2] != "", m[3]
		if !variableName.MatchString(name) || m[4] != "" || !strings.HasSuffix(found, "}") {
			f.fault("%s: what begins with ${ must be ${VAR} or ${VAR:-default}", at)
			return ""
		}
		value, set := f.lookup(name)
		switch {
		case hasDefault && value == "":
			return other
		case !set:
			f.fault("%s: the variable %s is not set, and ${%s} has no default: set it, or write ${%s:-…}", at, name, name, name)
			return ""
		}
		used = append(used, setting{name, value})
		return value
	})
	return expanded, used
}

// secretName is part of the names of variables and options that hold secrets.
var secretName = regexp.MustCompile(`(?i)key|token|secret|passw|pwd|auth|cred|cookie|session|dsn|private|signature|bearer|\bpat\b|_pat\b`)

// secretVariable guesses whether a variable's literal value is a secret: by its
// name, or because it is long and neither a path, nor an address, nor prose.
func secretVariable(name, value string) bool {
	if secretName.MatchString(name) {
		return true
	}
	return len(value) >= 16 && !strings.ContainsAny(value, "/\\ ")
}

// oneLine is a text as one line of at most n bytes, whatever it was.
func oneLine(s string, n int) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == '\u2028' || r == '\u2029' {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
	s = strings.Join(strings.Fields(s), " ")
	if len(s) > n {
		s = strings.ToValidUTF8(s[:n-len("…")], "") + "…"
	}
	return s
}
