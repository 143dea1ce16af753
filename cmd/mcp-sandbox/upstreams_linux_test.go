package main_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// notes is a folder of texts, and what is in it.
type notes struct {
	dir   string
	texts map[string]string
}

// newNotes writes n texts, of 1 to about 16 kB.
func newNotes(t testing.TB, n int) notes {
	t.Helper()
	words := strings.Fields("the quick brown fox jumps over a lazy dog while seven wizards brew potions in the old tower by the sea")
	random := rand.New(rand.NewPCG(1, 2))
	f := notes{t.TempDir(), map[string]string{}}
	for i := range n {
		var b strings.Builder
		for size := 1000 + random.IntN(15000); b.Len() < size; {
			fmt.Fprint(&b, words[random.IntN(len(words))], []string{" ", " ", " ", "\n"}[random.IntN(4)])
		}
		name := fmt.Sprintf("note%02d.txt", i)
		f.texts[name] = b.String()
		if err := os.WriteFile(filepath.Join(f.dir, name), []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

// longest are the names of the n longest texts, the longest first.
func (f notes) longest(n int) []string {
	var names []string
	for name := range f.texts {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int { return len(f.texts[b]) - len(f.texts[a]) })
	return names[:n]
}

// official writes a file of the official servers; url, unless it is empty, is where
// server-everything is reached; else it gets env.
func official(t testing.TB, folder, url string, env map[string]string) string {
	t.Helper()
	node := installed(t, "MCP_SANDBOX_TEST_NODE")
	run := func(server string, env map[string]string, args ...string) map[string]any {
		if env == nil {
			env = map[string]string{}
		}
		return map[string]any{"command": node, "args": append([]string{officialServer(t, server)}, args...), "env": env}
	}
	everything := run("everything", env)
	if url != "" {
		everything = map[string]any{"url": url}
	}
	memory := run("memory", map[string]string{"MEMORY_FILE_PATH": filepath.Join(t.TempDir(), "memory.jsonl")})
	memory["allowDestructive"] = true
	servers := map[string]any{"everything": everything, "files": run("filesystem", nil, folder), "memory": memory}
	if len(env) > 0 { // what is secret there is one in a header too
		headers := map[string]any{}
		for name, secret := range env {
			headers["X-"+name] = "Bearer " + backwards(secret)
		}
		servers["closed"] = map[string]any{"url": "http://127.0.0.1:1/mcp", "headers": headers}
	}
	data, err := json.Marshal(map[string]any{"mcpServers": servers})
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "mcp.json")
	if err := os.WriteFile(name, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func officialServer(t testing.TB, name string) string {
	t.Helper()
	path := filepath.Join(installed(t, "MCP_SANDBOX_TEST_NODE_MODULES"), "@modelcontextprotocol/server-"+name+"/dist/index.js")
	if _, err := os.Stat(path); err != nil {
		t.Fatal(err)
	}
	return path
}

// everythingOverHTTP starts server-everything there, and gives its address.
func everythingOverHTTP(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	l.Close()
	cmd := exec.Command(installed(t, "MCP_SANDBOX_TEST_NODE"), officialServer(t, "everything"), "streamableHttp")
	cmd.Env = append(os.Environ(), "PORT="+port)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	said, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	for lines := bufio.NewScanner(said); lines.Scan(); {
		if strings.Contains(lines.Text(), "listening on port") {
			return "http://127.0.0.1:" + port + "/mcp"
		}
	}
	t.Fatal("server-everything does not listen")
	return ""
}

// joined calls tools of all three servers in a loop of fifty, and joins what they say.
const joined = `
import pandas as pd
names = [line.split()[-1] for line in externals.files.list_directory(path=inputs["dir"])["content"].splitlines()]
externals.memory.create_entities(entities=[{"name": n, "entityType": "note", "observations": ["shelf %d" % (i % 3)]} for i, n in enumerate(names)])
read, shelves = [], []
for i in range(50):
    name = names[i % len(names)]
    text = externals.files.read_text_file(path=inputs["dir"] + "/" + name)["content"]
    said = externals.everything.get_sum(a=len(text.split()), b=i)
    read.append({"name": name, "words": int("".join(c for c in said.split(" is ")[-1] if c.isdigit())) - i})
    found = externals.memory.search_nodes(query=name)
    shelves += [{"name": e["name"], "shelf": e["observations"][0]} for e in found["entities"]]
frame = pd.DataFrame(read).merge(pd.DataFrame(shelves).drop_duplicates(), on="name")
{"rows": len(frame), "words": int(frame.words.sum()), "shelves": sorted(frame.shelf.unique())}
`

// joins is what joined returns.
func (f notes) joins() string {
	words := 0
	for i := range 50 {
		words += len(strings.Fields(f.texts[fmt.Sprintf("note%02d.txt", i%len(f.texts))]))
	}
	return fmt.Sprintf(`{"rows":50,"words":%d,"shelves":["shelf 0","shelf 1","shelf 2"]}`, words)
}

// One program calls the tools of the official servers, over each transport of ours and
// each of theirs.
func TestOfficialUpstreams(t *testing.T) {
	t.Parallel()
	server, python := binary(t), installed(t, "MCP_SANDBOX_TEST_ANALYST_PYTHON")
	flags := []string{"--python", python, "--externals-max-calls", "200", "--log-level", "info"}
	t.Run("stdio", func(t *testing.T) {
		t.Parallel()
		f := newNotes(t, 12)
		p, err := startPeer(exec.Command(server, append(append([]string{"serve"}, flags...), "--externals", official(t, f.dir, "", nil))...))
		if err != nil {
			t.Fatal(err)
		}
		var r externalReport
		if err := p.ask(executeWith(joined, map[string]any{"dir": f.dir}), &r); err != nil {
			t.Fatal(err)
		}
		if got := string(r.Result.Structured.Output); got != f.joins() || len(r.Result.Structured.Calls) != 100 {
			t.Errorf("returned %s, want %s; %d calls\n%.2000s", got, f.joins(), len(r.Result.Structured.Calls), r.Result.Content[0].Text)
		}
		if said := r.Result.Content[0].Text; !strings.Contains(said, "files.read_text_file ×50 (ok, ") {
			t.Errorf("the calls are told so: %s", said)
		}
		if err := p.end(); err != nil {
			t.Error(err)
		}
	})
	t.Run("http", func(t *testing.T) {
		t.Parallel()
		f := newNotes(t, 12)
		w := serveWeb(t, append(flags, "--externals", official(t, f.dir, everythingOverHTTP(t), nil))...)
		r := w.call("execute_python", map[string]any{"code": joined, "inputs": map[string]any{"dir": f.dir}})
		if got := string(r.Output); got != f.joins() {
			t.Errorf("returned %s, want %s\n%s", got, f.joins(), r.Error)
		}
		w.stop()
	})
}

// probe looks for a secret, whose halves it is given apart, in all that code can read,
// and asks the tool that tells its server's environment.
const probe = `
import glob, os, re
a, b = inputs["a"][::-1], inputs["b"][::-1]
def holds(data):
    return any(data[m.end():m.end() + len(b)] == b.encode() for m in re.finditer(re.escape(a.encode()), data))
found = []
if b in externals.everything.get_env(): found.append("get_env")
try: externals.closed.tool()
except ToolError as e:
    if b in repr(e) + repr(e.__dict__): found.append("closed")
for name in glob.glob("/proc/*/environ") + glob.glob("/proc/*/cmdline") + glob.glob("/proc/*/task/*/comm"):
    try:
        if holds(open(name, "rb").read()): found.append(name)
    except OSError: pass
for root in ("/tmp", "/workspace", "/etc", "/dev/shm", "/run"):
    for dir, _, files in os.walk(root):
        for name in files:
            path = os.path.join(dir, name)
            try:
                if os.path.isfile(path) and os.path.getsize(path) < 1 << 20 and holds(open(path, "rb").read()): found.append(path)
            except OSError: pass
scanned = 0
with open("/proc/self/mem", "rb", 0) as mem:
    for line in open("/proc/self/maps"):
        span, mode = line.split()[:2]
        low, high = (int(x, 16) for x in span.split("-"))
        if "w" in mode and high - low < 1 << 28:
            try:
                mem.seek(low)
                data = mem.read(high - low)
                scanned += len(data)
                if holds(data): found.append(line)
            except (OSError, ValueError): pass
{"found": found, "scanned": scanned > 1 << 20}
`

// probeSecret checks that code can't find what an upstream was given.
func probeSecret(t *testing.T, p *peer, secret string) {
	t.Helper()
	half := len(secret) / 2
	var r externalReport
	if err := p.ask(executeWith(probe, map[string]any{"a": backwards(secret[:half]), "b": backwards(secret[half:])}), &r); err != nil {
		t.Fatal(err)
	}
	if got := string(r.Result.Structured.Output); got != `{"found":[],"scanned":true}` {
		t.Errorf("the secret is in %s\n%s", got, r.Result.Content[0].Text)
	}
}

func backwards(s string) string {
	b := []byte(s)
	slices.Reverse(b)
	return string(b)
}

// Code that is interrupted while it waits for a tool takes the call back, which the
// server of the tool sees; a tool of ours as an upstream calls nothing in its turn.
func TestInterruptReachesUpstream(t *testing.T) {
	t.Parallel()
	p, err := startPeer(exec.Command(binary(t), "serve", "--log-level", "debug", "--externals", otherServer(t, "", "--log-level", "info")))
	if err != nil {
		t.Fatal(err)
	}
	var r externalReport
	request := execute(`externals.other.execute_python(code="sleep 60s")`)
	request["params"].(map[string]any)["arguments"].(map[string]any)["timeout_s"] = 3
	if err := p.ask(request, &r); err != nil {
		t.Fatal(err)
	}
	if r.Result.Structured.Status != "timeout" || r.Result.Structured.State != "kept" && r.Result.Structured.State != "new" {
		t.Errorf("a call that was interrupted: %+v", r.Result.Structured)
	}
	if err := p.ask(execute(`externals.other.execute_python(code="print on")["stdout"]`), &r); err != nil {
		t.Fatal(err)
	}
	if string(r.Result.Structured.Output) != `"on\n"` {
		t.Errorf("the next call: %+v", r.Result.Structured)
	}
	if err := p.end(); err != nil {
		t.Error(err)
	}
	if !bytes.Contains(p.stderr.Bytes(), []byte("fake: interrupted")) {
		t.Errorf("the upstream saw no interrupt:\n%s", &p.stderr)
	}
}

// The bytes that reach the model, of one task done in code and by direct calls: which
// of forty texts are the ten longest, and how many words each has. And what the
// servers were given for it can't be found by code.
func TestFolderInOneCall(t *testing.T) {
	t.Parallel()
	f := newNotes(t, 40)
	const secret = "hunter2hunter2hunter2"
	p, err := startPeer(exec.Command(binary(t), "serve", "--log-level", "debug", "--externals", official(t, f.dir, "", map[string]string{"CANARY": secret})))
	if err != nil {
		t.Fatal(err)
	}
	const code = `d = inputs["dir"]
sizes = {}
for line in externals.files.list_directory_with_sizes(path=d)["content"].splitlines():
    if line.startswith("[FILE]"):
        name = line.split()[1]
        sizes[name] = externals.files.get_file_info(path=d + "/" + name)["content"]
size = lambda name: int(sizes[name].split("size: ")[1].split()[0])
ten = sorted(sizes, key=size, reverse=True)[:10]
{name: len(externals.files.read_text_file(path=d + "/" + name)["content"].split()) for name in ten}`
	var r externalReport
	if err := p.ask(executeWith(code, map[string]any{"dir": f.dir}), &r); err != nil {
		t.Fatal(err)
	}
	var got map[string]int
	if err := json.Unmarshal(r.Result.Structured.Output, &got); err != nil {
		t.Fatalf("%v: %s", err, r.Result.Content[0].Text)
	}
	inCode := len(code) + len(r.Result.Content[0].Text)
	direct := 0
	for _, name := range f.longest(10) {
		if want := len(strings.Fields(f.texts[name])); got[name] != want {
			t.Errorf("%s has %d words, want %d", name, got[name], want)
		}
		direct += len(f.texts[name]) + len(`{"path":"/"}`) + len(f.dir) + len(name)
	}
	t.Logf("in code: %d bytes, of which %d of code; ten direct calls: %d bytes; 1 : %.0f", inCode, len(code), direct, float64(direct)/float64(inCode))
	if direct < 20*inCode {
		t.Errorf("in code it took %d bytes, by direct calls %d", inCode, direct)
	}

	probeSecret(t, p, secret)
	probeSecret(t, p, backwards(secret)) // of the header
	if err := p.end(); err != nil {
		t.Error(err)
	}
	if log := p.stderr.String(); strings.Contains(log, secret) || strings.Contains(log, backwards(secret)) {
		t.Error("the log holds the secret")
	}
}

func executeWith(code string, inputs map[string]any) map[string]any {
	r := execute(code)
	r["params"].(map[string]any)["arguments"].(map[string]any)["inputs"] = inputs
	return r
}

// What an external call costs in code, above the same call made by any client.
func BenchmarkExternalCall(b *testing.B) {
	file := official(b, b.TempDir(), "", nil)
	p, err := startPeer(exec.Command(binary(b), "serve", "--log-level", "error", "--externals", file, "--externals-max-calls", "1000000", "--timeout", "300s"))
	if err != nil {
		b.Fatal(err)
	}
	defer p.end()
	hello := map[string]any{"protocolVersion": "2025-06-18", "capabilities": map[string]any{}, "clientInfo": map[string]any{"name": "b", "version": "1"}}
	upstream, err := startPeer(exec.Command(installed(b, "MCP_SANDBOX_TEST_NODE"), officialServer(b, "everything")))
	if err != nil {
		b.Fatal(err)
	}
	defer upstream.end()
	var ignored any
	if err := upstream.ask(map[string]any{"jsonrpc": "2.0", "method": "initialize", "params": hello}, &ignored); err != nil {
		b.Fatal(err)
	}
	const code = `import time
def one():
    begin = time.perf_counter()
    externals.everything.get_sum(a=1, b=2)
    return time.perf_counter() - begin
one()
sorted(one() for _ in range(200))[100] * 1e6`
	var inCode, direct []float64
	for b.Loop() { // in turn, since machines are noisy
		var r externalReport
		if err := p.ask(execute(code), &r); err != nil {
			b.Fatal(err)
		}
		var micros float64
		if err := json.Unmarshal(r.Result.Structured.Output, &micros); err != nil {
			b.Fatalf("%v: %s", err, r.Result.Content[0].Text)
		}
		inCode = append(inCode, micros)
		for range 200 {
			begin := time.Now()
			if err := upstream.ask(map[string]any{"jsonrpc": "2.0", "method": "tools/call", "params": map[string]any{"name": "get-sum", "arguments": map[string]any{"a": 1, "b": 2}}}, &ignored); err != nil {
				b.Fatal(err)
			}
			direct = append(direct, float64(time.Since(begin).Microseconds()))
		}
	}
	slices.Sort(inCode)
	slices.Sort(direct)
	b.ReportMetric(inCode[len(inCode)/2], "µs-in-code")
	b.ReportMetric(direct[len(direct)/2], "µs-direct")
	b.ReportMetric(inCode[len(inCode)/2]-direct[len(direct)/2], "µs-more")
}
