package srt

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func anywhere(string) error { return nil }

// written is a folder with these files.
func written(t testing.TB, files map[string]string) string {
	t.Helper()
	dir, err := resolved(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestRequirements(t *testing.T) {
	t.Parallel()
	dir := written(t, map[string]string{
		"requirements.txt": "\ufeff# all\n" +
			"numpy\n  pandas >= 2.0 , < 4  # why\r\nUvicorn[standard]==0.30.*\n" +
			"scipy==1.17.1 \\\n    --hash=sha256:aa11 \\\n    --hash=sha256:bb22\n    # via us\n" +
			"old~=1.0;python_version<'3.9'\nodd ; sys_platform == \"linux\" and python_version >= '3.9'\n" +
			"one @ https://example.org/one-1.0-py3-none-any.whl#sha256=00 ; python_version > '3'\n" +
			"wheels/two-1.0-py3-none-any.whl\nhttps://example.org/three-1.0-py3-none-any.whl\n" +
			"-i https://u:${TOKEN}@example.org/simple\n--extra-index-url=http://example.org/x\n--find-links wheels\n-fwheels\n" +
			"--no-index\n--pre\n-r more/other.txt\n-c limits.txt\n--require-hashes\n--only-binary=:all:\n",
		"more/other.txt":                  "plotly\n-r ../requirements.txt\n",
		"limits.txt":                      "numpy<3\n",
		"wheels/two-1.0-py3-none-any.whl": "",
	})
	got, err := readRequirements(filepath.Join(dir, "requirements.txt"), false, anywhere)
	if err != nil {
		t.Fatal(err)
	}
	want := requirements{
		lines: []string{
			"numpy", "pandas >= 2.0 , < 4", "Uvicorn[standard]==0.30.*", "scipy==1.17.1 --hash=sha256:aa11 --hash=sha256:bb22",
			"old~=1.0 ; python_version<'3.9'", `odd ; sys_platform == "linux" and python_version >= '3.9'`,
			"one @ https://example.org/one-1.0-py3-none-any.whl#sha256=00 ; python_version > '3'",
			"file://" + dir + "/wheels/two-1.0-py3-none-any.whl", "https://example.org/three-1.0-py3-none-any.whl",
			"--index-url https://u:${TOKEN}@example.org/simple", "--extra-index-url http://example.org/x",
			"--find-links " + dir + "/wheels", "--find-links " + dir + "/wheels", "--no-index", "--pre",
			"plotly", "--require-hashes", "--only-binary :all:",
		},
		constraints: []string{"numpy<3"},
		variables:   []string{"TOKEN"},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(requirements{})); diff != "" {
		t.Error(diff)
	}
}

func TestRequirementsRefused(t *testing.T) {
	t.Parallel()
	const source, build = "comes as source", true
	for line, want := range map[string]string{
		"-e .":                                 "editable",
		"--editable=git+https://example.org/x": "editable",
		"git+https://example.org/x.git":        source,
		"x @ git+ssh://git@example.org/x.git":  source,
		"x @ https://example.org/x-1.0.tar.gz": source,
		"https://example.org/x.zip":            source,
		"https://example.org/x.zip#y.whl":      source,
		"https://example.org/x.zip?y.whl":      source,
		"./project":                            source,
		".":                                    source,
		"x.zip":                                source,
		"x.tar.gz":                             source,
		"--no-binary :all:":                    "asks for a package as source",
		"--no-binary=x":                        "asks for a package as source",
		"missing.whl":                          "no such file",
		"-r missing.txt":                       "no such file",
		"-r https://example.org/r.txt":         "not on this machine",
		"-f ftp://example.org":                 "neither a path nor an address",
		"--global-option=x":                    "not known",
		"--use-feature x":                      "not known",
		"--index https://example.org":          "not known",
		"-i":                                   "with the value",
		"--pre yes":                            "with the value",
		"-i https://example.org --no-binary x": "spaces",
		"x --global-option=y":                  "other than --hash",
		"x==1 --config-settings=y":             "other than --hash",
		"x ; import os":                        "",
		"x ; ${Y}":                             "no marker",
		"${X}":                                 "no requirement",
		"x y":                                  "no requirement",
		"!":                                    "no requirement",
		"x @ file://${HOME}/x-1.0-py3-none-any.whl":      "no requirement",
		"https://example.org/a.whl https://b/x.tar.gz":   "no requirement",
		"x\\\n@ https://example.org/x-1.0.tar.gz":        source,
		"x # harmless\ny @ https://example.org/y.tar.gz": "requirements.txt:2: " + "https://example.org/y.tar.gz " + source,
	} {
		dir := written(t, map[string]string{"requirements.txt": line})
		got, err := readRequirements(filepath.Join(dir, "requirements.txt"), !build, anywhere)
		switch {
		case want == "" && err == nil:
		case err == nil || !strings.Contains(err.Error(), want) || want == "":
			t.Errorf("%q: %q, %v; want %q", line, got, err, want)
		}
		if want != source {
			continue
		}
		if strings.Contains(line, "project") || line == "x.zip" || line == "x.tar.gz" {
			continue // not there
		}
		if _, err := readRequirements(filepath.Join(dir, "requirements.txt"), build, anywhere); err != nil {
			t.Errorf("%q, though it is allowed: %v", line, err)
		}
	}
}

func TestRequirementsThatAGuestCouldChange(t *testing.T) {
	t.Parallel()
	dir := written(t, map[string]string{
		"requirements.txt": "-r work/more.txt\nwork/x.whl\n--find-links work\n", "work/more.txt": "x", "work/x.whl": "",
	})
	cfg := Config{Workspace: filepath.Join(dir, "work")}
	_, err := readRequirements(filepath.Join(dir, "requirements.txt"), false, cfg.unreachable)
	if err == nil || strings.Count(err.Error(), "can write") != 3 {
		t.Errorf("%v; want three places refused", err)
	}
}

// Whatever a file holds, what is passed on is of a form that both installers read as we do:
// one line, a name or the address of a wheel, or an option of the list.
func FuzzRequirements(f *testing.F) {
	for _, seed := range []string{"numpy>=1 # x", "a\\\nb", "-i https://x/${Y}", "x @ https://y/z.whl ; a<'1'", "--hash=a:b", "-r x\n-c y", "\x0cx", "x\u2028y"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		dir := written(t, map[string]string{"requirements.txt": text})
		got, err := readRequirements(filepath.Join(dir, "requirements.txt"), false, anywhere)
		if err != nil {
			return
		}
		for _, l := range append(got.lines, got.constraints...) {
			if strings.ContainsAny(l, "\r\n\v\f\\\x00\x1c\x1d\x1e\u0085\u2028\u2029") || strings.TrimSpace(l) != l || strings.HasPrefix(l, "#") {
				t.Errorf("%q becomes %q", text, l)
			}
			for _, never := range []string{"-e ", "--editable", "--no-binary", "-r ", "-c ", "--global-option", "--config-settings"} {
				if strings.HasPrefix(l, never) {
					t.Errorf("%q becomes %q", text, l)
				}
			}
			what, _, _ := strings.Cut(l, " ;")
			what, _, _ = strings.Cut(what, " --hash=")
			if at := strings.LastIndex(what, "://"); at >= 0 && !strings.HasPrefix(l, "-") && !strings.Contains(what[at:], ".whl") {
				t.Errorf("%q becomes %q, which is no wheel", text, l)
			}
		}
	})
}
