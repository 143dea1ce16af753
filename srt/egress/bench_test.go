package egress

import (
	"fmt"
	"io"
	"net"
	"testing"
	"time"
)

// BenchmarkThroughput transfers 64 MiB at a time over loopback: directly, and through the
// proxy by a tunnel and as a plain response.
func BenchmarkThroughput(b *testing.B) {
	const size = 64 << 20
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
				for left := size; left > 0; left -= len(block) {
					if _, err := c.Write(block); err != nil {
						return
					}
				}
			}()
		}
	}()
	at := l.Addr().String()
	w := newWorld(b, Config{Rules: rules(b, []string{"example.org:7", "example.org"})},
		map[string][]string{"example.org": {"93.184.216.34"}}, map[string]string{"93.184.216.34:7": at, "93.184.216.34:80": at})
	for _, bb := range []struct{ name, at, say string }{
		{"direct", at, "x"},
		{"tunnel", w.at, "CONNECT example.org:7 HTTP/1.1\r\n\r\nx"},
		{"plain", w.at, "GET http://example.org/ HTTP/1.1\r\nHost: example.org\r\n\r\n"},
	} {
		b.Run(bb.name, func(b *testing.B) {
			b.SetBytes(size)
			buf := make([]byte, 256<<10)
			for b.Loop() {
				c, err := net.Dial("tcp", bb.at)
				if err != nil {
					b.Fatal(err)
				}
				c.SetDeadline(time.Now().Add(patience))
				fmt.Fprint(c, bb.say)
				var n int64
				for {
					k, err := c.Read(buf)
					n += int64(k)
					if err == io.EOF {
						break
					}
					if err != nil {
						b.Fatal(err)
					}
				}
				if c.Close(); n < size {
					b.Fatalf("%d bytes", n)
				}
			}
		})
	}
}
