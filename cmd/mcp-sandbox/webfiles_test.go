package main

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// An upload of which nothing comes any more is given up; one that is only slow is not.
func TestSlowUploads(t *testing.T) {
	_, addr := newWebServer(t, func(c *httpConfig) { c.body = 300 * time.Millisecond })
	w := &webServer{t: t, url: "http://" + addr, client: http.DefaultClient}
	id := w.modern(map[string]any{"code": "print 1"}).SessionID
	at := "/sessions/" + id + "/files/f"
	const put = " HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n"
	for name, beginning := range map[string]string{"nothing comes": put, "it stops": put + "12345"} {
		got, took := slow(t, addr, "PUT "+at+beginning)
		if !strings.HasPrefix(got, "HTTP/1.1 400") || took > 3*time.Second {
			t.Errorf("%s: after %v: %q", name, took, got)
		}
	}
	begun := time.Now()
	res, err := w.request(t.Context(), "PUT", at, nil, &drip{left: 8, pause: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if took := time.Since(begun); res.StatusCode != 200 || took < 600*time.Millisecond {
		t.Errorf("a slow one: %d after %v", res.StatusCode, took)
	}
	if a := w.do("GET", at, nil, ""); a.body != "xxxxxxxx" {
		t.Errorf("%+v", a)
	}
}

// A download may take longer than a body may.
func TestSlowDownload(t *testing.T) {
	_, addr := newWebServer(t, func(c *httpConfig) { c.body = 200 * time.Millisecond })
	w := &webServer{t: t, url: "http://" + addr, client: http.DefaultClient}
	at := "/sessions/" + w.modern(map[string]any{"code": "print 1"}).SessionID + "/files/f"
	const size = 32 << 20 // more than the sockets hold
	if a := w.do("PUT", at, nil, strings.Repeat("x", size)); a.status != 200 {
		t.Fatalf("%+v", a)
	}
	res, err := w.request(t.Context(), "GET", at, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	time.Sleep(800 * time.Millisecond)
	if n, err := io.Copy(io.Discard, res.Body); n != size || err != nil {
		t.Errorf("%d bytes, %v", n, err)
	}
}

// drip gives a byte at a time.
type drip struct {
	left  int
	pause time.Duration
}

func (d *drip) Read(p []byte) (int, error) {
	if d.left == 0 {
		return 0, io.EOF
	}
	time.Sleep(d.pause)
	d.left--
	p[0] = 'x'
	return 1, nil
}

func TestPassive(t *testing.T) {
	for name, want := range map[string]string{
		"a.csv": "text/csv", "a.PNG": "image/png", "a.html": "application/octet-stream", "a.svg": "application/octet-stream", "a.xml": "application/octet-stream",
		"a.pdf": "application/octet-stream", "a": "application/octet-stream", "a.js": "application/octet-stream", "a.png.htm": "application/octet-stream",
	} {
		if got := passive(name); got != want {
			t.Errorf("%s: %s", name, got)
		}
	}
}
