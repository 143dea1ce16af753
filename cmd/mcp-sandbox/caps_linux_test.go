package main_test

import (
	"strings"
	"testing"
)

// A plot that meets a limit is told of that limit, whatever the libraries in between make
// of it, and one that meets none is shown.
func TestPlotUnderEachCap(t *testing.T) {
	t.Parallel()
	p := over(t, "2025-06-18", "--python", installed(t, "MCP_SANDBOX_TEST_ANALYST_PYTHON"),
		"--memory", "300MiB", "--max-tasks", "20", "--max-disk", "3MiB")
	const plot = "fig, ax = plt.subplots(); _ = ax.plot(range(9))\n"
	const fill = "def fill(take):\n    got = []\n    try:\n        while True: got.append(take())\n    except (OSError, RuntimeError): return got\n"
	const open, started = "lambda: open('/dev/null')", "lambda: threading.Thread(target=end.wait, daemon=True).start()"
	for _, c := range []struct {
		name, code, status string
		pictures           int
		says               string
	}{
		{"before anything is loaded, no descriptor", fill + "held = fill(" + open + ")\nimport matplotlib.pyplot", "error", 0, "256 files and sockets open at once"},
		{"nothing", "held.clear(); import threading, resource\nimport matplotlib.pyplot as plt, numpy as np\n" + plot, "ok", 1, ""},
		{"descriptors, at the end of the call", plot + "held = fill(" + open + ")", "ok", 1, ""},
		{"descriptors, for a file", plot + "fig.savefig('/tmp/x.png')", "error", 1, "256 files and sockets open at once"},
		{"tasks", "held.clear(); end = threading.Event(); _ = fill(" + started + ")\n" + plot, "ok", 1, ""},
		{"tasks, for a thread", plot + "threading.Thread(target=print).start()", "error", 1, "20 processes and threads at once (--max-tasks)"},
		{"tasks, for a process", plot + "import subprocess; subprocess.run(['true'])", "error", 1, "20 processes and threads at once (--max-tasks)"},
		{"an interrupt that a library sends", plot + "import signal; signal.raise_signal(signal.SIGINT)", "error", 1, "not from a time limit"},
		{"/tmp", "end.set()\n" + plot + "plt.imsave('/tmp/x.png', np.random.rand(1500, 1500))", "error", 1, "(--max-disk)"},
		{"a full /tmp", "def part(n=iter(range(9))):\n    with open('/tmp/%d' % next(n), 'wb') as f: f.write(bytes(1 << 20))\n_ = fill(part)\n" +
			plot + "fig.savefig('/tmp/x.png')", "error", 1, "Full: /tmp.\n\n/tmp holds at most 3 MiB and 100000 files"},
		{"a file of the workspace", plot + "open('x', 'wb').write(bytes(4 << 20))", "error", 1, "a file 3 MiB (--max-disk)"},
		{"/dev/shm", plot + "open('/dev/shm/x', 'wb').write(bytes(2 << 20))\nopen('/dev/shm/y', 'wb').write(bytes(4 << 20))", "error", 1, "a file 3 MiB (--max-disk)"},
		{"memory", "import os; os.remove('/dev/shm/x') if os.path.exists('/dev/shm/x') else None\nplt.imshow(np.zeros((9000, 9000)))", "oom", 0, "memory limit is 300 MiB"},
		{"and after it all", plot, "ok", 1, ""},
	} {
		var got called
		if err := p.ask(map[string]any{"jsonrpc": "2.0", "method": "tools/call", "params": map[string]any{"name": "execute_python", "arguments": map[string]any{"code": c.code}}}, &got); err != nil {
			t.Fatal(err)
		}
		r, pictures := got.Result.StructuredContent, 0
		for _, block := range got.Result.Content {
			if block.Type == "image" {
				pictures++
			}
		}
		if r.Status != c.status || pictures != c.pictures || !strings.Contains(r.Error, c.says) || c.says == "" && r.Error != "" {
			t.Errorf("%s: %s with %d pictures: %s\n%s; want %s with %d, and %q", c.name, r.Status, pictures, r.Error, r.Stderr, c.status, c.pictures, c.says)
		}
	}
}
