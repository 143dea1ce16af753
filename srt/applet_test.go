package srt

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"
)

// spoken is all that a program tells.
type spoken struct {
	code           int
	stdout, stderr string
}

// appletOf runs one of ours as the program of that name.
func appletOf(t *testing.T, args []string, stdin string) spoken {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code, ok := Applet(args, []string{"PATH=/usr/bin:/bin"}, strings.NewReader(stdin), &stdout, &stderr)
	if !ok {
		t.Fatalf("%q is no applet", args)
	}
	return spoken{code, stdout.String(), stderr.String()}
}

// realOf runs the system's own program.
func realOf(t *testing.T, args []string, stdin string) spoken {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = []string{"PATH=/usr/bin:/bin", "LC_ALL=C.UTF-8"}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return spoken{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// lies skips where the system lacks a program to compare with.
func lies(t *testing.T, path string) {
	t.Helper()
	_, err := os.Stat(path)
	required(t, err == nil, path+" is not there to compare with")
}

func TestShasumAsPerls(t *testing.T) {
	const real = "/usr/bin/shasum"
	lies(t, real)
	t.Chdir(t.TempDir())
	write := func(name, text string) {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("a", "hello\n")
	write("empty", "")
	write("with space", "x")
	write("new\nline", "y")
	write(`back\slash`, "z")
	write("crlf", "a\r\nb\rc\r\r\nd\r")
	write("long", strings.Repeat("0123456789\r\n", 100_000))
	write("-b", "named like an option")
	if err := os.Mkdir("dir", 0o755); err != nil {
		t.Fatal(err)
	}
	for _, alg := range []string{"1", "224", "256", "384", "512", "512224", "512256"} {
		for _, mode := range []string{"", "-b", "-U", "--tag"} {
			args := []string{"-a", alg, "a", "empty", "with space", "new\nline", `back\slash`, "crlf", "long"}
			if mode != "" {
				args = append(args, mode)
			}
			write("list"+alg+mode, realOf(t, append([]string{real}, args...), "").stdout)
		}
	}
	mixed := "# comment\n\nnonsense\n" + realOf(t, []string{real, "a"}, "").stdout +
		strings.Repeat("0", 40) + "  a\n" + strings.Repeat("0", 40) + "  missing\n" + strings.Repeat("0", 41) + "  a\n" +
		"SHA256 (a) = 00\nSHA999 (a) = 00\nSHA1 (a = 00\n" + strings.Repeat("A", 64) + " *dir\n" + strings.Repeat("0", 40) + " a\n"
	write("mixed", mixed)
	write("onlymissing", strings.Repeat("0", 40)+"  missing\n")
	write("noend", strings.TrimSuffix(realOf(t, []string{real, "-a", "256", "a"}, "").stdout, "\n"))
	write("upper", strings.ToUpper(realOf(t, []string{real, "-a", "384", "a"}, "").stdout[:96])+"  a\r\n")

	lines := []string{
		"", "-", "- -", "a", "nope", "dir", "a nope empty", "-x", "-a foo", "-a", "-a 3 a", "--st", "--alg=256 a", "--ALG 256 a", "-a256 -- -b", "-ba 256 a",
		"-c nope", "-c dir", "-c a", "-bt a", "--foo -x", "-w a", "-s a", "-q a", "--strict a", "--ignore-missing a", "--tag -b a", "--tag -t a", "--tag -U a", "-v", "-v -x",
		"--bin a", "a -b", "--algorithm a", "--no-bin a", "-a -1 a", "-a 0x1 a", "-bfoo a", "--tag=3 a", "-a256a a", "-a +256 a", "-a 0256 a", "--algorithm",
		"-a 512224 a", "--tag -a 512256 a", "-U crlf", "--t a", "--a 256 a", "--a", "--s a", "--b a", "--U crlf", "--i a", "--=3 a", "--x a", "--te=1 a", "--alg", "--alg x a", "--te a", "-c mixed", "-c -w mixed", "-c -s mixed", "-c -q mixed", "-c --strict mixed", "-c -w --strict -q mixed",
		"-c --ignore-missing mixed", "-c --ignore-missing onlymissing", "-c -s --ignore-missing onlymissing", "-c onlymissing", "-c noend", "-c upper", "-c empty", "-c", "-c -",
		"-c list1 list256", "-c nope list1", "-c list1 nope", "-a 512224 -c list512224", "-c list512224", "-c list512256--tag", "-cw list512--tag mixed",
	}
	for _, alg := range []string{"1", "224", "256", "384", "512", "512224", "512256"} {
		for _, mode := range []string{"", "-b", "-U", "--tag"} {
			lines = append(lines, fmt.Sprintf("-a %s -c list%s%s", alg, alg, mode))
		}
	}
	stdin := strings.Repeat("0", 40) + "  a\n" + "stdin\r\n"
	for _, l := range lines {
		args := strings.Fields(l)
		want := realOf(t, append([]string{real}, args...), stdin)
		if got := appletOf(t, append([]string{"shasum"}, args...), stdin); got != want {
			t.Errorf("shasum %s\ngot  %+v\nwant %+v", l, got, want)
		}
	}
	for _, name := range []string{"new\nline", `back\slash`, "with space", "\x80"} {
		if got, want := appletOf(t, []string{"shasum", name}, ""), realOf(t, []string{real, name}, ""); got != want {
			t.Errorf("%q: got %+v, want %+v", name, got, want)
		}
	}
}

// A line without end is read to no purpose, and costs neither memory nor much time.
func TestShasumOfLongLines(t *testing.T) {
	const real = "/usr/bin/shasum"
	lies(t, real)
	t.Chdir(t.TempDir())
	if err := os.WriteFile("f", []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	good := realOf(t, []string{real, "f"}, "").stdout
	for _, stdin := range []string{
		strings.Repeat("a", 100_000), strings.Repeat("a", 100_000) + "\n" + good, "#" + strings.Repeat("a", 100_000) + "\n" + good,
		good + strings.Repeat(" ", maxCheckLine-1) + "\n" + good, good + strings.Repeat(" ", maxCheckLine) + "\n" + good + strings.Repeat("b", 3*maxCheckLine),
	} {
		args := []string{"shasum", "-c", "-w"}
		if got, want := appletOf(t, args, stdin), realOf(t, append([]string{real}, args[1:]...), stdin); got != want {
			t.Errorf("%d bytes\ngot  %+v\nwant %+v", len(stdin), got, want)
		}
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	begun := time.Now()
	var stdout, stderr bytes.Buffer
	endless := io.LimitReader(zeros{}, 1<<30)
	code, _ := Applet([]string{"shasum", "-c"}, nil, endless, &stdout, &stderr)
	if want := "shasum: standard input: no properly formatted SHA checksum lines found\n"; code != 1 || stdout.Len() > 0 || stderr.String() != want {
		t.Errorf("%d, %q, %q", code, stdout.String(), stderr.String())
	}
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; used > 10*mib {
		t.Errorf("%d bytes for 1 GiB", used)
	}
	t.Logf("1 GiB in one line: %v", time.Since(begun))
}

// zeros is /dev/zero.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// What we do not have is refused, and never answered wrongly.
func TestShasumWithoutBits(t *testing.T) {
	if got := appletOf(t, []string{"shasum", "-0"}, "0101"); got.code != 1 || got.stdout != "" || !strings.Contains(got.stderr, "not available") {
		t.Errorf("%+v", got)
	}
	t.Chdir(t.TempDir())
	if err := os.WriteFile("f", []byte("01"), 0o644); err != nil {
		t.Fatal(err)
	}
	got := appletOf(t, []string{"shasum", "-c"}, strings.Repeat("0", 40)+" ^f\n")
	if got.code != 1 || got.stdout != "f: FAILED open or read\n" || !strings.Contains(got.stderr, "not available") {
		t.Errorf("%+v", got)
	}
	if got := appletOf(t, []string{"shasum", "-h"}, ""); got.code != 0 || !strings.Contains(got.stdout, "--algorithm") {
		t.Errorf("%+v", got)
	}
}

func TestWhichAsDebians(t *testing.T) {
	const real = "/usr/bin/which"
	lies(t, real+".debianutils") // others say other things
	t.Chdir(t.TempDir())
	for name, mode := range map[string]os.FileMode{"program": 0o755, "data": 0o644} {
		if err := os.WriteFile(name, nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	for _, l := range []string{
		"", "ls", "-a ls", "ls cat nope", "nope", "-- ls", "-a -- ls nope cat", "/usr/bin/ls", "/usr/bin", "./program", "./data", "./nope", "/nope/ls", "ls -a", "-aa ls",
	} {
		args := strings.Fields(l)
		want := realOf(t, append([]string{real}, args...), "")
		if got := appletOf(t, append([]string{"which"}, args...), ""); got != want {
			t.Errorf("which %s\ngot  %+v\nwant %+v", l, got, want)
		}
	}
	if got := appletOf(t, []string{"which", "-s", "ls"}, ""); got != (spoken{}) {
		t.Errorf("-s: %+v", got)
	}
	if got := appletOf(t, []string{"which", "-x", "ls"}, ""); got.code != 2 {
		t.Errorf("-x: %+v", got)
	}
}

func TestAppletsAreNamed(t *testing.T) {
	for _, args := range [][]string{nil, {""}, {"mcp-sandbox", "which"}, {"/usr/bin/whichever"}, {"sha256sum"}} {
		if _, ok := Applet(args, nil, nil, nil, nil); ok {
			t.Errorf("%q is an applet", args)
		}
	}
}
