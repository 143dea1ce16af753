package srt

import (
	"fmt"
	"math/rand/v2"
	"os"
	pathpkg "path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcp-sandbox/allowlist"
)

// plan is a line as it would be executed, in words that a shell can only take as they are.
type plan struct {
	line  string
	steps [][][]string // argv by argv
}

// quote makes a word that a shell takes as it is.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// script is the plan for bash, which it gives nothing to read.
func (p plan) script() string {
	var steps []string
	for _, step := range p.steps {
		var stages []string
		for _, argv := range step {
			words := make([]string, len(argv))
			for i, a := range argv {
				words[i] = quote(a)
			}
			stages = append(stages, strings.Join(words, " "))
		}
		steps = append(steps, strings.Join(stages, " | "))
	}
	return "{ " + strings.Join(steps, " && ") + "; } </dev/null >/dev/null"
}

// planner turns lines into plans, in the directory that they are for. Programs are named
// by their place: bash must not take a builtin.
type planner struct {
	list     *allowlist.List
	programs *programs
}

func newPlanner(t testing.TB) planner {
	t.Helper()
	list, err := allowlist.New(allowlist.Options{})
	if err != nil {
		t.Fatal(err)
	}
	found, err := findPrograms(list)
	if err != nil {
		t.Fatal(err)
	}
	return planner{list, found}
}

// line plans an accepted line; false if a command of it is an applet of ours, which runs
// nowhere but in the wall for commands.
func (p planner) line(t testing.TB, line string) (plan, bool) {
	t.Helper()
	pipeline, err := p.list.Parse(line)
	if err != nil {
		t.Errorf("%s\n%v", line, err)
		return plan{}, false
	}
	all := plan{line: line}
	lines := pipelines{resolve: p.list.Resolve}
	for _, step := range pipeline.Steps {
		var stages [][]string
		for _, s := range step.Stages {
			args, err := lines.arguments(s)
			if err != nil {
				t.Errorf("%s\n%v", line, err)
				return plan{}, false
			}
			argv, ok := p.argv(s.Name, args)
			if !ok {
				return plan{}, false
			}
			if len(s.Env) > 0 {
				argv = append(append([]string{"/usr/bin/env"}, s.Env...), argv...)
			}
			stages = append(stages, argv)
		}
		all.steps = append(all.steps, stages)
	}
	return all, true
}

// argv is what is executed for a command; false if it is refused, or an applet.
func (p planner) argv(name string, args []string) ([]string, bool) {
	exec, err := p.list.Resolve(name, args)
	if err != nil {
		return nil, false
	}
	at, ok := p.programs.paths[exec.Program]
	if _, applet := applets[exec.Program]; applet || !ok {
		return nil, false
	}
	return append([]string{at}, exec.Args...), true
}

// dangerous are words by which commands of the list write or run something, and words that
// stand around them.
var dangerous = map[string][]string{
	"find":  {".", "x", "-exec", "-execdir", "-ok", "id", "{}", ";", "+", "-delete", "-fprint", "-fprintf", "-fls", "-fprint0", "out", "-name", "-mtime", "-1", "-newer", "-print", "-o", "!", "(", ")", "-type", "f", "-printf", "%p", "-D", "-O3", "-files0-from"},
	"awk":   {"-f", "prog.awk", "-i", "inplace", "-o", "-oout", "-p", "-d", "-dout", "-W", "exec=prog.awk", "dump-variables=out", "-E", "-l", "fork", "-v", "f=system", "--", "-e", `BEGIN{system("id")}`, `{print > "out"}`, `{print | "id"}`, "1", "BEGIN{@f()}", "{print}", "--version", "-F", ":", "f", "ARGV=x", "--profile=out", "--include", "-n", "-D"},
	"sed":   {"-i", "-n", "-ni", "-E", "--in-place", "--in", "-s", "-e", "p", "w out", "1e id", "s/x/id/e", "s/a/b/w out", "-f", "prog.sed", "f", "--", "r f", "-z", "--posix", "-u", "--debug", "-b", "R f", "W out", "F", "--sandbox", "l 5"},
	"sort":  {"-o", "out", "-oout", "-nro", "--output=out", "--o=out", "--compress-program=sh", "--comp", "-S", "1k", "-T", ".", "-k1", "-t", "o", "-r", "f", "--", "-u", "-m", "--files0-from=f", "-c", "--parallel=2", "--batch-size=2", "-h", "--debug"},
	"uniq":  {"f", "out", "-", "-c", "-f", "1", "--", "-d", "-w", "3", "--group", "-z"},
	"tar":   {"-x", "-c", "-t", "tf", "xf", "a.tar", "-f", "-O", "xOf", "--to-command=id", "--checkpoint=1", "--checkpoint-action=exec=id", "-I", "id", "--use-compress-program=id", "-F", "-M", "--delete", "-u", "-r", "-z", "--rsh-command=id", "h:a.tar", "--index-file=out", "--volno-file=out", "-v", "f", "-C", "sub", "-T", "list", "--exclude=x", "-w", "--remove-files", "--to-stdout", "--get", "-k", "--overwrite", "-P", "-g", "out"},
	"zip":   {"-sf", "a.zip", "out.zip", "f", "-T", "-TT", "id", "-lf", "log", "-d", "-m", "-u", "-r", "-h", "-O", "b.zip", "-sf-", "--show-files", "-@", "-v", "-L", "-q"},
	"unzip": {"-l", "a.zip", "-p", "-o", "-d", "out", "-l-l", "-p-p", "--l", "-T", "-v", "-t", "-Z1", "-x", "f", "-n", "-q", "-c", "-j", "-z", "-C", "-Z", "-:", "-f", "-u"},
	"env":   {"-i", "-S", "id", "-0", "-", "LC_ALL=C", "TZ=UTC", "ls", "sed", "-i", "-C", "sub", "find", ".", "-delete", "A=1", "--", "env", "sort", "-o", "out", "f", "--split-string=id", "PATH=.", "-u", "PATH", "cat"},
	"date":  {"-s", "--set=now", "+%F", "-d", "now", "01010000", "-u", "-us", "-f", "f", "-r", "-R", "-I", "--se", "@0"},
	"file":  {"-C", "--compile", "-m", "magic", "-z", "-p", "-b", "f", "-f", "list", "-Z", "--comp", "-i", "a.zip", "-s", "-k", "-r", "-L", "-P", "bytes=1"},
	"tree":  {"-o", "out", "-R", "-H", ".", "-L", "1", "-aR", "-ao", "--output=out", "-J", "-P", "x", "-I", "--fromfile", "f", "-X", "--filelimit", "2"},
	"xxd":   {"f", "out", "-r", "-p", "-c", "8", "-", "-l", "4", "-s", "1", "-g1", "-i", "-b", "-u", "-R", "always"},
	"diff":  {"-l", "--paginate", "--pag", "a", "b", "-u", "-r", ".", "sub", "--from-file=a", "-D", "X", "--left-column", "-y", "--help", "-N"},
	"cat":   {"f", "-n", "--", "-", "x"}, "grep": {"-r", "id", ".", "-f", "list", "-P", `(?C"id")x`, "-e", "x", "--include=*", "-z"},
	"jq":      {"-n", "input", `"x"|@sh`, "-f", "prog.jq", "f", "-L", ".", `import "x" as x; 1`, "--slurpfile", "a", "j.json", "env", "$ENV", "input_filename", "--args", "--rawfile", "-R", "--stream", "--seq"},
	"strings": {"@list", "f", "-n", "4", "-t", "x", "-d", "-T", "binary", "-a", "-o", "--target=binary"}, "tail": {"-n", "1", "f", "-c", "2", "--", "-q"},
	"stat": {"f", "-c", "%n", "-f", "-L", "--printf=%n", "--cached=always"}, "ls": {"-la", "f", ".", "-R", "--color=always", "-Z", "--hyperlink"},
	"md5sum": {"-c", "list", "f", "--tag", "-z", "--status", "-b"}, "wc": {"-l", "f", "--files0-from=f", "-m"}, "od": {"-c", "f", "-S", "3", "--traditional", "+1"},
}

// argvs makes random argvs of such words that Resolve accepts.
func (p planner) argvs(r *rand.Rand, count int) []plan {
	var names []string
	for name := range dangerous {
		names = append(names, name)
	}
	slices.Sort(names)
	var all []plan
	for len(all) < count {
		name := names[r.IntN(len(names))]
		words := dangerous[name]
		args := make([]string, 1+r.IntN(5))
		for i := range args {
			args[i] = words[r.IntN(len(words))]
		}
		if argv, ok := p.argv(name, args); ok {
			all = append(all, plan{line: fmt.Sprintf("%s %q", name, args), steps: [][][]string{{argv}}})
		}
	}
	return all
}

// offence is what no accepted command may do, in words; "" if a call is none.
func (p planner) offence(e event) string {
	switch {
	case strings.HasPrefix(e.call, "exec"):
		if !p.listed(e.path()) {
			return "executed something that is not on the list"
		}
	case e.connects():
		return "made or used a socket"
	case e.changes() && !spill.MatchString(e.path()) && !spilled(e):
		return "wrote or changed a file"
	}
	return ""
}

// withoutNameCache leaves out that the C library, before it reads /etc/passwd, asks for the
// daemon that might know the names: one socket to one place, which the wall for commands
// refuses besides.
func withoutNameCache(events []event) []event {
	var kept []event
	asking := map[string]int{} // by process: where in kept its socket is
	for _, e := range events {
		i, asked := asking[e.pid]
		delete(asking, e.pid)
		switch {
		case e.call == "socket" && strings.HasPrefix(e.args, "AF_UNIX, SOCK_STREAM|SOCK_CLOEXEC|SOCK_NONBLOCK"):
			asking[e.pid] = len(kept)
		case asked && e.call == "connect" && strings.Contains(e.args, `sun_path="/var/run/nscd/socket"`):
			kept[i].call = "close" // it led nowhere else
			continue
		}
		kept = append(kept, e)
	}
	return slices.DeleteFunc(kept, func(e event) bool { return e.call == "close" })
}

// spilled are the calls on sort's own descriptors, which its temporary files alone have.
func spilled(e event) bool { return e.call == "ftruncate" || e.call == "fallocate" }

// listed reports whether a program is of the list, or one that tar starts.
func (p planner) listed(at string) bool {
	dir, name := pathpkg.Split(pathpkg.Clean(at))
	if dir != "/usr/bin/" && dir != "/bin/" {
		return false
	}
	return name == "gawk" || slices.Contains(p.list.Commands(), name) || slices.Contains(p.list.Helpers(), name)
}

var caseMark = regexp.MustCompile(`^/case/(\d+)$`)

// runTraced runs scripts one after the other by bash behind the wall of p, and returns for
// each what strace saw of it.
func runTraced(t *testing.T, n *native, p Policy, scripts []string) [][]event {
	t.Helper()
	var b strings.Builder
	b.WriteString("read -r -u 3 go\nexec 3<&- 2>/dev/null\n")
	for i, s := range scripts {
		// The mark is a file that is not there; looking for it shows in the trace.
		fmt.Fprintf(&b, ": </case/%d\n%s\n", i, s)
	}
	fmt.Fprintf(&b, "wait\n: </case/%d\n", len(scripts))
	goR, goW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer closeAll([]*os.File{goR, goW})
	c, err := n.start(t.Context(), p, command{
		Path: "/usr/bin/bash", Args: []string{"--norc", "--noprofile", "/run/script"}, Dir: guestWorkspace,
		Env: bashEnv, Files: map[string][]byte{"/run/script": []byte(b.String())}, Extra: []*os.File{goR},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	tr := follow(t, c.Pid())
	if _, err := goW.WriteString("go\n"); err != nil {
		t.Fatal(err)
	}
	late := time.AfterFunc(5*patience, func() { c.Kill() })
	state := c.Wait()
	late.Stop()
	seen := make([][]event, len(scripts)+1)
	at := -1
	for _, e := range tr.end(t) {
		if m := caseMark.FindStringSubmatch(e.path()); m != nil {
			if _, err := fmt.Sscan(m[1], &at); err != nil {
				t.Fatal(err)
			}
		} else if at >= 0 {
			seen[at] = append(seen[at], e)
		}
	}
	if at != len(scripts) {
		t.Fatalf("the script ended at case %d of %d (%v): %s", at, len(scripts), state, scripts[max(at, 0)])
	}
	return seen[:len(scripts)]
}

// effects runs plans behind a wall that would let them write and run anything, and reports
// each that did.
func effects(t *testing.T, n *native, dir string, p planner, plans []plan) {
	t.Helper()
	scripts := make([]string, len(plans))
	for i, pl := range plans {
		scripts[i] = pl.script()
	}
	before := treeState(t, dir)
	seen := runTraced(t, n, Policy{Workspace: Mount{Host: dir, Writable: true}, AllowExec: true, Memory: 1 << 30}, scripts)
	executed := 0
	for i, events := range seen {
		for _, e := range withoutNameCache(events) {
			if why := p.offence(e); why != "" {
				t.Errorf("%s\n%s: %v", plans[i].line, why, e)
			}
			if strings.HasPrefix(e.call, "exec") && e.worked() {
				executed++
			}
		}
	}
	if executed < len(plans) {
		t.Errorf("of %d plans only %d programs were seen being executed", len(plans), executed)
	}
	if diff := cmp.Diff(before, treeState(t, dir)); diff != "" {
		t.Errorf("the workspace has changed:\n%s", diff)
	}
}

// effectsTree is the tree for both honest commands and those of the corpus.
func effectsTree(t *testing.T, n *native) string {
	t.Helper()
	dir := workspace(t, n)
	dataTree(t, dir)
	corpusTree(t, dir)
	own(t, n, dir)
	return dir
}

// third is every third of all, or all of them where there is time.
func third[T any](all []T) []T {
	if proving() {
		return all
	}
	var some []T
	for i := 0; i < len(all); i += 3 {
		some = append(some, all[i])
	}
	return some
}

func proving() bool { return os.Getenv("MCP_SANDBOX_PROVE") == "1" }

// acceptedPlans are the corpus' and the honest lines as they would be executed.
func acceptedPlans(t *testing.T, p planner) []plan {
	t.Helper()
	required(t, len(p.programs.missing()) == 0, fmt.Sprint("all commands of the list: ", p.programs.missing()))
	lines := corpusLines(t, "allow")
	for _, line := range honestLines(t) {
		lines = append(lines, line.command)
	}
	lines = third(lines)
	t.Chdir(effectsTree(t, nativeWall(t)))
	var plans []plan
	for _, line := range lines {
		if pl, ok := p.line(t, line); ok {
			plans = append(plans, pl)
		}
	}
	if len(plans) < len(lines)*9/10 {
		t.Errorf("of %d lines only %d were run", len(lines), len(plans))
	}
	return plans
}

// Without the wall for commands, what the validator accepts still writes nothing, runs
// nothing that is not on the list, and opens no socket.
func TestAcceptedHasNoEffect(t *testing.T) {
	canTrace(t)
	p := newPlanner(t)
	plans := append(acceptedPlans(t, p), p.argvs(rand.New(rand.NewPCG(4, 0)), 120)...)
	effects(t, nativeWall(t), here(t), p, plans)
	t.Logf("%d plans", len(plans))
}

// here is the directory that a test has gone to.
func here(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// The oracle sees what it is there to see.
func TestEffectsAreSeen(t *testing.T) {
	canTrace(t)
	n, p := nativeWall(t), newPlanner(t)
	dir := effectsTree(t, n)
	scripts := []string{
		"sed -i s/a/b/ f", `gawk 'BEGIN{system("id")}'`, "touch new", "rm x", "echo >out", "mkdir d", "chmod 600 f", "ln -s f l", "mv a c",
		"python3 -I -c 'import socket; socket.socket()'", "sort -o out f", "find . -name in -delete", "./x", "truncate -s 0 b", "touch f",
	}
	for i, events := range runTraced(t, n, Policy{Workspace: Mount{Host: dir, Writable: true}, AllowExec: true, Memory: 1 << 30}, scripts) {
		if !slices.ContainsFunc(events, func(e event) bool { return p.offence(e) != "" }) {
			t.Errorf("%s: nothing was seen of it in %v", scripts[i], events)
		}
	}
}

// All of them, and many more argvs, by `make prove`.
func TestProveAcceptedHasNoEffect(t *testing.T) {
	if !proving() {
		t.Skip("runs by make prove")
	}
	canTrace(t)
	const rounds, each = 10, 1000
	p := newPlanner(t)
	plans := acceptedPlans(t, p)
	effects(t, nativeWall(t), here(t), p, plans)
	r := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 0))
	for range rounds {
		effects(t, nativeWall(t), here(t), p, p.argvs(r, each))
	}
	if !t.Failed() {
		fmt.Printf("PROOF: commands, watched by strace without their wall: %d accepted lines and %d random argvs of dangerous words that the rules accept; no write, no program off the list, no socket\n",
			len(plans), rounds*each)
	}
}
