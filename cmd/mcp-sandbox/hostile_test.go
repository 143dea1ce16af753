package main

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// Requests as no honest client writes them: of each it is said how it is answered,
// and that it is answered at once.
func TestHostileRequests(t *testing.T) {
	const anns = "the-token-of-ann-0123"
	s := startWeb(t, "--auth-token-file", tokenFile(t, "ann:"+anns+"\n"))
	addr := strings.TrimPrefix(s.url, "http://")
	const (
		local = "Host: localhost\r\n"
		token = "Authorization: Bearer " + anns + "\r\n"
		json  = "Content-Type: application/json\r\n"
		bye   = "Connection: close\r\n"
	)
	length := fmt.Sprintf("Content-Length: %d\r\n", len(helloWeb))
	chunks := fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(helloWeb), helloWeb)
	post := func(headers, body string) string { return "POST /mcp HTTP/1.1\r\n" + headers + "\r\n" + body }
	for name, test := range map[string]struct{ request, status string }{
		"as it should be":               {post(local+token+json+bye+length, helloWeb), "200"},
		"in chunks":                     {post(local+token+json+bye+"Transfer-Encoding: chunked\r\n", chunks), "200"},
		"two lengths":                   {post(local+token+json+length+"Content-Length: 5\r\n", helloWeb), "400"},
		"a list of lengths":             {post(local+token+json+"Content-Length: 5, 5\r\n", helloWeb), "400"},
		"a signed length":               {post(local+token+json+"Content-Length: +5\r\n", helloWeb), "400"},
		"a negative length":             {post(local+token+json+"Content-Length: -1\r\n", helloWeb), "400"},
		"an unknown encoding":           {post(local+token+json+"Transfer-Encoding: xchunked\r\n", chunks), "501"},
		"two encodings":                 {post(local+token+json+"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n", chunks), "501"},
		"a space before the colon":      {post(local+token+json+"Transfer-Encoding : chunked\r\n", chunks), "400"},
		"no size of a chunk":            {post(local+token+json+"Transfer-Encoding: chunked\r\n", "zz\r\n{}\r\n0\r\n\r\n"), "400"},
		"a chunk of below nothing":      {post(local+token+json+"Transfer-Encoding: chunked\r\n", "-1\r\n{}\r\n0\r\n\r\n"), "400"},
		"a chunk beyond numbers":        {post(local+token+json+"Transfer-Encoding: chunked\r\n", "fffffffffffffffff\r\n{}\r\n0\r\n\r\n"), "400"},
		"a token in the trailer":        {post(local+json+"Trailer: Authorization\r\nTransfer-Encoding: chunked\r\n", strings.TrimSuffix(chunks, "\r\n")+token+"\r\n"), "401"},
		"a token in the query":          {"POST /mcp?access_token=" + anns + "&token=" + anns + " HTTP/1.1\r\n" + local + json + length + "\r\n" + helloWeb, "401"},
		"a token in the address":        {"POST http://ann:" + anns + "@localhost/mcp HTTP/1.1\r\n" + local + json + length + "\r\n" + helloWeb, "401"},
		"a token in a cookie":           {post(local+json+"Cookie: Authorization=Bearer "+anns+"\r\n"+length, helloWeb), "401"},
		"two tokens":                    {post(local+json+token+token+length, helloWeb), "401"},
		"a stranger's silent body":      {post(local+json+"Content-Length: 1000\r\n", ""), "401"},
		"a stranger's endless chunk":    {post(local+json+"Transfer-Encoding: chunked\r\n", "ffffff\r\n"), "401"},
		"a web page's silent body":      {post(local+json+"Origin: http://evil.example\r\nContent-Length: 1000\r\n", ""), "403"},
		"another host's silent body":    {post("Host: evil.example\r\n"+json+"Content-Length: 1000\r\n", ""), "403"},
		"no host":                       {post(token+json+length, helloWeb), "400"},
		"no host, HTTP/1.0":             {"POST /mcp HTTP/1.0\r\n" + token + json + length + "\r\n" + helloWeb, "403"},
		"two hosts":                     {post(local+"Host: evil.example\r\n"+token+json+length, helloWeb), "400"},
		"another host in the line":      {"POST http://evil.example/mcp HTTP/1.1\r\n" + local + token + json + length + "\r\n" + helloWeb, "403"},
		"a user in the host":            {post("Host: localhost@evil.example\r\n"+token+json+length, helloWeb), "400"},
		"two names in the host":         {post("Host: localhost,evil.example\r\n"+token+json+length, helloWeb), "403"},
		"a short address":               {post("Host: 127.1\r\n"+token+json+length, helloWeb), "403"},
		"an address as a number":        {post("Host: 2130706433\r\n"+token+json+length, helloWeb), "403"},
		"an address in octal":           {post("Host: 0177.0.0.1\r\n"+token+json+length, helloWeb), "403"},
		"any address":                   {post("Host: 0.0.0.0\r\n"+token+json+length, helloWeb), "403"},
		"any address, IPv6":             {post("Host: [::]\r\n"+token+json+length, helloWeb), "403"},
		"another's address as IPv6":     {post("Host: [::ffff:192.0.2.1]\r\n"+token+json+length, helloWeb), "403"},
		"our address as IPv6":           {post("Host: [::ffff:127.0.0.1]:80\r\n"+token+json+bye+length, helloWeb), "200"},
		"a dot at the end":              {post("Host: localhost.:80\r\n"+token+json+bye+length, helloWeb), "200"},
		"two dots at the end":           {post("Host: localhost..\r\n"+token+json+length, helloWeb), "403"},
		"no origin that could be one":   {post(local+"Origin: null\r\n"+token+json+length, helloWeb), "403"},
		"two origins":                   {post(local+"Origin: http://a.example\r\nOrigin: http://b.example\r\n"+token+json+length, helloWeb), "403"},
		"a NUL":                         {post(local+token+json+"X: a\x00b\r\n"+length, helloWeb), "400"},
		"options of all":                {"OPTIONS * HTTP/1.1\r\nHost: evil.example\r\n\r\n", "403"},
		"a tunnel":                      {"CONNECT localhost:22 HTTP/1.1\r\nHost: localhost:22\r\n\r\n", "401"},
		"HTTP/2 unasked":                {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "403"},
		"around the open routes":        {"GET /healthz/../sessions HTTP/1.1\r\n" + local + "\r\n", "401"},
		"around them, in code":          {"GET /healthz%2f..%2fsessions HTTP/1.1\r\n" + local + "\r\n", "401"},
		"twice the slash":               {"POST //mcp HTTP/1.1\r\n" + local + json + length + "\r\n" + helloWeb, "401"},
		"a stream's header alone":       {"HEAD /sse HTTP/1.1\r\n" + local + token + bye + "\r\n", "405"},
		"resuming what is not to be":    {"GET /mcp HTTP/1.1\r\n" + local + token + bye + "Last-Event-ID: 1\r\nAccept: text/event-stream\r\n\r\n", "405"},
		"a method in a header":          {"GET /sessions/x HTTP/1.1\r\n" + local + token + bye + "X-HTTP-Method-Override: DELETE\r\n\r\n", "405"},
		"an address in a proxy's words": {post("Host: evil.example\r\nX-Forwarded-Host: localhost\r\nForwarded: host=localhost\r\n"+token+json+length, helloWeb), "403"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, took := slow(t, addr, test.request)
			if _, status, _ := strings.Cut(got, " "); !strings.HasPrefix(status, test.status) {
				t.Errorf("%.300q; want %s", got, test.status)
			}
			if took > 5*time.Second {
				t.Errorf("the connection was open for %v", took)
			}
		})
	}
}

// What a stranger writes into a request does not become lines of the log, nor fill it.
func TestHostileLog(t *testing.T) {
	s := startWeb(t, "--auth-token-file", tokenFile(t, "ann:the-token-of-ann-0123\n"))
	long := strings.Repeat("p", 20_000)
	for _, path := range []string{"/a%0aERR%20forged%20%1b[31m", "/" + long} {
		s.do("GET", path, nil, "")
	}
	s.do("GET", "/", header{"Host", "h" + long}, "")
	s.do("GET", "/", header{"Origin", "http://o" + long, "Sec-Fetch-Site", long}, "")
	s.stderr.await(t, "refused: Origin")
	for l := range strings.Lines(s.stderr.String()) {
		if len(l) > 2000 || strings.Contains(l, "\x1b[31m") || strings.HasPrefix(l, "ERR") {
			t.Errorf("%.300q", l)
		}
	}
}

// A request that follows another on its connection is judged by itself.
func TestPipelinedRequests(t *testing.T) {
	const anns = "the-token-of-ann-0123"
	s := startWeb(t, "--auth-token-file", tokenFile(t, "ann:"+anns+"\n"))
	const mine = "GET /sessions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + anns + "\r\n\r\n"
	got, _ := slow(t, strings.TrimPrefix(s.url, "http://"), mine+mine+"GET /sessions HTTP/1.1\r\nHost: localhost\r\n\r\n"+mine)
	if strings.Count(got, "200 OK") != 2 || strings.Count(got, "401 Unauthorized") != 1 || strings.Count(got, "HTTP/1.1 ") != 3 {
		t.Errorf("%q", got)
	}
}

// Whoever has a token can keep others from nothing by bodies that never come whole.
func TestBodiesLeaveRoom(t *testing.T) {
	const anns, bobs = "the-token-of-ann-0123", "the-token-of-bob-4567"
	s := startWeb(t, "--auth-token-file", tokenFile(t, "ann:"+anns+"\nbob:"+bobs+"\n"))
	addr := strings.TrimPrefix(s.url, "http://")
	piece := strings.Repeat("x", 15<<20)
	crowded := make(chan bool, 8)
	for range cap(crowded) {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		go func() {
			_, _ = fmt.Fprintf(c, "POST /mcp HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", anns, maxLine, piece)
			b := make([]byte, 12)
			_, err := io.ReadFull(c, b)
			crowded <- err != nil || string(b) == "HTTP/1.1 503"
		}()
	}
	for range cap(crowded) - 2 { // two may hold what they have sent
		select {
		case ok := <-crowded:
			if !ok {
				t.Error("a body that had not come whole was answered otherwise")
			}
		case <-time.After(20 * time.Second):
			t.Fatal("bodies take all the memory there is")
		}
	}
	big := map[string]any{"code": "print 1", "inputs": map[string]any{"x": strings.Repeat("x", 7<<20)}}
	for _, call := range []map[string]any{{"code": "print 1"}, big} {
		if r := s.modern(call, bearer(bobs)...); !r.Success {
			t.Errorf("bob: %+v", r)
		}
	}
}
