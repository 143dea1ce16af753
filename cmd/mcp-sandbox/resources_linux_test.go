package main_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// over is a client on the standard streams, of a revision.
func over(t *testing.T, revision string, flags ...string) *peer {
	t.Helper()
	p, err := startPeer(exec.Command(binary(t), append([]string{"serve", "--log-level", "warn"}, flags...)...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.end(); err != nil {
			t.Error(err)
		}
	})
	var hello struct {
		Result struct{ ProtocolVersion string }
	}
	err = p.ask(map[string]any{"jsonrpc": "2.0", "method": "initialize", "params": map[string]any{
		"protocolVersion": revision, "capabilities": map[string]any{}, "clientInfo": map[string]any{"name": "t", "version": "1"},
	}}, &hello)
	if err != nil || hello.Result.ProtocolVersion != revision {
		t.Fatalf("%+v, %v", hello, err)
	}
	return p
}

// called is a result with what it shows and links to.
type called struct {
	Result struct {
		Content []struct {
			Type, Text, URI, Name string
			Size                  int64
		}
		StructuredContent struct {
			reply
			Files     []struct{ Path string }
			Truncated struct{ Stdout struct{ Rest string } } `json:"truncated"`
		}
	}
}

func (c called) links() (all []string) {
	for _, block := range c.Result.Content {
		if block.Type == "resource_link" {
			all = append(all, block.URI)
		}
	}
	return all
}

func python(t *testing.T, p *peer, code string) (c called) {
	t.Helper()
	err := p.ask(map[string]any{"jsonrpc": "2.0", "method": "tools/call", "params": map[string]any{"name": "execute_python", "arguments": map[string]any{"code": code}}}, &c)
	if err != nil || !c.Result.StructuredContent.Success {
		t.Fatalf("%+v, %v", c, err)
	}
	return c
}

func resource(t *testing.T, p *peer, uri string) (a resourceAnswer) {
	t.Helper()
	if err := p.ask(map[string]any{"jsonrpc": "2.0", "method": "resources/read", "params": map[string]any{"uri": uri}}, &a); err != nil {
		t.Fatal(err)
	}
	return a
}

// pages reads a resource to its end.
func pages(t *testing.T, p *peer, uri string) (all []byte, n int) {
	t.Helper()
	for ; uri != ""; n++ {
		a := resource(t, p, uri)
		if len(a.Result.Contents) == 0 {
			t.Fatalf("%s: %+v", uri, a.Error)
		}
		all = append(all, a.first(t)...)
		uri = a.Result.Contents[0].Meta.Next
	}
	return all, n
}

// Ten megabytes are printed, and read back page by page: text, and bytes that are none.
func TestOutputReadBack(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "w")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	p := over(t, "2025-06-18", "--workspace", dir)
	for name, code := range map[string]string{
		"text":  "text = ''.join(f'{i} äöü€ 𝄞\\n' for i in range(500_000))[:8_000_000].encode()\nopen('text', 'wb').write(text); import sys; _ = sys.stdout.buffer.write(text)",
		"bytes": "import os, sys\nblob = os.urandom(10_000_000)\nopen('bytes', 'wb').write(blob); sys.stdout.buffer.write(blob); None",
	} {
		c := python(t, p, code)
		want, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		rest := c.Result.StructuredContent.Truncated.Stdout.Rest
		links := c.links()
		if len(links) != 2 || links[0] != rest || !strings.HasSuffix(links[1], "/files/"+name) || !strings.Contains(c.Result.Content[0].Text, rest) {
			t.Errorf("%s: %q, rest %q", name, links, rest)
		}
		if len(c.Result.Content[0].Text) > 41_000 {
			t.Errorf("%s: a text of %d bytes", name, len(c.Result.Content[0].Text))
		}
		got, n := pages(t, p, rest)
		if !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes of %d in %d pages differ", name, len(got), len(want), n)
		}
		t.Logf("%s: %d bytes in %d pages", name, len(got), n)
		if file, _ := pages(t, p, links[1]); !bytes.Equal(file, want) {
			t.Errorf("%s: its file differs", name)
		}
	}
	var list struct {
		Result struct{ Resources []struct{ URI string } }
	}
	if err := p.ask(map[string]any{"jsonrpc": "2.0", "method": "resources/list"}, &list); err != nil || len(list.Result.Resources) != 5 {
		t.Errorf("%+v, %v", list, err)
	}
	gone := resource(t, p, strings.TrimSuffix(list.Result.Resources[4].URI, "2")+"9")
	if gone.Error.Code != -32002 || !strings.Contains(gone.Error.Message, "no output 9") {
		t.Errorf("%+v", gone)
	}
}

// A client of a revision without links gets none, and text that names the resource.
func TestOldClientsGetNoLinks(t *testing.T) {
	c := python(t, over(t, "2024-11-05"), "open('f', 'w').write('x'); print('y' * 50_000)")
	if got := c.links(); got != nil || len(c.Result.StructuredContent.Files) != 1 || !strings.Contains(c.Result.Content[0].Text, "/outputs/1]") {
		t.Errorf("%q, %+v", got, c.Result.StructuredContent.Files)
	}
}

// What a guest puts in its workspace leads the server nowhere else.
func TestHostileWorkspace(t *testing.T) {
	p := over(t, "2025-06-18")
	c := python(t, p, `
import os, socket
os.symlink('/etc/passwd', 'passwd'); os.symlink('/', 'root'); os.symlink('..', 'up'); os.symlink('/proc/self/environ', 'env')
os.mkfifo('fifo'); s = socket.socket(socket.AF_UNIX); s.bind('socket')
tried = []
for target in ('/etc/passwd', '/usr/bin/env', '/dev/null', '/proc/self/environ'):
    try: os.link(target, 'hard'); tried.append(target)
    except OSError: pass
try: os.mknod('disk', 0o600 | 0o060000, os.makedev(8, 0)); tried.append('disk')
except OSError: pass
with open('sparse', 'wb') as f: f.truncate(1 << 30)
tried`)
	if string(c.Result.StructuredContent.Output) != "[]" {
		t.Errorf("the guest made %s", c.Result.StructuredContent.Output)
	}
	at := "sandbox://" + c.Result.StructuredContent.SessionID + "/files/"
	for _, name := range []string{"passwd", "root/etc/passwd", "root/", "up/", "up/session.json", "env", "fifo", "socket", "../session.json", "..%2f..%2fetc/passwd"} {
		if a := resource(t, p, at+name); a.Error.Code == 0 || len(a.Result.Contents) > 0 {
			t.Errorf("%s: %+v", name, a)
		}
	}
	if a := resource(t, p, at+"sparse?offset=1073741000"); a.Error.Code != 0 || len(a.first(t)) != 824 {
		t.Errorf("%+v", a.Error)
	}
	if a := resource(t, p, at+"sparse"); a.Error.Code != 0 || len(a.first(t)) > 4<<20 {
		t.Errorf("%+v", a.Error)
	}
	if a := resource(t, p, at+"sparse?line=2"); !strings.Contains(a.Error.Message, "go by offset") {
		t.Errorf("%+v", a.Error)
	}
}
