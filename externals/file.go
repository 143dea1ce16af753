package externals

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Server is one server of the file, its variables expanded.
type Server struct {
	Name string
	Note string // one line about it, by the operator; "" = none

	Command string            // of a server that is our child; "" = it has a URL
	Args    []string          // of Command
	Env     map[string]string // of Command, besides Config.Environ
	Dir     string            // in which Command runs

	URL     string            // of a server that is reached over HTTP; "" = it has a Command
	Headers map[string]string // sent with each request
	SSE     bool              // it speaks HTTP+SSE alone
	HTTP    bool              // it speaks streamable HTTP alone; neither = the latter, then the former

	Allow            []string // patterns of the tools that may be called; nil = all
	Deny             []string // patterns of tools that may not be called whatever Allow says
	AllowDestructive bool     // tools that don't say that they only read may be called too

	secrets []string // what of this must not be seen
}

// Transport is how the server is reached: stdio, http or sse.
func (s Server) Transport() string {
	switch {
	case s.Command != "":
		return "stdio"
	case s.SSE:
		return "sse"
	}
	return "http"
}

// MaxFile is the most that a file of servers may have, in bytes.
const MaxFile = 1 << 20

// Parse reads an mcpServers file. Relative paths are relative to dir, the file's
// own directory; lookup finds the variables of ${VAR} and ${VAR:-default}. All
// faults come together, each with its place; none tells a value.
func Parse(data []byte, dir string, lookup func(string) (string, bool)) ([]Server, error) {
	f := file{dir: dir, lookup: lookup}
	servers := f.read(data)
	if err := errors.Join(f.faults...); err != nil {
		return nil, err
	}
	return servers, nil
}

// file is one that is being read.
type file struct {
	dir    string
	lookup func(string) (string, bool)
	faults []error
}

func (f *file) fault(format string, args ...any) {
	f.faults = append(f.faults, fmt.Errorf(format, args...))
}

func (f *file) read(data []byte) []Server {
	if len(data) > MaxFile {
		f.fault("it has %d bytes; at most %d are read", len(data), MaxFile)
		return nil
	}
	data = bytes.TrimPrefix(data, []byte("\uFEFF"))
	if err := json.Unmarshal(data, new(json.RawMessage)); err != nil {
		f.fault("it is not JSON: %s", position(data, err))
		return nil
	}
	all, ok := f.object("the file", data)
	if !ok {
		return nil
	}
	var servers []Server
	found := false
	for _, m := range all {
		if m.key != "mcpServers" {
			f.fault("unknown key %q: the file holds mcpServers alone", m.key)
			continue
		}
		found = true
		named, _ := f.object("mcpServers", m.value)
		for _, s := range named {
			if server, on := f.server(s.key, s.value); on {
				servers = append(servers, server)
			}
		}
	}
	if !found {
		f.fault(`it has no "mcpServers"`)
	}
	f.clashes(servers)
	return servers
}

// member is one of a JSON object, in its order.
type member struct {
	key   string
	value json.RawMessage
}

// object takes an object apart. What comes twice is a fault, of which encoding/json
// would silently take the last.
func (f *file) object(place string, data json.RawMessage) ([]member, bool) {
	d := json.NewDecoder(bytes.NewReader(data))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		f.fault("%s must be an object", place)
		return nil, false
	}
	var all []member
	for d.More() {
		key, err := d.Token()
		var value json.RawMessage
		if err == nil {
			err = d.Decode(&value)
		}
		if err != nil { // it has been checked
			f.fault("%s can't be read", place)
			return nil, false
		}
		name := key.(string)
		if slices.ContainsFunc(all, func(m member) bool { return m.key == name }) {
			f.fault("%s has %q twice", place, name)
			continue
		}
		all = append(all, member{name, value})
	}
	return all, true
}

// position says where an error of encoding/json is, without a word of the data.
func position(data []byte, err error) string {
	var s *json.SyntaxError
	if !errors.As(err, &s) {
		return err.Error()
	}
	before := data[:min(int64(len(data)), s.Offset)]
	line := 1 + bytes.Count(before, []byte("\n"))
	return fmt.Sprintf("%v (line %d, column %d)", err, line, len(before)-bytes.LastIndexByte(before, '\n')-1)
}

// serverName keeps names printable, since they go into a tool's description.
var serverName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9 ._/@-]{0,63}$`)

// server reads one; on is false for one that is disabled or at fault.
func (f *file) server(name string, data json.RawMessage) (s Server, on bool) {
	place := "mcpServers." + name
	before := len(f.faults)
	if !serverName.MatchString(name) {
		f.fault("mcpServers: %q is no name for a server: use at most 64 letters, digits and - _ . / @", name)
	}
	s, on = Server{Name: name, Dir: f.dir}, true
	all, ok := f.object(place, data)
	if !ok {
		return s, false
	}
	kind := ""
	for _, m := range all {
		at := place + "." + m.key
		switch m.key {
		case "command":
			s.Command = f.text(at, m.value, &s, false)
		case "args":
			s.Args = f.texts(at, m.value, &s, true)
		case "env":
			s.Env = f.named(at, m.value, &s, secretVariable)
		case "cwd":
			s.Dir = f.text(at, m.value, &s, false)
			if s.Dir != "" && !filepath.IsAbs(s.Dir) {
				s.Dir = filepath.Join(f.dir, s.Dir)
			}
		case "url":
			s.URL = f.text(at, m.value, &s, true)
		case "headers":
			s.Headers = f.named(at, m.value, &s, func(string, string) bool { return true })
		case "type", "transport":
			kind = f.text(at, m.value, &s, false)
		case "tools":
			f.tools(at, m.value, &s)
		case "allowDestructive":
			s.AllowDestructive = f.flag(at, m.value)
		case "disabled":
			on = !f.flag(at, m.value)
		case "description":
			s.Note = oneLine(f.text(at, m.value, &s, false), 200)
		default:
			f.fault("%s: unknown key; known are command, args, env, cwd, url, headers, type, tools, allowDestructive, disabled, description", at)
		}
	}
	f.transport(place, kind, &s)
	return s, on && len(f.faults) == before
}

// transport checks that what was given belongs together.
func (f *file) transport(place, kind string, s *Server) {
	switch {
	case s.Command != "" && s.URL != "":
		f.fault("%s has both a command and a url: give one", place)
		return
	case s.Command == "" && s.URL == "":
		f.fault("%s has neither a command nor a url", place)
		return
	case s.Command != "" && len(s.Headers) > 0:
		f.fault("%s.headers: a server with a command gets none", place)
	case s.URL != "" && (len(s.Args) > 0 || len(s.Env) > 0):
		f.fault("%s: a server with a url gets no args and no env", place)
	}
	switch kind {
	case "":
	case "stdio":
		if s.Command == "" {
			f.fault("%s.type: stdio needs a command", place)
		}
	case "http", "streamable-http", "streamableHttp", "sse":
		if s.URL == "" {
			f.fault("%s.type: %s needs a url", place, kind)
		}
		s.SSE, s.HTTP = kind == "sse", kind != "sse"
	default:
		f.fault("%s.type: %q is unknown; known are stdio, http (streamable HTTP), sse", place, kind)
	}
	if s.URL != "" {
		f.address(place+".url", s)
	}
	for name := range s.Headers {
		if !headerName.MatchString(name) {
			f.fault("%s.headers: %q is no name of a header", place, name)
		}
		if strings.ContainsAny(s.Headers[name], "\r\n\x00") {
			f.fault("%s.headers.%s: the value holds a line break", place, name)
		}
	}
	for name, value := range s.Env {
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.ContainsRune(value, 0) {
			f.fault("%s.env: %q is no variable", place, name)
		}
	}
}

var headerName = regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")

// address checks a URL. What may be a secret in it is one.
func (f *file) address(at string, s *Server) {
	u, err := url.Parse(s.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		f.fault("%s must be an http or https URL", at) // it may hold a secret: it is not said
		return
	}
	for _, part := range strings.Split(u.Path, "/") { // some services give each user an address of their own
		if len(part) >= 20 && strings.ContainsAny(part, "0123456789") {
			s.secrets = append(s.secrets, part)
		}
	}
	for _, values := range u.Query() {
		s.secrets = append(s.secrets, values...)
	}
}

// tools reads {allow, deny}.
func (f *file) tools(at string, data json.RawMessage, s *Server) {
	all, _ := f.object(at, data)
	for _, m := range all {
		here := at + "." + m.key
		switch m.key {
		case "allow":
			if s.Allow = f.texts(here, m.value, s, false); s.Allow == nil {
				s.Allow = []string{} // an empty list allows none
			}
		case "deny":
			s.Deny = f.texts(here, m.value, s, false)
		default:
			f.fault("%s: unknown key; known are allow, deny", here)
		}
	}
}

// clashes refuses names that would be one in Python.
func (f *file) clashes(servers []Server) {
	flat := map[string]string{}
	for _, s := range servers {
		name := Flat(s.Name)
		if slices.Contains([]string{"search", "aio", "ToolError"}, name) {
			f.fault("mcpServers: %q is a word of externals itself: rename it", s.Name)
		}
		if other, taken := flat[name]; taken {
			f.fault("mcpServers: %q and %q would both be externals.%s: rename one", other, s.Name, name)
			continue
		}
		flat[name] = s.Name
	}
}
