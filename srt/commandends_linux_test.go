package srt

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"mcp-sandbox/allowlist"
	"mcp-sandbox/sandbox"
)

// besides is a session that runs further programs, by which tests do what nothing on the
// list can.
func besides(t *testing.T, limits sandbox.Limits, programs ...string) *session {
	t.Helper()
	list, err := allowlist.New(allowlist.Options{Dangerously: programs})
	if err != nil {
		t.Fatal(err)
	}
	return lazily(t, local(t, Config{Commands: list, Limits: limits}))
}

// What a command that was killed has spilt is gone with it, or counts as memory until
// the session ends.
func TestCommandsLeaveNoFiles(t *testing.T) {
	asEachUser(t, func(t *testing.T) {
		s := besides(t, sandbox.Limits{}, "bash", "ln", "mkdir", "chmod")
		says(t, s, "echo begin", "begin\n")
		pid := s.warden.cage.Pid()
		for range 3 {
			res, err := typed(t, s, "sort -S 1M /dev/urandom", 700*time.Millisecond)
			if err != nil || res.Status != sandbox.StatusTimeout {
				t.Errorf("%+v, %v", res, err)
			}
			says(t, s, "find /tmp /dev/shm -mindepth 1", "")
		}
		says(t, s, `bash -c 'for i in {1..1000}; do : >/tmp/$i; done; : >"/tmp/a b"; ln -s /workspace /tmp/link; >/dev/shm/x' && ls /dev/shm`, "x\n")
		says(t, s, "find /tmp /dev/shm -mindepth 1", "")
		if used, _ := memoryFiles(pid); used > 64<<10 {
			t.Errorf("%d bytes are held", used)
		}
		if s.warden.cage.Pid() != pid {
			t.Error("the wall was ended for plain files")
		}
		// What no program of the list would leave ends the wall, and the files with it.
		for _, leaves := range []string{"mkdir /tmp/tree && : >/tmp/tree/file", "mkdir -p /tmp/a/b && chmod 0 /tmp/a", ": >/dev/shm/x && chmod 0 /dev/shm"} {
			before := s.warden.cage.Pid()
			says(t, s, "bash -c '"+leaves+"' && echo told", "told\n")
			if s.warden != nil {
				t.Fatalf("%s: the wall stands", leaves)
			}
			says(t, s, "find /tmp /dev/shm -mindepth 1", "")
			if s.warden.cage.Pid() == before {
				t.Error("it is the same")
			}
		}
	})
}

func TestScratchIsEmptied(t *testing.T) {
	dir := t.TempDir()
	dirs, err := openScratch([]string{dir})
	if err != nil {
		t.Fatal(err)
	}
	defer closeAll(dirs)
	outside := filepath.Join(t.TempDir(), "outside")
	if err := errors.Join(os.WriteFile(outside, []byte("x"), 0o644), os.Symlink(outside, filepath.Join(dir, "link"))); err != nil {
		t.Fatal(err)
	}
	for i := range 1000 {
		if err := os.WriteFile(fmt.Sprintf("%s/%d", dir, i), nil, 0); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 { // of an empty one too
		if err := empty(dirs); err != nil {
			t.Fatal(err)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("%v, %v", left, err)
		}
	}
	if _, err := os.Stat(outside); err != nil {
		t.Error(err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "a/b"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := empty(dirs); !errors.Is(err, unix.ENOTEMPTY) {
		t.Errorf("%v", err)
	}
	if _, err := openScratch([]string{filepath.Join(dir, "nothing")}); err == nil {
		t.Error("opened")
	}
}

// A stage that was killed at the limit of memory is no success, wherever it stands.
func TestCommandsOutOfMemoryInAPipe(t *testing.T) {
	sideBySide(t)
	asEachUser(t, func(t *testing.T) {
		s := besides(t, sandbox.Limits{Memory: 256 * mib})
		for _, line := range []string{
			"sort -S 100% /dev/urandom | head -1", "sort -S 100% /dev/urandom | head -1 && echo no", "echo one && sort -S 100% /dev/urandom | wc -l && echo no",
		} {
			res, err := typed(t, s, line, 2*time.Minute)
			if err != nil || res.Status != sandbox.StatusOOM || res.ExitCode != 137 || strings.Contains(res.Stdout, "no") || !strings.Contains(res.Error, "256 MiB") {
				t.Errorf("%s: %+v, %v", line, res, err)
			}
			if s.local.wall.limitsMemory() && !strings.HasPrefix(res.Error, "sort was ended: ") {
				t.Errorf("%s: %s", line, res.Error)
			}
			t.Logf("%v: %s", res.Duration, res.Error)
		}
		says(t, s, "echo here", "here\n")
	})
}

// A stage that was killed makes its step fail, also where nobody counts.
func TestPipelineOfAKilledStage(t *testing.T) {
	w := bareWarden(t)
	p := shell("kill -KILL $$")
	killed := p.Steps[0].Stages[0]
	p.Steps[0].Stages = append(p.Steps[0].Stages, pipelineOf("cat").Steps[0].Stages...)
	p.Steps = append(p.Steps, pipelineOf("echo no").Steps...)
	res := lineBy(t, w, p, 20*time.Second)
	if res.Status != sandbox.StatusError || res.ExitCode != 137 || res.Stdout != "" || res.Error != "sh was ended by signal 9 (killed)" || !slices.Equal(res.Notes, []string{notRun}) {
		t.Errorf("%+v", res)
	}
	// SIGTERM may be anybody's, as other faults of a stage before the last are.
	killed.Args = []allowlist.Arg{{Text: "-c"}, {Text: "kill -TERM $$"}}
	p.Steps[0].Stages[0] = killed
	res = lineBy(t, w, p, 20*time.Second)
	if res.Status != sandbox.StatusOK || res.Stdout != "no\n" || len(res.Notes) != 1 {
		t.Errorf("%+v", res)
	}
}

// What the warden says when it dies is nobody's output.
func TestWardenDiesInSilence(t *testing.T) {
	w := bareWarden(t)
	lineBy(t, w, pipelineOf("true"), 20*time.Second)
	// Without memory the runtime prints where it was, and ends.
	if err := unix.Prlimit(w.cage.Pid(), unix.RLIMIT_DATA, &unix.Rlimit{}, nil); err != nil {
		t.Fatal(err)
	}
	for range 100 {
		args := pipelineOf("true")
		args.Steps[0].Stages[0].Args = make([]allowlist.Arg, 10_000)
		res := lineBy(t, w, args, 20*time.Second)
		if res.Stdout != "" || res.Stderr != "" {
			t.Fatalf("%s: %s%s", res.Status, res.Stdout, res.Stderr)
		}
		if res.Status == sandbox.StatusCrash {
			return
		}
	}
	t.Error("it lives")
}

// Signals from a program that was allowed besides the list do not end the warden, nor
// does what it takes come to its commands as ignored.
func TestWardenTakesSignals(t *testing.T) {
	asEachUser(t, func(t *testing.T) {
		s := besides(t, sandbox.Limits{}, "bash")
		says(t, s, "echo begin", "begin\n")
		pid := s.warden.cage.Pid()
		for sig := 1; sig <= 64; sig++ {
			says(t, s, fmt.Sprintf("bash -c 'kill -%d 1; echo $?'", sig), "0\n")
		}
		says(t, s, "bash -c 'trap : QUIT; kill -QUIT 0; echo $?'", "0\n") // the group of both
		if s.warden.cage.Pid() != pid {
			t.Error("it is another one")
		}
	})
	w := bareWarden(t)
	res := lineBy(t, w, shell("grep -E 'Sig(Ign|Blk)' /proc/self/status"), 20*time.Second)
	if res.Stdout != "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n" {
		t.Errorf("%s", res.Stdout)
	}
}

// A refusal of names that wildcards became says as much as one of typed names.
func TestLateRefusals(t *testing.T) {
	s := besides(t, sandbox.Limits{})
	_, err := s.RunCommand(t.Context(), sandbox.CommandRequest{Pipeline: pipelineOf("find . -delete")})
	var refused *allowlist.Error
	if !errors.As(err, &refused) || refused.Rule != "argument" || !strings.Contains(refused.Found, "-delete") || refused.Offset != -1 {
		t.Errorf("%+v, %v", refused, err)
	}
	res, err := s.RunCommand(t.Context(), sandbox.CommandRequest{Pipeline: pipelineOf("echo first && find . -delete")})
	if err != nil || !strings.HasSuffix(res.Error, "(rule: argument)") {
		t.Errorf("%+v, %v", res, err)
	}
}

// Every command of the list is found by the name that is typed.
func TestWhichFindsAll(t *testing.T) {
	s := besides(t, sandbox.Limits{})
	have, _ := s.local.Commands()
	res, err := typed(t, s, "which "+strings.Join(have, " "), time.Minute)
	if err != nil || res.Status != sandbox.StatusOK || len(strings.Fields(res.Stdout)) != len(have) || !strings.Contains(res.Stdout, "/usr/bin/awk\n") {
		t.Errorf("%+v, %v", res, err)
	}
}
