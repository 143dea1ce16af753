package egress

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
)

func TestProxyHTTP(t *testing.T) {
	plain, secure := server(t)
	w := newWorld(t, Config{Rules: rules(t, []string{"example.org", "[2606:4700::1]"})},
		map[string][]string{"example.org": {"93.184.216.34"}}, map[string]string{
			"93.184.216.34:80": plain.Listener.Addr().String(), "93.184.216.34:443": secure.Listener.Addr().String(),
			"93.184.216.34:8080": plain.Listener.Addr().String(), "[2606:4700::1]:80": plain.Listener.Addr().String(),
		})
	c := w.client(t)
	large := strings.Repeat("0123456789abcdef", 1<<16) // 1 MiB
	for _, tt := range []struct {
		url, body string
		chunked   bool
		want      string
	}{
		{"http://example.org/a?b=c", "", false, "GET example.org /a?b=c 0"},
		{"http://example.org?b=c", "", false, "GET example.org /?b=c 0"},
		{"http://EXAMPLE.org:8080//x/../%2e", "", false, "GET example.org:8080 //x/../%2e 0"},
		{"http://example.org/", "data", false, "POST example.org / 4"},
		{"http://example.org/", large, false, "POST example.org / 1048576"},
		{"http://example.org/", large, true, "POST example.org / 1048576"},
		{"https://example.org/", large, true, "POST example.org / 1048576"},
		{"https://example.org/a", "", false, "GET example.org /a 0"},
		{"http://[2606:4700::1]/", "", false, "GET [2606:4700::1] / 0"},
	} {
		method, body := "GET", io.Reader(nil)
		if tt.body != "" {
			method, body = "POST", strings.NewReader(tt.body)
		}
		if tt.chunked {
			body = io.MultiReader(body)
		}
		req, err := http.NewRequest(method, tt.url, body)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Proxy-Authorization", "Basic eA==")
		req.Header.Set("X-Gone", "1")
		req.Header.Set("Connection", "X-Gone")
		res, err := c.Do(req)
		if err != nil {
			t.Errorf("%s: %v", tt.url, err)
			continue
		}
		got, err := io.ReadAll(res.Body)
		res.Body.Close()
		if seen := res.Header.Get("X-Seen"); err != nil || seen != tt.want || string(got) != tt.body {
			t.Errorf("%s: saw %q, %d bytes back, %v", tt.url, seen, len(got), err)
		}
		if fields := strings.Join(res.Header.Values("X-Fields"), " "); strings.HasPrefix(tt.url, "http:") && strings.Contains(fields, "X-Gone") {
			t.Errorf("%s: passed on %s", tt.url, fields)
		}
	}
	w.Close() // what is on its way is counted when it has arrived
	if got := w.Counts(); got.Connections < 8 || got.Refused != 0 || got.Out < 5<<19 || got.In < 5<<19 {
		t.Errorf("%+v", got)
	}
}

// One connection is for one request: a second one that is sent after, or with, the first is
// never passed on.
func TestProxyOneRequest(t *testing.T) {
	plain, _ := server(t)
	w := newWorld(t, Config{Rules: rules(t, []string{"example.org"})},
		map[string][]string{"example.org": {"93.184.216.34"}}, map[string]string{"93.184.216.34:80": plain.Listener.Addr().String()})
	one := "POST http://example.org/1 HTTP/1.1\r\nHost: example.org\r\nContent-Length: 2\r\n\r\nok"
	two := "GET http://evil.example/2 HTTP/1.1\r\nHost: evil.example\r\n\r\n"
	answer := w.say(t, one+two)
	if strings.Count(answer, "HTTP/1.1 ") != 1 || !strings.Contains(answer, "POST example.org /1 2") {
		t.Errorf("%s", answer)
	}
}

// A chunked body is taken to its end, byte by byte as it may come, and no further.
func TestChunkedBody(t *testing.T) {
	for _, tt := range []struct{ in, out, left string }{
		{"5\r\nhello\r\n0\r\n\r\n", "5\r\nhello\r\n0\r\n\r\n", ""},
		{"5;x=y\r\nhello\r\n0\r\nX-Field: 1\r\nHost: evil.example\r\n\r\nGET /", "5\r\nhello\r\n0\r\n\r\n", "GET /"},
		{"0\r\n", "", ""}, // cut short: no end is made up
		{"0\r\n" + strings.Repeat("x: y\r\n", maxHead/6+1) + "\r\n", "", "\r\n"},
		{"0\r\n" + strings.Repeat("x", 4096), "", ""},
	} {
		in, out := strings.NewReader(tt.in), &strings.Builder{}
		err := copyChunked(out, iotest.OneByteReader(in))
		left, _ := io.ReadAll(in)
		if (err == nil) != (tt.out != "") || out.String() != tt.out || string(left) != tt.left {
			t.Errorf("%.40q: %q, left %.40q, %v", tt.in, out, left, err)
		}
	}
}
