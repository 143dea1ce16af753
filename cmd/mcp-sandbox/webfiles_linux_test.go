package main_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// begin makes a session before any call.
func (w *web) begin() string {
	w.t.Helper()
	status, h, body := w.do("POST", "/sessions", "", "")
	var made struct {
		ID string `json:"session_id"`
	}
	if err := json.Unmarshal([]byte(body), &made); err != nil || status != 201 || made.ID == "" || h.Get("Location") != "/sessions/"+made.ID+"/files/" {
		w.t.Fatalf("%d %s, %v", status, body, err)
	}
	return made.ID
}

// transfer sends a request for a file; size -1 sends it in chunks.
func (w *web) transfer(ctx context.Context, method, path string, body io.Reader, size int64, headers ...string) (*http.Response, []byte, error) {
	r, err := http.NewRequestWithContext(ctx, method, w.url+path, body)
	if err != nil {
		w.t.Fatal(err)
	}
	r.ContentLength = size
	r.Header.Set("Authorization", "Bearer "+w.token)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, nil, err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	return res, b, err
}

func (w *web) put(path string, body []byte) (int, string) {
	w.t.Helper()
	res, b, err := w.transfer(w.t.Context(), "PUT", path, bytes.NewReader(body), int64(len(body)))
	if err != nil {
		w.t.Fatal(err)
	}
	return res.StatusCode, string(b)
}

// resource reads a resource by revision 2026-07-28.
func (w *web) resource(uri string) []byte {
	w.t.Helper()
	body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": map[string]any{
		"uri": uri, "_meta": map[string]any{"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": map[string]any{}},
	}})
	if err != nil {
		w.t.Fatal(err)
	}
	_, b, err := w.transfer(w.t.Context(), "POST", "/mcp", bytes.NewReader(body), int64(len(body)), "Content-Type", "application/json",
		"Accept", "application/json, text/event-stream", "Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "resources/read", "Mcp-Name", uri)
	if err != nil {
		w.t.Fatal(err)
	}
	var a resourceAnswer
	if err := json.Unmarshal(b, &a); err != nil || len(a.Result.Contents) == 0 {
		w.t.Fatalf("%s: %v: %.300s", uri, err, b)
	}
	return a.first(w.t)
}

// resourceAnswer is what resources/read answers.
type resourceAnswer struct {
	Result struct {
		Contents []struct {
			Text, Blob *string
			Meta       struct {
				Next string
			} `json:"_meta"`
		}
	}
	Error struct {
		Code    int
		Message string
	}
}

// first is the page itself.
func (a resourceAnswer) first(t *testing.T) []byte {
	t.Helper()
	c := a.Result.Contents[0]
	if c.Text != nil {
		return []byte(*c.Text)
	}
	b, err := base64.StdEncoding.DecodeString(*c.Blob)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// A table is put, analysed, and what comes of it fetched: byte for byte, over HTTP and as a
// resource.
func TestWebFiles(t *testing.T) {
	w := startWeb(t)
	id := w.begin()
	at := "/sessions/" + id + "/files/"
	var csv bytes.Buffer
	csv.WriteString("region,units\n")
	for i := range 6000 {
		fmt.Fprintf(&csv, "r%d,%d\n", i%7, i*i%1001)
	}
	if status, body := w.put(at+"data/sales%20ü.csv", csv.Bytes()); status != 200 || !strings.Contains(body, "/files/data/sales%20%C3%BC.csv") {
		t.Fatalf("%d %s", status, body)
	}
	r := w.python(id, `
import csv, collections, json, os
sums = collections.Counter()
for row in csv.DictReader(open('data/sales ü.csv')):
    sums[row['region']] += int(row['units'])
with open('out.csv', 'wb') as f:
    f.write(b'region,units\r\n' + b''.join(b'%s,%d\r\n' % (k.encode(), v) for k, v in sorted(sums.items())) + bytes(range(256)))
open('page.html', 'w').write('<script>alert(1)</script>')
open('evil.svg', 'w').write('<svg onload="alert(1)"/>')
len(open('out.csv', 'rb').read()), sum(sums.values())`)
	if !r.Success || r.SessionID != id {
		t.Fatalf("%+v", r)
	}
	var want struct{ size, sum int }
	for i := range 6000 {
		want.sum += i * i % 1001
	}
	if _, err := fmt.Sscanf(string(r.Output), "[%d,%d]", &want.size, new(int)); err != nil || !strings.HasSuffix(string(r.Output), fmt.Sprintf(",%d]", want.sum)) {
		t.Errorf("%s, want a sum of %d", r.Output, want.sum)
	}
	res, whole, err := w.transfer(t.Context(), "GET", at+"out.csv", nil, 0)
	if err != nil || res.StatusCode != 200 || len(whole) != want.size || !bytes.HasSuffix(whole, []byte("\xfe\xff")) {
		t.Fatalf("%v, %d bytes of %d", err, len(whole), want.size)
	}
	for name, value := range map[string]string{
		"Content-Type": "text/csv", "Content-Disposition": "attachment; filename=out.csv", "X-Content-Type-Options": "nosniff",
		"Content-Security-Policy": "sandbox; default-src 'none'", "Cache-Control": "no-store", "Accept-Ranges": "bytes",
	} {
		if got := res.Header.Get(name); got != value {
			t.Errorf("%s: %q", name, got)
		}
	}
	for _, name := range []string{"page.html", "evil.svg"} {
		res, _, err := w.transfer(t.Context(), "GET", at+name, nil, 0)
		if err != nil || res.Header.Get("Content-Type") != "application/octet-stream" || !strings.HasPrefix(res.Header.Get("Content-Disposition"), "attachment") {
			t.Errorf("%s: %v, %v", name, res.Header, err)
		}
	}
	part, b, err := w.transfer(t.Context(), "GET", at+"out.csv", nil, 0, "Range", "bytes=5-9")
	if err != nil || part.StatusCode != 206 || !bytes.Equal(b, whole[5:10]) {
		t.Errorf("a range: %d %q, %v", part.StatusCode, b, err)
	}
	if res, b, err := w.transfer(t.Context(), "HEAD", at+"out.csv", nil, 0); err != nil || res.ContentLength != int64(len(whole)) || len(b) > 0 {
		t.Errorf("HEAD: %+v, %v", res, err)
	}
	if got := w.resource("sandbox://" + id + "/files/out.csv"); !bytes.Equal(got, whole) {
		t.Errorf("as a resource: %d bytes", len(got))
	}
	if got := w.resource("sandbox://" + id + "/files/data/sales%20%C3%BC.csv"); !bytes.Equal(got, csv.Bytes()) {
		t.Errorf("the table as a resource: %d bytes of %d", len(got), csv.Len())
	}
	_, b, err = w.transfer(t.Context(), "GET", at, nil, 0)
	var list struct {
		Entries []struct {
			Name, Kind string
			Size       int
		}
	}
	if json.Unmarshal(b, &list) != nil || err != nil || len(list.Entries) != 4 || list.Entries[2].Name != "out.csv" || list.Entries[2].Size != want.size {
		t.Errorf("the list: %s, %v", b, err)
	}
	w.strangers(at, id)
	if c := w.call("execute_cli", map[string]any{"command": "wc -l 'data/sales ü.csv'", "session_id": id}); !strings.HasPrefix(c.Stdout, "6001 ") {
		t.Errorf("a command: %+v", c)
	}
	if status, _, _ := w.do("DELETE", "/sessions/"+id, "", ""); status != 204 {
		t.Error(status)
	}
	if status, body := w.put(at+"late", nil); status != 404 || !strings.Contains(body, "unknown session") {
		t.Errorf("after its end: %d %s", status, body)
	}
	w.stop()
}

// strangers learn of a session's files what they learn of none.
func (w *web) strangers(at, id string) {
	w.t.Helper()
	w.token = strangerToken
	defer func() { w.token = webToken }()
	none := ""
	for _, path := range []string{"/sessions/11111111-1111-4111-8111-111111111111/files/out.csv", "/sessions/new/files/out.csv", at + "out.csv", at, at + "nothing"} {
		res, b, err := w.transfer(w.t.Context(), "GET", path, nil, 0)
		if none == "" {
			none = string(b)
		}
		if err != nil || res.StatusCode != 404 || string(b) != none || !strings.Contains(none, "unknown session") {
			w.t.Errorf("a stranger reads %s: %d %s, %v", path, res.StatusCode, b, err)
		}
		if status, body := w.put(path, []byte("x")); path != at && (status != 404 || body != none) {
			w.t.Errorf("a stranger writes %s: %d %s", path, status, body)
		}
	}
}

// endless gives bytes without an end.
type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

// What is too much is refused, as soon as that is known, and nothing of it is left; nor of
// what broke off.
func TestWebUploadsRefused(t *testing.T) {
	dir := t.TempDir()
	w := startWeb(t, "--max-disk", "64MiB", "--workspace", dir)
	id := w.begin()
	at := "/sessions/" + id + "/files/"
	left := func() string {
		t.Helper()
		var all []string
		err := filepath.WalkDir(filepath.Join(dir, id), func(path string, d os.DirEntry, err error) error {
			all = append(all, strings.TrimPrefix(path, dir+"/"+id))
			return err
		})
		if err != nil {
			t.Error(err)
		}
		return strings.Join(all[1:], " ")
	}
	// Neither becomes a file; and a path whose directories take a while to make costs nothing.
	for path, want := range map[string]string{"folder/": "names a directory", strings.Repeat("d/", 2000) + "x": "256 directories"} {
		if status, _, body := w.do("PUT", at+path, "1", ""); status != 400 || !strings.Contains(body, want) || left() != "" {
			t.Errorf("%.20s: %d %s, left %.100s", path, status, body, left())
		}
	}
	const gigabyte = 1_000_000_000
	for name, size := range map[string]int64{"announced": gigabyte, "in chunks": -1} {
		begun := time.Now()
		res, b, err := w.transfer(t.Context(), "PUT", at+"new/dir/big.bin", io.LimitReader(endless{}, gigabyte), size)
		took := time.Since(begun)
		switch {
		case err != nil && size < 0: // the server has hung up on what it does not want
			t.Logf("%s: %v after %v", name, err, took)
		case err != nil, res.StatusCode != 413, !strings.Contains(string(b), "room for"):
			t.Errorf("%s: %v, %+v %s", name, err, res, b)
		}
		if took > 20*time.Second {
			t.Errorf("%s: refused after %v", name, took)
		}
		if got := left(); got != "" {
			t.Errorf("%s left %s", name, got)
		}
		t.Logf("%s: refused after %v", name, took)
	}
	for path, want := range map[string]int{
		"": 400, "%2e%2e/x": 0, "..%2fx": 0, "a/%2e%2e/%2e%2e/%2e%2e/etc/x": 0, "%00": 400, strings.Repeat("n", 300): 403,
	} {
		status, body := w.put(at+path, []byte("x"))
		if status < 300 || want > 0 && status != want {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	if res, _, err := w.transfer(t.Context(), "PUT", at+"x", strings.NewReader("x"), 1, "Content-Range", "bytes 0-0/2"); err != nil || res.StatusCode != 400 {
		t.Errorf("a part: %+v, %v", res, err)
	}
	// A client that goes in the middle.
	conn, err := net.Dial("tcp", strings.TrimPrefix(w.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(conn, "PUT %sgone/half HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer %s\r\nContent-Length: 1000000\r\n\r\n%0500000d", at, webToken, 1)
	for deadline := time.Now().Add(10 * time.Second); !strings.Contains(left(), "gone"); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("nothing came")
		}
	}
	conn.Close()
	for deadline := time.Now().Add(10 * time.Second); left() != ""; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("left: %s", left())
		}
	}
	// What fits fits, also after all that.
	if status, body := w.put(at+"fits", make([]byte, 60<<20)); status != 200 {
		t.Errorf("%d %s", status, body)
	}
	if status, _ := w.put(at+"no more", make([]byte, 5<<20)); status != 413 {
		t.Error(status)
	}
	if r := w.python(id, "import os; os.path.getsize('fits')"); string(r.Output) != fmt.Sprint(60<<20) {
		t.Errorf("%+v", r)
	}
	w.stop()
}

// A session's end ends what comes and goes: who fetched half a file is not told that it
// was the whole.
func TestWebTransfersEndWithTheSession(t *testing.T) {
	w := startWeb(t)
	id := w.begin()
	at := "/sessions/" + id + "/files/"
	if r := w.python(id, "import os; f = open('big', 'wb'); f.write(os.urandom(100 << 20)); f.close()"); !r.Success {
		t.Fatalf("%+v", r)
	}
	r, err := http.NewRequestWithContext(t.Context(), "GET", w.url+at+"big", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+webToken)
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if _, err := io.ReadFull(res.Body, make([]byte, 1000)); err != nil {
		t.Fatal(err)
	}
	in, out := io.Pipe()
	put := make(chan string, 1)
	go func() {
		res, b, err := w.transfer(context.Background(), "PUT", at+"coming", in, 1000)
		if err != nil {
			put <- err.Error()
			return
		}
		put <- fmt.Sprintf("%d %s", res.StatusCode, b)
	}()
	if _, err := out.Write(make([]byte, 500)); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	if status, _, body := w.do("DELETE", "/sessions/"+id, "", ""); status != 204 {
		t.Errorf("%d %s", status, body)
	}
	select {
	case got := <-put:
		if !strings.HasPrefix(got, "404 ") {
			t.Errorf("the upload: %s", got)
		}
	case <-time.After(10 * time.Second):
		t.Error("the upload went on")
	}
	out.Close()
	n, err := io.Copy(io.Discard, res.Body)
	if err == nil || errors.Is(err, io.EOF) {
		t.Errorf("%d bytes, and no error", n)
	}
	t.Logf("both ended after %v, the download after %d bytes: %v", time.Since(begun), n, err)
	w.stop()
}

// Files and outputs of a hibernated session are there, in this server and in the next, and
// to look at them wakes nobody.
func TestFilesOfSleepers(t *testing.T) {
	state := stateDir(t)
	flags := []string{"--state-dir", state, "--session-idle", "1s"}
	w := startWeb(t, flags...)
	r := w.python("", "open('f', 'w').write('kept'); x = 1; print('y' * 30_000)")
	id := r.SessionID
	at := "/sessions/" + id + "/files/"
	look := func() {
		t.Helper()
		w.awaitHibernated(id)
		if _, b, err := w.transfer(t.Context(), "GET", at+"f", nil, 0); string(b) != "kept" || err != nil {
			t.Errorf("%q, %v", b, err)
		}
		if got := w.resource("sandbox://" + id + "/outputs/1"); len(got) != 30_001 {
			t.Errorf("%d bytes", len(got))
		}
		if status, body := w.put(at+"new/g", []byte("from outside")); status != 200 {
			t.Errorf("%d %s", status, body)
		}
		if !w.listed()[id] {
			t.Error("it was woken")
		}
	}
	look()
	w.stop()
	w = startWeb(t, flags...)
	look()
	if r := w.python(id, "x, open('new/g').read()"); string(r.Output) != `[1,"from outside"]` || r.State != "restored" {
		t.Errorf("%+v", r)
	}
	w.stop()
}

// The Inspector lists and reads resources, in each era.
func TestInspectorResources(t *testing.T) {
	node, dir := installed(t, "MCP_SANDBOX_TEST_NODE"), scripts(t)
	w := startWeb(t)
	r := w.python("", "open('ü.csv', 'w').write('a,b\\n1,2\\n'); open('b.bin', 'wb').write(b'\\xff\\x00'); print('z' * 30_000)")
	for _, era := range []string{"legacy", "modern"} {
		inspect := func(args ...string) string {
			t.Helper()
			return run(t, dir, []string{"HOME=" + t.TempDir()}, append([]string{
				node, "node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js", "--cli", "--transport", "http", "--server-url", w.url + "/mcp",
				"--protocol-era", era, "--header", "Authorization: Bearer " + webToken, "--format", "json", "-q"}, args...)...)
		}
		if out := inspect("--method", "resources/list"); !strings.Contains(out, "sandbox://"+r.SessionID+"/files/") {
			t.Errorf("%s: %s", era, out)
		}
		if out := inspect("--method", "resources/templates/list"); strings.Count(out, "uriTemplate") != 2 {
			t.Errorf("%s: %s", era, out)
		}
		for path, want := range map[string]string{"files/%C3%BC.csv": `a,b\n1,2\n`, "files/b.bin": "/wA=", "outputs/1": strings.Repeat("z", 30_000), "files/": `ü.csv`} {
			if out := inspect("--method", "resources/read", "--uri", "sandbox://"+r.SessionID+"/"+path); !strings.Contains(out, want) {
				t.Errorf("%s %s: %.500s", era, path, out)
			}
		}
	}
	w.stop()
}
