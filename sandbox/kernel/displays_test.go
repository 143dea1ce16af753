package kernel

import (
	"bytes"
	"encoding/json"
	"errors"
	"image"
	"image/color"
	"image/jpeg"
	"image/png"
	"strings"
	"testing"

	"mcp-sandbox/sandbox"
)

func picture(t testing.TB, width, height int) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := png.Encode(&b, image.NewPaletted(image.Rect(0, 0, width, height), color.Palette{color.White})); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func photo(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := jpeg.Encode(&b, image.NewGray(image.Rect(0, 0, 5, 4)), nil); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// show sends a display as a worker does.
func (p *peer) show(id any, mime string, data, original []byte) {
	kind := ""
	if len(original) > 0 {
		kind = "image/png"
	}
	head, err := json.Marshal(map[string]any{"id": id, "mime": mime, "size": len(data), "original": len(original), "original_mime": kind})
	if err != nil {
		p.t.Error(err)
	}
	p.say(kindDisplay, "%s", head)
	for all := append(bytes.Clone(data), original...); len(all) > 0; {
		n := min(len(all), maxShownFrame)
		p.say(kindShown, "%s", all[:n])
		all = all[n:]
	}
}

// shown is the result of a call that shows what script says.
func shown(t *testing.T, script func(p *peer, id any)) (sandbox.Result, *Client, error) {
	t.Helper()
	client := talk(t, Config{}, func(p *peer) {
		p.worker()
		id := p.until("run")["id"]
		script(p, id)
		p.reply(id, `"status":"ok"`)
		p.next()
	})
	res, err := client.Run(t.Context(), req(0))
	return res, client, err
}

func TestDisplays(t *testing.T) {
	big := bytes.Repeat([]byte("o"), 100_000)
	res, _, err := shown(t, func(p *peer, id any) {
		p.show(id, "image/png", picture(t, 3, 2), big)
		p.say(kindDisplay, `{"id":%q,"mime":"text/html","size":10}`, id) // cut off
		p.say(kindShown, "part")
		p.show(id, "image/jpeg", photo(t), nil)
		p.show(id, "text/markdown", []byte("*x*"), nil)
		p.show(id, "text/html", nil, []byte("<p>"))
	})
	if err != nil || res.Status != sandbox.StatusOK || len(res.Displays) != 4 {
		t.Fatalf("%v, %+v", err, res)
	}
	d := res.Displays
	if !bytes.Equal(d[0].Data, picture(t, 3, 2)) || !bytes.Equal(d[0].Original, big) || d[0].Width != 3 || d[0].Height != 2 {
		t.Errorf("the picture: %+v", d[0])
	}
	if d[1].Width != 5 || d[1].Original != nil || string(d[2].Data) != "*x*" || string(d[3].Original) != "<p>" || d[3].Data != nil {
		t.Errorf("%+v", d[1:])
	}
}

// An image that would harm who opens it is not handed on, and breaks nothing.
func TestImagesAreJudged(t *testing.T) {
	whole := picture(t, 3, 2)
	bomb := picture(t, 20_000, 1)
	for name, data := range map[string][]byte{
		"cut short": whole[:len(whole)-12], "a bomb": bomb, "another kind": []byte("GIF89a"), "no image": []byte("no"),
		"magic alone": []byte("\x89PNG\r\n\x1a\n"), "JPEG as PNG": photo(t),
	} {
		res, _, err := shown(t, func(p *peer, id any) { p.show(id, "image/png", data, nil) })
		if err != nil || len(res.Displays) != 1 {
			t.Fatalf("%s: %v, %+v", name, err, res)
		}
		if d := res.Displays[0]; len(d.Data) > 0 || !bytes.Equal(d.Original, data) || !strings.HasPrefix(d.About, "not shown") {
			t.Errorf("%s: %+v", name, d)
		}
	}
	res, _, _ := shown(t, func(p *peer, id any) {
		for range 10 {
			p.show(id, "image/png", whole, nil)
		}
	})
	images := 0
	for _, d := range res.Displays {
		if len(d.Data) > 0 {
			images++
		}
	}
	if images != maxImages || len(res.Displays) != 10 {
		t.Errorf("%d of %d images", images, len(res.Displays))
	}
}

// Who breaks the rules of the channel is ended.
func TestForgedDisplays(t *testing.T) {
	for name, forge := range map[string]func(p *peer, id any){
		"no JSON":           func(p *peer, _ any) { p.say(kindDisplay, "{") },
		"another call's":    func(p *peer, _ any) { p.show("other", "image/png", picture(t, 1, 1), nil) },
		"no media type":     func(p *peer, id any) { p.show(id, "image/png\n", nil, nil) },
		"negative":          func(p *peer, id any) { p.say(kindDisplay, `{"id":%q,"mime":"text/html","size":-1}`, id) },
		"huge":              func(p *peer, id any) { p.say(kindDisplay, `{"id":%q,"mime":"text/html","size":999999999}`, id) },
		"bytes of nothing":  func(p *peer, _ any) { p.say(kindShown, "x") },
		"more than said":    func(p *peer, id any) { p.show(id, "text/html", []byte("x"), nil); p.say(kindShown, "y") },
		"too many":          func(p *peer, id any) { forRange(40, func() { p.show(id, "text/latex", []byte("x"), nil) }) },
		"too much together": func(p *peer, id any) { forRange(3, func() { p.show(id, "text/html", nil, make([]byte, 15<<20)) }) },
		"a large frame":     func(p *peer, id any) { p.say(kindShown, "%s", make([]byte, 5000)) },
	} {
		t.Run(name, func(t *testing.T) {
			res, client, err := shown(t, forge)
			if err != nil || res.Status != sandbox.StatusCrash || !errors.Is(client.Err(), errFrame) {
				t.Errorf("%+v, %v, %v", res, err, client.Err())
			}
		})
	}
}

func forRange(n int, f func()) {
	for range n {
		f()
	}
}

func FuzzDisplays(f *testing.F) {
	f.Add([]byte(`{"id":"1","mime":"image/png","size":3,"original":2,"original_mime":"image/png","about":"a"}`), []byte("abcde"), uint8(2))
	f.Add([]byte(`{"id":"1","mime":"text/html","size":0}`), picture(f, 2, 2), uint8(200))
	f.Fuzz(func(t *testing.T, head, data []byte, piece uint8) {
		h, err := decodeDisplay(head)
		if err != nil {
			return
		}
		var g gallery
		if err := g.begin(h); err != nil {
			t.Fatalf("the first display: %v", err)
		}
		for len(data) > 0 && err == nil {
			n := min(len(data), int(piece)+1)
			err = g.add(data[:n])
			data = data[n:]
		}
		if g.bytes > maxShown+maxOriginal || len(g.displays) > 1 {
			t.Fatalf("%d bytes in %d displays", g.bytes, len(g.displays))
		}
		for _, d := range g.displays {
			if isImage(d.MIME) && len(d.Data) > 0 && (d.Width <= 0 || d.Width > maxEdge || d.Height > maxEdge) {
				t.Fatalf("shown: %+v", d)
			}
		}
	})
}

func FuzzImageConfig(f *testing.F) {
	f.Add(picture(f, 3, 2))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, mime := range []string{"image/png", "image/jpeg", "image/gif"} {
			_, _ = imageConfig(mime, data)
		}
	})
}
