package main_test

import (
	"fmt"
	"image"
	"image/png"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var sessionID = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)

// Each example of the gallery, as a person runs it: its text is the one beside it, and
// its pictures are as many and as large as the text says, with something on them. With
// MCP_SANDBOX_TEST_UPDATE set, the texts are rewritten.
func TestGallery(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	sources, err := filepath.Glob(filepath.Join(root, "examples/gallery/*.py"))
	if err != nil || len(sources) < 13 {
		t.Fatalf("%d examples, %v", len(sources), err)
	}
	for _, source := range sources {
		name := strings.TrimSuffix(filepath.Base(source), ".py")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			python, server := installed(t, "MCP_SANDBOX_TEST_ANALYST_PYTHON"), binary(t)
			limit, out := "100s", t.TempDir()
			if name == "timeout" {
				limit = "20s"
			}
			text, stderr, _ := try(t, root, nil, server, "exec", "--python", python, "--timeout", limit, "--out", out, "-f", source)
			if stderr != "" {
				t.Errorf("stderr: %s", stderr)
			}
			text = sessionID.ReplaceAllString(text, "SESSION")
			golden := strings.TrimSuffix(source, ".py") + ".txt"
			if os.Getenv("MCP_SANDBOX_TEST_UPDATE") != "" {
				if err := os.WriteFile(golden, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(string(want), text); d != "" {
				t.Errorf("(-%s +got)\n%s", golden, d)
			}
			checkSaved(t, out, text)
		})
	}
}

// checkSaved compares the pictures in a directory with what a text says of them.
func checkSaved(t *testing.T, dir, text string) {
	t.Helper()
	said := regexp.MustCompile(`\[image (\d+): PNG, (\d+) x (\d+)`).FindAllStringSubmatch(text, -1)
	for _, s := range said {
		picture := decodeFile(t, filepath.Join(dir, s[1]+".png"))
		size := picture.Bounds().Size()
		if fmt.Sprint(size.X, size.Y) != s[2]+" "+s[3] {
			t.Errorf("image %s is %v, not %s x %s", s[1], size, s[2], s[3])
		}
		if colors(picture) < 3 {
			t.Errorf("image %s is blank", s[1])
		}
	}
	if saved, _ := filepath.Glob(filepath.Join(dir, "[0-9]*.png")); len(saved) != len(said) {
		t.Errorf("%d pictures are saved, the text tells of %d", len(saved), len(said))
	}
}

func decodeFile(t *testing.T, path string) image.Image {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	picture, err := png.Decode(file)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return picture
}

func colors(picture image.Image) int {
	seen := map[string]bool{}
	b := picture.Bounds()
	for y := b.Min.Y; y < b.Max.Y; y += 3 {
		for x := b.Min.X; x < b.Max.X; x += 3 {
			seen[fmt.Sprint(picture.At(x, y))] = true
		}
	}
	return len(seen)
}
