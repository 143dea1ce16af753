package tools

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"mcp-sandbox/sandbox"
	"mcp-sandbox/sandbox/sandboxtest"
)

// spooling is a Fake whose sessions have one output.
type spooling struct {
	*sandboxtest.Fake
	file string
}

type spoolingSession struct {
	sandbox.Session
	sandbox.Files
	file string
}

func (s *spooling) Open(ctx context.Context, spec sandbox.Spec) (sandbox.Session, error) {
	session, err := s.Fake.Open(ctx, spec)
	if err != nil {
		return nil, err
	}
	return &spoolingSession{session, session.(sandbox.Files), s.file}, nil
}

func (s *spoolingSession) Outputs() []sandbox.Output {
	info, err := os.Stat(s.file)
	if err != nil {
		return nil
	}
	return []sandbox.Output{{N: 3, Name: "stdout.txt", Size: info.Size()}}
}

func (s *spoolingSession) OpenOutput(n int) (*os.File, sandbox.Output, error) {
	all := s.Outputs()
	if n != 3 || len(all) == 0 {
		return nil, sandbox.Output{}, fmt.Errorf("output %d is not there any longer: %w", n, fs.ErrNotExist)
	}
	f, err := os.Open(s.file)
	return f, all[0], err
}

func (s *spoolingSession) KeepOutput(string, []byte) (sandbox.Output, error) {
	return sandbox.Output{}, fs.ErrInvalid
}

// library is a server with one session, whose workspace is dir and whose output 3 is file.
type library struct {
	t      *testing.T
	server *server.MCPServer
	id     string
	dir    string
	file   string
}

func newLibrary(t *testing.T) *library {
	t.Helper()
	dir := t.TempDir()
	l := &library{t: t, file: filepath.Join(dir, "output")}
	workspaces := filepath.Join(dir, "workspaces")
	sb := &spooling{&sandboxtest.Fake{Workspaces: workspaces}, l.file}
	sessions, err := sandbox.NewSessions(sandbox.SessionsConfig{Sandbox: sb})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sessions.Close() })
	tools := newTools(t, &sandboxtest.Fake{}, func(c *Config) { c.Sessions = sessions })
	first, _ := call(t, tools, executePython, `{"code": "1"}`)
	l.server, l.id, l.dir = tools.Server(), first.SessionID, filepath.Join(workspaces, first.SessionID)
	return l
}

func (l *library) write(name string, content []byte) {
	l.t.Helper()
	path := filepath.Join(l.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		l.t.Fatal(err)
	}
	if err := os.WriteFile(path, content, 0o644); err != nil {
		l.t.Fatal(err)
	}
}

// content is a resource's as clients get it.
type content struct {
	URI      string         `json:"uri"`
	MIMEType string         `json:"mimeType"`
	Text     *string        `json:"text"`
	Blob     *string        `json:"blob"`
	Meta     map[string]any `json:"_meta"`
}

func (c content) bytes(t *testing.T) []byte {
	t.Helper()
	if c.Text != nil {
		return []byte(*c.Text)
	}
	b, err := base64.StdEncoding.DecodeString(*c.Blob)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func ask[T any](l *library, method string, params map[string]any) (result T, fault string, code int) {
	l.t.Helper()
	text, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
	if err != nil {
		l.t.Fatal(err)
	}
	ctx, told := WithCode(l.t.Context())
	answer, err := json.Marshal(l.server.HandleMessage(ctx, text))
	if err != nil {
		l.t.Fatal(err)
	}
	var a struct {
		Result T
		Error  struct{ Message string }
	}
	if err := json.Unmarshal(answer, &a); err != nil {
		l.t.Fatal(err)
	}
	return a.Result, a.Error.Message, *told
}

func (l *library) read(uri string) ([]content, string, int) {
	l.t.Helper()
	result, fault, code := ask[struct{ Contents []content }](l, "resources/read", map[string]any{"uri": uri})
	return result.Contents, fault, code
}

// pages reads a resource as a client does that follows what each page names.
func (l *library) pages(uri string) ([]byte, int) {
	l.t.Helper()
	var all []byte
	for n := 1; ; n++ {
		got, fault, _ := l.read(uri)
		if fault != "" {
			l.t.Fatalf("%s: %s", uri, fault)
		}
		all = append(all, got[0].bytes(l.t)...)
		next, more := got[0].Meta["next"].(string)
		if !more {
			return all, n
		}
		if len(got) != 2 || got[1].URI != next || !strings.Contains(*got[1].Text, next) {
			l.t.Fatalf("%+v", got[1:])
		}
		uri = next
	}
}

func TestPagesAreTheWhole(t *testing.T) {
	l := newLibrary(t)
	rng := rand.New(rand.NewPCG(1, 2))
	random := make([]byte, 10_000_000)
	for i := range random {
		random[i] = byte(rng.Uint32())
	}
	runes := []byte(strings.Repeat("é€𝄞 line\n", 100_000))
	for name, test := range map[string]struct {
		data  []byte
		query string
	}{
		"random":          {random, ""},
		"text":            {runes, ""},
		"tiny pages":      {runes[:10_000], "?limit=5"},
		"cut runes":       {runes[:1000], "?limit=1"},
		"lines":           {runes[:100_000], "?line=1&lines=7"},
		"one long line":   {bytes.Repeat([]byte("é"), 300_001), "?lines=5"},
		"no newline last": {[]byte("a\nb\nc"), "?line=1&lines=2"},
		"empty":           {nil, ""},
		"text, then none": {append(bytes.Repeat([]byte("a"), 250_000), 0xff, 0xfe, 0), ""},
		"mixed":           {append(append([]byte{}, random[:500_000]...), runes...), "?limit=65536"},
	} {
		if err := os.WriteFile(l.file, test.data, 0o600); err != nil {
			t.Fatal(err)
		}
		l.write("f.bin", test.data)
		for _, at := range []string{sandbox.OutputURI(l.id, 3), sandbox.FileURI(l.id, "f.bin")} {
			got, n := l.pages(at + test.query)
			if !bytes.Equal(got, test.data) {
				t.Errorf("%s: %d bytes in %d pages, want %d", name, len(got), n, len(test.data))
			}
			t.Logf("%s: %d bytes in %d pages", name, len(got), n)
		}
	}
}

func TestReadResource(t *testing.T) {
	l := newLibrary(t)
	l.write("data.csv", []byte("a,b\n1,2\n3,4\n"))
	l.write("sub dir/ünï#?.txt", []byte("name"))
	l.write("p.png", append([]byte("\x89PNG\r\n\x1a\n"), make([]byte, 200_000)...))
	l.write("latin.txt", []byte("gr\xfc\xdfe"))
	files := sandbox.URIScheme + l.id + "/files/"
	for uri, want := range map[string]struct{ kind, text string }{
		files + "data.csv":                             {"text/csv", "a,b\n1,2\n3,4\n"},
		files + "data.csv?offset=4&limit=3":            {"text/csv", "1,2"},
		files + "data.csv?offset=12":                   {"text/csv", ""},
		files + "data.csv?line=2":                      {"text/csv", "1,2\n3,4\n"},
		files + "data.csv?line=3&lines=9":              {"text/csv", "3,4\n"},
		files + "./data.csv":                           {"text/csv", "a,b\n1,2\n3,4\n"},
		sandbox.FileURI(l.id, "sub dir/ünï#?.txt"):     {"text/plain", "name"},
		files + "sub dir/ünï#%3F.txt":                  {"text/plain", "name"}, // as people write it
		files + "sub%20dir%2F%C3%BCn%C3%AF%23%3f.txt":  {"text/plain", "name"},
		files + "latin.txt":                            {"text/plain", "gr\xfc\xdfe"},
		sandbox.URIScheme + l.id + "/files/sub%20dir/": {"application/json", ""},
	} {
		got, fault, _ := l.read(uri)
		if fault != "" || got[0].MIMEType != want.kind || got[0].URI == "" || want.kind != "application/json" && string(got[0].bytes(t)) != want.text {
			t.Errorf("%s: %s %+v", uri, fault, got)
		}
	}
	if got, _, _ := l.read(files + "p.png"); len(got) != 1 || got[0].Blob == nil || len(got[0].bytes(t)) != 200_008 || got[0].MIMEType != "image/png" {
		t.Error("a picture came in pieces")
	}
	got, _, _ := l.read(files)
	var list struct {
		Entries []listed
		More    bool
	}
	if err := json.Unmarshal(got[0].bytes(t), &list); err != nil || len(list.Entries) != 4 || list.More {
		t.Fatalf("%s, %v", got[0].bytes(t), err)
	}
	for _, e := range list.Entries { // each URI leads where it says
		if got, fault, _ := l.read(e.URI); fault != "" || e.Kind == "file" && int64(len(got[0].bytes(t))) != *e.Size {
			t.Errorf("%+v: %s", e, fault)
		}
	}
}

func TestRefusedResources(t *testing.T) {
	l := newLibrary(t)
	l.write("f", []byte("text"))
	if err := os.Symlink("/etc/passwd", filepath.Join(l.dir, "link")); err != nil {
		t.Fatal(err)
	}
	s := sandbox.URIScheme + l.id
	const gone, wrong = mcp.RESOURCE_NOT_FOUND, mcp.INVALID_PARAMS
	for uri, want := range map[string]struct {
		code int
		text string
	}{
		s + "/files/nothing":                {gone, "no such file"},
		s + "/files/f/f":                    {gone, "no such file"},
		s + "/outputs/9":                    {gone, "not there any longer"},
		"sandbox://other/files/f":           {gone, "unknown session"},
		"sandbox://new/files/f":             {gone, "unknown session"},
		"sandbox://none/outputs/1":          {gone, "unknown session"},
		s + "/files/link":                   {wrong, "can't be read (a link on the way leads out"},
		s + "/files/../../etc/passwd":       {wrong, "out of the workspace"},
		s + "/files/%2e%2e/%2e%2e/etc":      {wrong, "out of the workspace"},
		s + "/files//etc/passwd":            {wrong, "relative"},
		s + "/files/f%00":                   {wrong, "no path"},
		s + "/files/f%zz":                   {gone, "no such file"},
		s + "/files/f?offset=5":             {wrong, "offset must not be beyond"},
		s + "/files/f?offset=-1":            {wrong, "offset must be"},
		s + "/files/f?limit=0":              {wrong, "limit must be"},
		s + "/files/f?limit=99999999":       {wrong, "limit must be"},
		s + "/files/f?line=2":               {wrong, "fewer than 2 lines"},
		s + "/files/f?line=1&offset=1":      {wrong, "not both"},
		s + "/files/f?page=2":               {wrong, "not \"page\""},
		s + "/files/f?offset=1&offset=2":    {wrong, "one whole number"},
		s + "/outputs/x":                    {wrong, "number"},
		s + "/outputs/-1":                   {wrong, "number"},
		s + "/outputs/99999999999999999999": {wrong, "number"},
	} {
		got, fault, code := l.read(uri)
		if got != nil || code != want.code || !strings.Contains(fault, want.text) || strings.Contains(fault, l.dir) || len(fault) > 200 {
			t.Errorf("%s: %d %q, %+v", uri, code, fault, got)
		}
	}
	for _, uri := range []string{"file:///etc/passwd", "sandbox:///files/f", s, s + "/secrets/1"} {
		if got, fault, _ := l.read(uri); got != nil || fault == "" { // in mcp-go's words: no template knows it
			t.Errorf("%s: %+v", uri, got)
		}
	}
}

func TestListResources(t *testing.T) {
	l := newLibrary(t)
	for i := range 250 {
		l.write(fmt.Sprintf("many/%03d.csv", i), nil)
	}
	l.write("top.txt", []byte("x"))
	if err := os.WriteFile(l.file, []byte("out"), 0o600); err != nil {
		t.Fatal(err)
	}
	result, fault, _ := ask[struct {
		Resources []struct{ URI, Name, MIMEType string }
	}](l, "resources/list", map[string]any{})
	if fault != "" || len(result.Resources) != 1+200+1 {
		t.Fatalf("%s: %d", fault, len(result.Resources))
	}
	var uris []string
	for _, r := range result.Resources {
		uris = append(uris, r.URI)
		if _, fault, _ := l.read(r.URI); fault != "" || r.Name == "" {
			t.Errorf("%+v: %s", r, fault)
		}
	}
	for _, want := range []string{sandbox.FileURI(l.id, ""), sandbox.FileURI(l.id, "top.txt"), sandbox.OutputURI(l.id, 3)} {
		if !slices.Contains(uris, want) {
			t.Errorf("%s is missing", want)
		}
	}
	templates, _, _ := ask[struct {
		ResourceTemplates []struct{ URITemplate, Description string }
	}](l, "resources/templates/list", map[string]any{})
	if len(templates.ResourceTemplates) != 2 {
		t.Errorf("%+v", templates)
	}
}

func TestLinks(t *testing.T) {
	r := sandbox.Result{Truncated: sandbox.Truncation{Stdout: sandbox.Count{Produced: 50_000, Kept: 20_000, Rest: "sandbox://s/outputs/1", Held: 50_000}}}
	for i := range 25 {
		r.Files = append(r.Files, sandbox.File{Path: fmt.Sprintf("a b/%d.csv", i), Size: 7})
	}
	all := links(t.Context(), r, "s")
	if len(all) != 21 {
		t.Fatalf("%d links", len(all))
	}
	first, second := all[0].(mcp.ResourceLink), all[1].(mcp.ResourceLink)
	if first.URI != "sandbox://s/outputs/1" || *first.Size != 50_000 || second.URI != "sandbox://s/files/a%20b/0.csv" || second.MIMEType != "text/csv" || *second.Size != 7 {
		t.Errorf("%+v\n%+v", first, second)
	}
	r.Truncated.Stdout.Held = 30_000
	if cut := links(t.Context(), r, "s")[0].(mcp.ResourceLink); *cut.Size != 30_000 || strings.Contains(cut.Description, "All") || !strings.Contains(first.Description, "All") {
		t.Errorf("%+v, of what is not kept whole", cut)
	}
	if links(t.Context(), r, "") != nil || len(links(t.Context(), sandbox.Result{}, "s")) != 0 {
		t.Error("links to nothing")
	}
	for version, want := range map[string]int{"2024-11-05": 0, "2025-03-26": 0, "2025-06-18": 21, "2025-11-25": 21, "2026-07-28": 21} {
		ctx := server.WithRequestProtocolInfo(t.Context(), &server.RequestProtocolInfo{ProtocolVersion: version})
		if got := len(links(ctx, r, "s")); got != want {
			t.Errorf("%s: %d", version, got)
		}
	}
}

func FuzzPlace(f *testing.F) {
	for _, uri := range []string{"sandbox://s/files/a/b?offset=1&limit=2", "sandbox://s/outputs/1?line=2", "sandbox://s/files/%2e%2e", "sandbox://", "x"} {
		f.Add(uri)
	}
	f.Fuzz(func(t *testing.T, uri string) {
		for _, uri := range []string{uri, escape(uri)} {
			p, err := parsePlace(uri)
			if err != nil {
				continue
			}
			if p.session == "" || p.output < 0 || p.output == 0 && !filepath.IsLocal(p.path) || p.extent.offset < 0 || p.extent.limit > maxPage {
				t.Fatalf("%q: %+v", uri, p)
			}
			if again, err := parsePlace(p.uri()); err != nil || again.path != p.path || again.output != p.output {
				t.Fatalf("%q: %+v, %v, want %+v", p.uri(), again, err, p)
			}
		}
	})
}

func FuzzExtent(f *testing.F) {
	f.Add([]byte("a\nb\xff"), "line=1&lines=1")
	f.Add([]byte("é€𝄞"), "offset=1&limit=2")
	f.Fuzz(func(t *testing.T, data []byte, query string) {
		s, err := parseExtent(query)
		if err != nil {
			return
		}
		p, err := s.read(bytes.NewReader(data), int64(len(data)))
		if err != nil {
			return
		}
		if end := p.offset + int64(len(p.data)); p.offset < 0 || end > int64(len(data)) || !bytes.Equal(p.data, data[p.offset:end]) {
			t.Fatalf("%q of %q: %+v", query, data, p)
		}
		if len(p.data) == 0 && p.offset < int64(len(data)) {
			t.Fatalf("%q of %q: no progress", query, data)
		}
	})
}
