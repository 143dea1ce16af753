package srt

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A way to get at more than the list. Each is a line for bash, which is behind the wall in
// these tests alone, and succeeds if the way is open.
type way struct {
	name, line string
	open       bool // behind the wall for Python, which shows that the line would tell
}

var ways = []way{
	{"a shell", `/bin/sh -c true`, true},
	{"perl", `/usr/bin/perl -e 1`, true},
	{"python", `/usr/bin/python3 -I -c 1`, true},
	{"env and a program", `env perl -e 1`, true},
	{"a program of the workspace", `./evil PWNED`, true},
	{"a script of the workspace", `./evil.sh`, true},
	{"a program in /tmp", `cat evil >/tmp/evil && $LOADER /tmp/evil PWNED`, true},
	{"the loader and a program of the workspace", `$LOADER ./evil PWNED`, true},
	{"the loader and a program in /dev/shm", `cat evil >/dev/shm/evil && $LOADER /dev/shm/evil PWNED`, false}, // noexec there too
	{"a library of the workspace", `[[ $(LD_TRACE_LOADED_OBJECTS=1 LD_PRELOAD=/workspace/evil.so ls) == *"/workspace/evil.so ("* ]]`, true},
	{"this binary and Python", `/run/mcp-sandbox/warden exec 'print(1)'`, false},
	{"/proc/self/exe", `/proc/self/exe -c :`, true},
	{"/proc/1/environ", `cat /proc/1/environ`, true},
	{"the descriptors of /proc", `: </dev/fd/2`, true},
	{"awk's system", `[[ $(gawk 'BEGIN { system("echo PWNED") }') == PWNED ]]`, true},
	{"awk's pipes", `[[ $(gawk 'BEGIN { "echo PWNED" | getline x; print x }') == PWNED ]]`, true},
	{"sed's e", `[[ $(sed '1e echo PWNED' f.txt) == PWNED* ]]`, true},
	{"find -exec", `find f.txt -exec perl -e 1 {} +`, true},
	{"tar --to-command", `[[ $(tar -xf a.tar --to-command='echo PWNED') == PWNED ]]`, true},
	{"tar --checkpoint-action", `[[ $(tar -cf /dev/null f.txt --checkpoint=1 --checkpoint-action=exec='echo PWNED') == PWNED* ]]`, true},
	{"tar -I", `[[ $(tar -I ./evil.sh -tf a.tar 2>&1) == *PWNED* ]]`, true},
	{"sort --compress-program", `[[ $(printf %s\\n {1..9999} | sort -S 1k --compress-program=./evil.sh 2>&1) == *PWNED* ]]`, true},
	{"writing in the workspace", `: >new`, true},
	{"changing a file of the workspace", `echo x >>f.txt`, true},
	{"sed -i", `sed -i s/a/b/ f.txt`, true},
	{"sort -o", `sort -o f.txt g.txt`, true},
	{"unpacking", `unzip -o a.zip`, true},
	{"deleting", `find g.txt -delete && [[ ! -e g.txt ]]`, true},
	{"writing in /", `: >/new`, false},
	{"writing in /usr/bin", `: >/usr/bin/new`, false},
	{"changing a program", `: >>/usr/bin/ls`, false},
	{"changing this binary", `: >>/run/mcp-sandbox/warden`, false},
	{"changing /etc/passwd", `: >>/etc/passwd`, false},
	{"the network", `exec 3<>/dev/udp/127.0.0.1/9`, true},
	{"awk's network", `gawk 'BEGIN { s = "/inet/udp/0/127.0.0.1/9"; print "x" |& s; exit ERRNO != "" }'`, true},
	{"a server of the host", `exec 3<>/dev/tcp/127.0.0.1/$PORT`, false},
	{"the clock", `date -s 2001-01-01`, false},
	{"another session by its path", `cat $OTHER/secret`, false},
	{"another session by a link", `cat link`, false},
	{"another session by ..", `cat ../..$OTHER/secret`, false},
	{"the host's users", `grep -q daemon /etc/passwd`, false},
	{"the host's secrets", `cat /etc/shadow`, false},
	{"homes", `ls /root || ls /home`, false},
	{"more memory", `ulimit -d unlimited`, false},
}

func TestCommandWallAttacks(t *testing.T) {
	asEachUser(t, func(t *testing.T) {
		n := nativeWall(t)
		other := workspace(t, n)
		if err := os.WriteFile(filepath.Join(other, "secret"), []byte("hunter2"), 0o644); err != nil {
			t.Fatal(err)
		}
		port, _ := hostServers(t)
		env := []string{"PATH=/usr/bin:/bin", "HOME=/tmp", "LANG=C.UTF-8", "PORT=" + port, "OTHER=" + other, "LOADER=" + loader(t)}
		var script strings.Builder
		want := map[string]bool{}
		for _, w := range ways {
			script.WriteString("if ( " + w.line + "\n) >/dev/null 2>&1 </dev/null; then echo '" + strings.ReplaceAll(w.name, "'", `'\''`) + "'; fi\n")
			if w.open {
				want[w.name] = true
			}
		}
		try := func(p Policy) map[string]bool {
			out, err := tryPython(t, n, p, command{Path: "/usr/bin/bash", Args: []string{"-c", script.String() + "true"}, Env: env, Dir: guestWorkspace})
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			open := map[string]bool{}
			for line := range strings.Lines(out) {
				open[strings.TrimSuffix(line, "\n")] = true
			}
			return open
		}
		dir := attackTree(t, n, other)
		before := contents(t, dir)
		if open := try(commandWall(t, dir, "bash")); len(open) > 0 {
			t.Errorf("open: %q", slices.Sorted(maps.Keys(open)))
		}
		if diff := cmp.Diff(before, contents(t, dir)); diff != "" {
			t.Errorf("the workspace has changed: %s", diff)
		}
		// The lines must tell what is open where it is.
		p := testPolicy(attackTree(t, n, other))
		if diff := cmp.Diff(want, try(p)); diff != "" {
			t.Errorf("open behind the wall for Python, which tells whether the lines work: %s", diff)
		}
	})
}

// attackTree is a workspace with what an attack would bring along.
func attackTree(t *testing.T, n *native, other string) string {
	t.Helper()
	dir := commandTree(t, n)
	evil, err := os.ReadFile("/usr/bin/echo")
	if err != nil {
		t.Fatal(err)
	}
	found, err := filepath.Glob("/usr/lib/*/libz.so.1")
	if err != nil || len(found) == 0 {
		t.Skip("no libz to be brought along")
	}
	library, err := os.ReadFile(found[0])
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{"evil": string(evil), "evil.so": string(library), "evil.sh": "#!/usr/bin/bash\necho PWNED >&2\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(filepath.Join(other, "secret"), filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	return dir
}

// contents are the names in dir, and what the files hold.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(name string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			var content []byte
			content, err = os.ReadFile(name)
			all[name] = string(content)
		} else {
			all[name] = d.Type().String()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// loader is the dynamic loader that programs here ask for.
func loader(t *testing.T) string {
	t.Helper()
	f, err := newFinder("")
	if err != nil {
		t.Fatal(err)
	}
	b, err := f.readELF("/usr/bin/bash")
	if err != nil || b.interpreter == "" {
		t.Fatal(b, err)
	}
	return b.interpreter
}
