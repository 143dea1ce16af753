package main_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"image"
	"image/png"
	"os"
	"strings"
	"testing"
)

// shown is an image as a client got it.
type shown struct {
	Data     string `json:"data"`
	MIMEType string `json:"mimeType"`
}

func (s shown) decode(t *testing.T) image.Image {
	t.Helper()
	data, err := base64.StdEncoding.DecodeString(s.Data)
	if err != nil {
		t.Fatal(err)
	}
	picture, err := png.Decode(bytes.NewReader(data))
	if err != nil || s.MIMEType != "image/png" {
		t.Fatalf("%s: %v", s.MIMEType, err)
	}
	return picture
}

// checkPictures compares the two that flow.mjs has drawn, pixel by pixel.
func checkPictures(t *testing.T, seen []shown) {
	t.Helper()
	sizes := []image.Point{{40, 30}, {300, 200}}
	if len(seen) != len(sizes) {
		t.Fatalf("%d pictures", len(seen))
	}
	for i, s := range seen {
		picture := s.decode(t)
		if picture.Bounds().Size() != sizes[i] {
			t.Fatalf("picture %d is %v", i, picture.Bounds())
		}
		for y := range sizes[i].Y {
			for x := range sizes[i].X {
				r, g, b, a := picture.At(x, y).RGBA()
				if r>>8 != uint32(x*7%256) || g>>8 != uint32(y*5%256) || b>>8 != uint32((x+y)%256) || a>>8 != 255 {
					t.Fatalf("picture %d at %d, %d: %d %d %d %d", i, x, y, r>>8, g>>8, b>>8, a>>8)
				}
			}
		}
	}
}

// The Inspector gets the pictures that the TypeScript clients got.
func TestInspectorPictures(t *testing.T) {
	node, dir, server := installed(t, "MCP_SANDBOX_TEST_NODE"), scripts(t), binary(t)
	flow, err := os.ReadFile("../../test/clients/flow.mjs")
	if err != nil {
		t.Fatal(err)
	}
	_, code, _ := strings.Cut(string(flow), "PICTURES = `")
	code, _, _ = strings.Cut(code, "`;")
	code = strings.ReplaceAll(code, `\\`, `\`)
	inspector := "node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js"
	out := run(t, dir, []string{"HOME=" + t.TempDir()}, node, inspector, "--cli", server,
		"--method", "tools/call", "--tool-name", "execute_python", "--tool-arg", "code="+code, "--format", "json", "-q")
	var answer struct {
		Content []struct {
			Type string `json:"type"`
			shown
		} `json:"content"`
		Result json.RawMessage `json:"result"`
	}
	if err := json.Unmarshal([]byte(out), &answer); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if len(answer.Result) > 0 {
		if err := json.Unmarshal(answer.Result, &answer); err != nil {
			t.Fatal(err)
		}
	}
	var seen []shown
	for _, c := range answer.Content {
		if c.Type == "image" {
			seen = append(seen, c.shown)
		}
	}
	checkPictures(t, seen)
}
