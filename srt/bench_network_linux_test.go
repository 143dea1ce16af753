package srt

import (
	"fmt"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"mcp-sandbox/sandbox"
)

// fetching receives what a server sends until its end, and says how long that took.
const fetching = `
import socket, time
def fetch(port, say):
    took = []
    buffer = bytearray(1 << 20)
    for _ in range(5):
        with socket.create_connection(("127.0.0.1", port)) as s:
            began, total = time.perf_counter(), 0
            s.sendall(say)
            while n := s.recv_into(buffer):
                total += n
            took.append(time.perf_counter() - began)
            assert total >= 256 << 20, total
    return sorted(took)[2]
`

// BenchmarkNetwork has a Python fetch 256 MiB over loopback, outside, and behind the wall
// through the proxy, by turns; the ratio is of the medians of their throughput.
func BenchmarkNetwork(b *testing.B) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	go func() {
		block := make([]byte, 256<<10)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				c.Read(make([]byte, 4096))
				for range 1024 {
					if _, err := c.Write(block); err != nil {
						return
					}
				}
			}()
		}
	}()
	port := l.Addr().(*net.TCPAddr).Port
	box := local(b, Config{Network: network(b, fmt.Sprintf("127.0.0.1:%d", port), "localhost")})
	s, err := box.Open(b.Context(), sandbox.Spec{ID: "fetching"})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	inside := func(say string) float64 {
		res, err := s.Run(b.Context(), sandbox.Request{Code: fetching + fmt.Sprintf("fetch(%d, b%q)", proxyPort, say), Timeout: 5 * time.Minute})
		seconds, bad := strconv.ParseFloat(string(res.Output), 64)
		if err != nil || bad != nil {
			b.Fatal(err, bad, res.Error)
		}
		return seconds
	}
	for b.Loop() {
		out, err := exec.Command(testPython, "-c", fetching+fmt.Sprintf("print(fetch(%d, b'x'))", port)).Output()
		if err != nil {
			b.Fatal(err)
		}
		direct, err := strconv.ParseFloat(strings.TrimSpace(string(out)), 64)
		if err != nil {
			b.Fatal(err)
		}
		tunnel := inside(fmt.Sprintf("CONNECT 127.0.0.1:%d HTTP/1.1\r\n\r\nx", port))
		plain := inside(fmt.Sprintf("GET http://127.0.0.1:%d/ HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n", port, port))
		b.ReportMetric(256/direct, "direct-MiB/s")
		b.ReportMetric(256/tunnel, "tunnel-MiB/s")
		b.ReportMetric(256/plain, "plain-MiB/s")
		b.ReportMetric(direct/tunnel, "tunnel/direct")
		b.ReportMetric(direct/plain, "plain/direct")
	}
}
