package main_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// Every decoder of what a guest or a client may send, fed with rubbish.
func TestProveFuzz(t *testing.T) {
	proving(t)
	const each = 12 * time.Second
	files, err := filepath.Glob("../../*/*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	deeper, err := filepath.Glob("../../*/*/*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	target := regexp.MustCompile(`(?m)^func (Fuzz\w+)\(`)
	execs := regexp.MustCompile(`execs: (\d+)`)
	for _, file := range append(files, deeper...) {
		src, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range target.FindAllSubmatch(src, -1) {
			name := string(found[1])
			room := strings.TrimPrefix(filepath.Dir(file), "../../")
			cmd := exec.Command("go", "test", "-run", "^$", "-fuzz", "^"+name+"$", "-fuzztime", each.String(), "./"+room)
			cmd.Dir = "../.."
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Errorf("%s of %s: %v\n%s", name, room, err, out)
				continue
			}
			counts := execs.FindAllSubmatch(out, -1)
			if len(counts) == 0 {
				t.Errorf("%s of %s: nothing was tried\n%s", name, room, out)
				continue
			}
			proof("fuzzing: %s of %s, %s inputs in %v, no fault", name, room, counts[len(counts)-1][1], each)
		}
	}
}

func TestProveKills(t *testing.T) {
	proving(t)
	const times = 200
	killServers(t, times)
	if !t.Failed() {
		proof("kills: %d servers killed by SIGKILL at random moments of work; after the next start no process, mount, control group or file was left", times)
	}
}

// How late calls come back that are stopped at their time limit.
func TestProveTimeouts(t *testing.T) {
	proving(t)
	const rounds, limit, promised = 8, 300 * time.Millisecond, 2500 * time.Millisecond
	w := newWire(t, binary(t))
	for _, program := range []struct{ name, code string }{
		{"a loop", "while True: pass"},
		{"a sleep", "import time\ntime.sleep(1000)"},
		{"an await", "import asyncio\nawait asyncio.Event().wait()"},
		{"a grandchild that holds stdout", "import subprocess, time\nsubprocess.Popen(['sh', '-c', 'sleep 98765 & sleep 98765'], start_new_session=True)\ntime.sleep(1000)"},
		{"a large power", "9**9**9"},
		{"SIGINT ignored", "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True:\n    try:\n        while True: pass\n    except BaseException: pass"},
		{"a C call that never looks up", "sum(range(10**13))"},
	} {
		var over []time.Duration
		for range rounds {
			r, took := w.tool("execute_python", map[string]any{"code": program.code, "timeout_s": limit.Seconds()})
			if r.Status != "timeout" {
				t.Fatalf("%s: %+v", program.name, r)
			}
			over = append(over, (took - limit).Round(time.Millisecond))
			if r := w.python("40 + 2"); string(r.Output) != "42" {
				t.Fatalf("after %s: %+v", program.name, r)
			}
		}
		slices.Sort(over)
		proof("time-outs: %s came back %v after its limit at the median of %d, %v at most", program.name, over[rounds/2], rounds, over[rounds-1])
		if over[rounds/2] > promised {
			t.Errorf("%s: %v", program.name, over)
		}
	}
	w.end()
}
