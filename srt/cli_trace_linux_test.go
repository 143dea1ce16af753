package srt

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// traced are the calls by which a process could change or reach something. A question mark
// is for those that an architecture or a version of strace does not know.
const traced = "execve,execveat,?open,openat,openat2,?creat,?unlink,unlinkat,?rename,?renameat,renameat2,?link,linkat," +
	"?symlink,symlinkat,?mkdir,mkdirat,?rmdir,?mknod,mknodat,truncate,ftruncate,fallocate,?chmod,fchmod,fchmodat,?fchmodat2," +
	"?chown,?lchown,fchown,fchownat,?utime,?utimes,?futimesat,utimensat,setxattr,lsetxattr,fsetxattr,removexattr,lremovexattr,fremovexattr," +
	"socket,socketpair,connect,bind,listen,accept,accept4,sendto,sendmsg,memfd_create,mount,umount2,ptrace,bpf,io_uring_setup," +
	"settimeofday,clock_settime,adjtimex,sethostname,setuid,setgid,kill,tkill,chroot,pivot_root,unshare,setns"

// event is a call that strace saw.
type event struct {
	pid    string
	call   string
	args   string
	result string // "" = it never came back
}

func (e event) String() string { return fmt.Sprintf("%s(%s) = %s", e.call, e.args, e.result) }

// worked reports whether the call did something, as far as is known.
func (e event) worked() bool { return !strings.HasPrefix(e.result, "-1") }

var quoted = regexp.MustCompile(`"((?:[^"\\]|\\.)*)"`)

// path is the first path among the arguments.
func (e event) path() string {
	if m := quoted.FindStringSubmatch(e.args); m != nil {
		return m[1]
	}
	return ""
}

var number = regexp.MustCompile(`^\d+$`)

// parseTrace reads what strace -f -o wrote. A call that another process interrupted is put
// together again; of one that was cut off by the end, the arguments stay.
func parseTrace(text []byte) ([]event, error) {
	var all []event
	open := map[string]int{} // by process: which of all is not finished
	for s := bufio.NewScanner(bytes.NewReader(text)); s.Scan(); {
		pid, rest, ok := strings.Cut(s.Text(), " ")
		rest = strings.TrimLeft(rest, " ")
		switch {
		case !ok || !number.MatchString(pid):
			return nil, fmt.Errorf("trace: %q", s.Text())
		case strings.HasPrefix(rest, "---"), strings.HasPrefix(rest, "+++"):
			continue
		case strings.HasPrefix(rest, "<... "):
			_, tail, ok := strings.Cut(rest, " resumed>")
			i, is := open[pid]
			if !ok || !is {
				return nil, fmt.Errorf("trace: %q resumes nothing", s.Text())
			}
			delete(open, pid)
			args, result := cutResult(tail)
			all[i].args, all[i].result = all[i].args+args, result
			continue
		}
		call, args, ok := strings.Cut(rest, "(")
		if !ok {
			return nil, fmt.Errorf("trace: %q", s.Text())
		}
		e := event{pid: pid, call: call}
		if begun, ok := strings.CutSuffix(args, " <unfinished ...>"); ok {
			e.args = begun
			open[pid] = len(all)
		} else {
			e.args, e.result = cutResult(args)
		}
		all = append(all, e)
	}
	return all, nil
}

var result = regexp.MustCompile(`^(.*)\) += (.*)$`)

// cutResult splits what follows the name of a call; strace aligns results.
func cutResult(tail string) (args, is string) {
	if m := result.FindStringSubmatch(tail); m != nil {
		return m[1], m[2]
	}
	return tail, ""
}

func canTrace(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can look behind a wall with strace")
	}
	_, err := exec.LookPath("strace")
	required(t, err == nil, "strace")
}

// tracer is a strace that follows a cage's processes from outside.
type tracer struct {
	cmd  *exec.Cmd
	file string
}

// follow attaches to a process of the host and all that it will start.
func follow(t testing.TB, pid int) *tracer {
	t.Helper()
	tr := &tracer{file: filepath.Join(t.TempDir(), "trace")}
	tr.cmd = exec.Command("strace", "-f", "-p", fmt.Sprint(pid), "-o", tr.file, "-s", "512", "-e", "signal=none", "-e", "trace="+traced)
	stderr, err := tr.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := tr.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	late := time.AfterFunc(patience, func() { tr.cmd.Process.Kill() })
	defer late.Stop()
	r := bufio.NewReader(stderr)
	for {
		line, err := r.ReadString('\n')
		if strings.Contains(line, "attached") {
			break
		}
		if err != nil {
			t.Fatalf("strace: %q, %v", line, err)
		}
	}
	go func() { // or a full pipe would stop it
		for err := error(nil); err == nil; _, err = r.ReadString('\n') {
		}
	}()
	return tr
}

// end lets go of what still lives, and returns all that was seen.
func (tr *tracer) end(t testing.TB) []event {
	t.Helper()
	_ = tr.cmd.Process.Signal(syscall.SIGINT) // it has ended with the last process, if none lives
	_ = tr.cmd.Wait()                         // its exit status is that of what it followed
	text, err := os.ReadFile(tr.file)
	if err != nil {
		t.Fatal(err)
	}
	all, err := parseTrace(text)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

var writing = regexp.MustCompile(`\bO_(WRONLY|RDWR|CREAT|TRUNC|APPEND|TMPFILE)\b`)

// harmless are device files that take whatever is written and keep nothing.
var harmless = []string{"/dev/null", "/dev/tty", "/dev/stdout", "/dev/stderr"}

// changes reports whether a call is one that makes, changes or deletes a file, or sends
// something. Failed ones count: they were tried.
func (e event) changes() bool {
	switch e.call {
	case "execve", "execveat", "socket", "socketpair", "connect", "bind", "listen", "accept", "accept4", "sendto", "sendmsg":
		return false
	case "open", "openat", "openat2":
		return writing.MatchString(e.args) && !slices.Contains(harmless, e.path())
	case "kill", "tkill", "setuid", "setgid":
		return false
	}
	return true
}

// spills are the temporary files of sort, which lie in the private /tmp.
var spill = regexp.MustCompile(`^/tmp/sort[A-Za-z0-9]{6}$`)

// connects reports whether a call makes a socket or uses one.
func (e event) connects() bool {
	return slices.Contains([]string{"socket", "socketpair", "connect", "bind", "listen", "accept", "accept4", "sendto", "sendmsg"}, e.call)
}

func TestParseTrace(t *testing.T) {
	const text = `12 openat(AT_FDCWD, "/tmp/a b", O_RDONLY|O_CLOEXEC) = 3
13 openat(AT_FDCWD, "x) = 3", O_WRONLY|O_CREAT, 0666 <unfinished ...>
12 execve("/usr/bin/id", ["id"], 0x1 /* 5 vars */) = -1 ENOENT (No such file or directory)
13 <... openat resumed>)             = 4
12 socket(AF_UNIX, SOCK_STREAM, 0)    = -1 EPERM (Operation not permitted)
13 unlink("cut off" <unfinished ...>
12 --- SIGCHLD {si_signo=SIGCHLD} ---
12 +++ exited with 0 +++
`
	all, err := parseTrace([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	want := []event{
		{"12", "openat", `AT_FDCWD, "/tmp/a b", O_RDONLY|O_CLOEXEC`, "3"},
		{"13", "openat", `AT_FDCWD, "x) = 3", O_WRONLY|O_CREAT, 0666`, "4"},
		{"12", "execve", `"/usr/bin/id", ["id"], 0x1 /* 5 vars */`, "-1 ENOENT (No such file or directory)"},
		{"12", "socket", `AF_UNIX, SOCK_STREAM, 0`, "-1 EPERM (Operation not permitted)"},
		{"13", "unlink", `"cut off"`, ""},
	}
	if !slices.Equal(all, want) {
		t.Errorf("read %q\nwant %q", all, want)
	}
	for i, changes := range []bool{false, true, false, false, true} {
		if want[i].changes() != changes {
			t.Errorf("%v: changes is %t", want[i], !changes)
		}
	}
	if want[2].worked() || !want[1].worked() || want[1].path() != "x) = 3" || !want[3].connects() {
		t.Error("a call was misjudged")
	}
	if _, err := parseTrace([]byte("nonsense\n")); err == nil {
		t.Error("nonsense was read")
	}
}
