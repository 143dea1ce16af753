package srt

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mcp-sandbox/allowlist"
	"mcp-sandbox/sandbox"
)

// canary is in everything that commands must not read, and in nothing else.
const canary = "CANARY-3b1f"

// forbidden are places outside a session's workspace, by name.
func forbidden(t *testing.T, l *Local, own, other *session) map[string]string {
	t.Helper()
	outside, err := os.MkdirTemp("", "cli-outside-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(outside) })
	if err := os.Chmod(outside, 0o755); err != nil {
		t.Fatal(err)
	}
	// The rights would let everybody read them: that nobody does is the wall's doing.
	server := filepath.Join(l.runtime.path, "server-file")
	for _, name := range []string{filepath.Join(outside, "file"), filepath.Join(other.workspace, "secret"), server} {
		if err := os.WriteFile(name, []byte(canary+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { os.Remove(server) })
	relative, err := filepath.Rel(own.workspace, filepath.Join(other.workspace, "secret"))
	if err != nil {
		t.Fatal(err)
	}
	return map[string]string{
		"a file of the host": filepath.Join(outside, "file"), "its directory": outside,
		"another session's file": filepath.Join(other.workspace, "secret"), "another session's workspace": other.workspace,
		"the same from here": relative, "the server's directory": l.runtime.path, "a file of the server's": server,
		"shadow": "/etc/shadow", "root's home": "/root", "homes": "/home", "the machine's logs": "/var/log", "run": "/run/systemd",
		"its own environment": "/proc/self/environ", "that of PID 1": "/proc/1/environ", "its memory": "/proc/self/mem",
		"descriptors": "/proc/self/fd", "PID 1's root": "/proc/1/root", "devices of the kernel": "/sys/class", "the disk": "/dev/sda",
		"Python": "/usr/lib/python3", "keys": "/etc/ssl/private", "the source of this test": here(t),
	}
}

// readers are commands that show what a path leads to.
var readers = []string{
	"cat %s", "head -c 200 %s", "tail -n 5 %s", "ls -la %s/", "grep -ra . %s", "find %s -type f", "find -L %s -name 'secret'", "sort %s", "wc -l %s",
	"awk 1 %s", "sed -n p %s", "jq -R . %s", "xxd %s", "od -c %s", "strings %s", "diff %s own", "cut -c1- %s", "uniq %s", "tree -l %s",
	"file -f %s", "grep -f %s own", "md5sum %s", "date -f %s", "tar -tf %s", "unzip -l %s", "stat -L %s", "wc --files0-from=%s", "awk -f %s own", "sed -f %s own",
	"md5sum -c %s", "jq --rawfile a %s -n '$a'", "cmp %s own", "cat %s/* %s/.*",
}

// Nothing outside the workspace can be read but the system's public files: not by absolute
// paths, not by .., not through links that a session's Python made.
func TestCommandsReachNothingElse(t *testing.T) {
	asEachUser(t, func(t *testing.T) {
		t.Setenv("MCP_SANDBOX_TEST_SECRET", canary)
		l, s := commandSession(t, Config{}, allowlist.Options{})
		other := lazySession(t, l)
		links := map[string]string{}
		for name, place := range forbidden(t, l, s, other) {
			link := filepath.Join(s.workspace, strings.NewReplacer(" ", "-", "'", "").Replace(name))
			if err := os.Symlink(place, link); err != nil {
				t.Fatal(err)
			}
			links[name] = filepath.Base(link)
			for _, path := range []string{place, filepath.Base(link), "./" + filepath.Base(link), "/workspace/../" + place, "../.." + place} {
				unreadable(t, s, name, path)
			}
		}
		for _, link := range []string{"own", "link-to-own"} {
			if err := os.Symlink("content", filepath.Join(s.workspace, link)); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(s.workspace, "content"), []byte("mine\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		own(t, l.wall, s.workspace)
		own(t, l.wall, other.workspace)
		for _, line := range []string{"grep -rs " + canary[:6] + " /", "find / -name secret -o -name server-file", "grep -rs " + canary[:6] + " . --include=*", "find -L . /workspace/.. -name secret"} {
			res, err := runLine(t, s, line)
			if err != nil || strings.Contains(res.Stdout+res.Stderr, canary) || strings.Contains(res.Stdout, "/secret") || strings.Contains(res.Stdout, "server-file\n") {
				t.Errorf("%s\n%v\n%.1000s%.1000s", line, err, res.Stdout, res.Stderr)
			}
		}
		// What may be read can be, or all this would prove nothing.
		for line, want := range map[string]string{
			"cat link-to-own": "mine\n", "cat ../workspace/own": "mine\n", "cat /workspace/content": "mine\n",
			"cat /etc/passwd | head -1": "root:x:0:0:root:/nonexistent:/usr/sbin/nologin\n", "cat /etc/hostname": "sandbox\n", "ls /usr/share/zoneinfo/UTC": "/usr/share/zoneinfo/UTC\n",
		} {
			if res, err := runLine(t, s, line); err != nil || res.Stdout != want {
				t.Errorf("%s: %v\n%s%s", line, err, res.Stdout, res.Stderr)
			}
		}
		if res, err := runLine(t, other, "cat secret"); err != nil || res.Stdout != canary+"\n" {
			t.Errorf("the other session can't read what is its own: %v, %s%s", err, res.Stdout, res.Stderr)
		}
	})
}

// unreadable tries one path by a few of the readers, in turn, so that each meets many.
func unreadable(t *testing.T, s *session, name, path string) {
	t.Helper()
	for range 2 {
		turn++
		reader := readers[turn%len(readers)]
		line := strings.ReplaceAll(reader, "%s", quote(path))
		res, err := runLine(t, s, line)
		if err != nil {
			t.Errorf("%s: %s\n%v", name, line, err)
		} else if strings.Contains(res.Stdout+res.Stderr, canary) {
			t.Errorf("%s can be read: %s\n%s%s", name, line, res.Stdout, res.Stderr)
		}
	}
	res, err := runLine(t, s, "cat "+quote(path)+"/. "+quote(path))
	if err != nil || res.ExitCode == 0 || strings.TrimSpace(res.Stdout) != "" {
		t.Errorf("%s, %s: %v, %d, %.300q", name, path, err, res.ExitCode, res.Stdout)
	}
}

var turn int // of the readers

// What commands see of an environment is what was constructed for them, in full.
func TestCommandsEnvironment(t *testing.T) {
	asEachUser(t, func(t *testing.T) {
		t.Setenv("MCP_SANDBOX_TEST_SECRET", canary)
		t.Setenv("LC_ALL", "de_DE")
		_, s := commandSession(t, Config{Env: []string{"API_KEY=" + canary}}, allowlist.Options{})
		const all = "HOME=/tmp\nLANG=C.UTF-8\nPATH=/usr/bin:/bin\nPWD=/workspace\nUSER=sandbox\n"
		const json = `{"HOME":"/tmp","LANG":"C.UTF-8","PATH":"/usr/bin:/bin","PWD":"/workspace","USER":"sandbox"}` + "\n"
		for line, want := range map[string]string{
			"env | sort": all, "printenv | sort": all, "env -0 | sort -z | tr '\\0' '\\n'": all, "jq -nSc env": json, "jq -nSc '$ENV'": json,
			"env -i": "", "env -": "", "printenv API_KEY MCP_SANDBOX_TEST_SECRET LC_ALL": "",
			"TZ=UTC LC_ALL=C env | sort":                             "HOME=/tmp\nLANG=C.UTF-8\nLC_ALL=C\nPATH=/usr/bin:/bin\nPWD=/workspace\nTZ=UTC\nUSER=sandbox\n",
			"LANG=C printenv LANG":                                   "C\n",
			"env TZ=UTC printenv TZ LANG":                            "UTC\nC.UTF-8\n",
			"echo $HOME $PWD $USER ~":                                "/tmp /workspace sandbox /tmp\n",
			`awk 'BEGIN {print ENVIRON["API_KEY"] ENVIRON["USER"]}'`: "sandbox\n",
		} {
			res, err := runLine(t, s, line)
			if err != nil {
				t.Errorf("%s: %v", line, err)
			} else if diff := cmp.Diff(want, res.Stdout); diff != "" {
				t.Errorf("%s\n%s", line, diff)
			}
		}
	})
}

// A file that a guest named like an option is a file.
func TestCommandsTakeNamesForNames(t *testing.T) {
	_, s := commandSession(t, Config{}, allowlist.Options{})
	files := map[string]string{"plain": "plain\n"}
	for _, name := range []string{"-delete", "--compress-program=sh", "-exec", "-o", "-i", "--to-command=id", "-f", "$(id)", "`id`", "a;id", "|id", "x\nid", "--help", "@plain"} {
		files[name] = "content of " + name + "\n"
	}
	writeTree(t, s.workspace, files)
	own(t, s.local.wall, s.workspace)
	before := treeState(t, s.workspace)
	for _, line := range []string{"cat *", "sort *", "wc -l *", "ls -la *", "grep -h content *", "head -n1 -q *", "md5sum *", "stat -c %s *", "file *", "tail -n1 -q -- *", "strings *", "cut -c1-7 *", "sha256sum -- *"} {
		res, err := runLine(t, s, line)
		if err != nil || res.Status != sandbox.StatusOK || strings.Count(res.Stdout, "\n") < len(files)-1 { // grep leaves one out
			t.Errorf("%s: %v, %s\n%s%s", line, err, res.Status, res.Stdout, res.Stderr)
		}
	}
	for _, line := range []string{"tar *", "uniq *", "env *", "xxd *", "date *", "sort -k *", "unzip * -p"} {
		if res, err := runLine(t, s, line); err == nil && res.Status == sandbox.StatusOK {
			t.Errorf("%s ran:\n%s", line, res.Stdout)
		}
	}
	for _, line := range []string{"find *", "awk *", "sed *", "awk 1 *", "sed -n p *"} { // whatever they make of it
		if _, err := runLine(t, s, line); err != nil {
			t.Errorf("%s: %v", line, err)
		}
	}
	if diff := cmp.Diff(before, treeState(t, s.workspace)); diff != "" {
		t.Errorf("the workspace has changed:\n%s", diff)
	}
}
