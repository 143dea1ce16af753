package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"mcp-sandbox/sandbox"
	"mcp-sandbox/tools"
)

// benchWeb serves over HTTP like the product, with checkpoints as its argument says
// and a tool besides that does nothing, until its input ends. It prints its address.
func benchWeb() int {
	log := slog.New(slog.DiscardHandler)
	l, err := openLocal(context.Background(), localConfig{log: log, checkpoint: os.Args[1]})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return exitFailed
	}
	sessions, err := sandbox.NewSessions(sandbox.SessionsConfig{Sandbox: l, MaxSessions: 300, Log: log})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return exitFailed
	}
	t, err := tools.New(tools.Config{Sessions: sessions, Caller: httpCaller, Turn: waitTurn, Log: log})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return exitFailed
	}
	server := t.Server()
	server.AddTool(mcp.NewTool("empty"), func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return mcp.NewToolResultText(""), nil
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return exitFailed
	}
	s := newHTTPServer(httpConfig{listener: listener, server: server, sessions: sessions, self: "bench", idle: time.Hour, drain: time.Second, log: log})
	ctx, stop := context.WithCancel(context.Background())
	go func() { _, _ = io.Copy(io.Discard, os.Stdin); stop() }()
	fmt.Printf("http://%s\n", listener.Addr())
	reason := s.serve(ctx)
	return program{stderr: os.Stderr}.end(s, sessions, l, log, webEndLimit, reason)
}

// Warm calls a second over HTTP, each client in a session of its own, against
// an empty tool of the same server; with checkpoints each call is followed by a fork.
func BenchmarkWeb(b *testing.B) {
	for _, clients := range []int{16, 256} {
		for _, checkpoint := range []string{"off", "always"} {
			b.Run(fmt.Sprintf("%d/checkpoint=%s", clients, checkpoint), func(b *testing.B) { benchmarkWeb(b, clients, checkpoint) })
		}
	}
}

func benchmarkWeb(b *testing.B, clients int, checkpoint string) {
	cmd := exec.Command("bench-web", checkpoint)
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			b.Error(err)
		}
	})
	url, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: clients}}
	post := func(session, body string) (*http.Response, string) {
		r, err := http.NewRequest("POST", strings.TrimSpace(url)+"/mcp", strings.NewReader(body))
		if err != nil {
			b.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		if session != "" {
			r.Header.Set("Mcp-Session-Id", session)
		}
		res, err := client.Do(r)
		if err != nil {
			b.Error(err)
			return &http.Response{}, ""
		}
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		if err != nil || strings.Contains(string(text), `"isError":true`) || strings.Contains(string(text), `"error":{`) {
			b.Errorf("%v: %s", err, text)
		}
		return res, string(text)
	}
	sessions := make([]string, clients)
	for i := range sessions {
		res, _ := post("", helloWeb)
		sessions[i] = res.Header.Get("Mcp-Session-Id")
		post(sessions[i], `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"execute_python","arguments":{"code":"x = 0"}}}`)
	}
	const each = 20
	rate := func(tool, arguments string) float64 {
		body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":%q,"arguments":%s}}`, tool, arguments)
		took := timed(func() {
			var wg sync.WaitGroup
			for _, s := range sessions {
				wg.Go(func() {
					for range each {
						post(s, body)
					}
				})
			}
			wg.Wait()
		})
		return float64(each*clients) / took.Seconds()
	}
	rate("execute_python", `{"code":"x += 1"}`) // an interpreter does in its first pauses what its start has left out
	var warm, empty float64
	var n int
	for b.Loop() {
		warm += rate("execute_python", `{"code":"x += 1"}`)
		empty += rate("empty", `{}`)
		n++
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(warm/float64(n), "calls/s")
	b.ReportMetric(empty/float64(n), "empty/s")
	b.ReportMetric(warm/empty, "×empty")
}
