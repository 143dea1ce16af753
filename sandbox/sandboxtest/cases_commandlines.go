package sandboxtest

import (
	"fmt"
	"strings"
	"testing"

	"mcp-sandbox/sandbox"
)

// commandCase is one line and what its Result must be; what is left out must be
// empty.
type commandCase struct {
	command string
	exit    int // 0 = ok, else error
	stdout  string
	stderr  string // a part of it
}

// commandFiles writes, as code does, what the lines of the suite read.
const commandFiles = `
open('a.txt', 'w').write('one\ntwo\nthree\n')
open('b.txt', 'w').write('two\n')
open('-rf', 'w').write('dash\n')
open('n.txt', 'w').write(''.join('%d\n' % i for i in range(1000)))
open('odd \u00e9 name', 'w').write('odd\n')
open('bytes', 'wb').write(b'a\xffb\n')
import os
os.mkdir('sub')
open('here', 'w').write(os.getcwd() + '\n')
_ = open('sub/c.txt', 'w').write('c\n')`

func commandResults(t *testing.T, g *guest) {
	g.step(t, 0, step{code: commandFiles, output: anything})
	var numbers strings.Builder
	for i := range 1000 {
		fmt.Fprintln(&numbers, i)
	}
	for _, c := range []commandCase{
		{command: "cat a.txt", stdout: "one\ntwo\nthree\n"},
		{command: "pwd | cat - here | uniq | wc -l", stdout: "1\n"}, // what code calls the place, commands call it too
		{command: "echo 'a  b' \"c|d\" e\\;f", stdout: "a  b c|d e;f\n"},
		{command: "cat a.txt | sort | head -2", stdout: "one\nthree\n"},
		{command: "cat n.txt | sort -rn | sort -n", stdout: numbers.String()},
		{command: "cat n.txt n.txt n.txt n.txt | head -1", stdout: "0\n"},
		{command: "echo a && echo b | tr b c && echo d", stdout: "a\nc\nd\n"},
		{command: "cat 'odd é name' sub/c.txt", stdout: "odd\nc\n"},
		{command: "cat bytes", stdout: "a\uFFFDb\n"},
		{command: "cat", stdout: ""}, // standard input is empty
		{command: "wc -l a.txt", stdout: "3 a.txt\n"},

		// By bash's rules: the status is the last stage's, and && looks at that.
		{command: "grep four a.txt", exit: 1},
		{command: "cat missing", exit: 1, stderr: "missing"},
		{command: "ls missing", exit: 2, stderr: "missing"},
		{command: "cat missing && echo no", exit: 1, stderr: "missing"},
		{command: "cat missing | wc -l", stdout: "0\n", stderr: "missing"},
		{command: "cat missing | wc -l && echo yes", stdout: "0\nyes\n", stderr: "missing"},
		{command: "echo a && grep four a.txt && echo no", exit: 1, stdout: "a\n"},
		{command: "cat a.txt | grep four", exit: 1},

		// Patterns become names, and a name never an option; quoted, they are text.
		{command: "ls *.txt", stdout: "a.txt\nb.txt\nn.txt\n"},
		{command: "ls sub/*", stdout: "sub/c.txt\n"},
		{command: "echo '*.txt' *.none", stdout: "*.txt *.none\n"},
		{command: "cat *rf", stdout: "dash\n"},
	} {
		t.Run(c.command, func(t *testing.T) { c.run(t, g) })
	}
}

func (c commandCase) run(t *testing.T, g *guest) {
	t.Helper()
	r := g.command(t, c.command, 0)
	want := sandbox.StatusOK
	if c.exit != 0 {
		want = sandbox.StatusError
	}
	if r.Status != want || r.ExitCode != c.exit {
		t.Errorf("status %s with exit code %d, want %s with %d; error: %s", r.Status, r.ExitCode, want, c.exit, r.Error)
	}
	if r.Stdout != c.stdout {
		t.Errorf("stdout is %.300q, want %.300q", r.Stdout, c.stdout)
	}
	if c.stderr == "" && r.Stderr != "" || !strings.Contains(r.Stderr, c.stderr) {
		t.Errorf("stderr is %.300q, want %q in it", r.Stderr, c.stderr)
	}
}
