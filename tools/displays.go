package tools

import (
	"encoding/base64"
	"fmt"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"

	"mcp-sandbox/sandbox"
)

// exhibition is what a call showed, in the ways in which an answer tells of it.
type exhibition struct {
	parts  []part        // of the text, in order
	images []mcp.Content // in order
	notes  []string      // for those who read the structured content alone
}

// part is one part of the text for a model.
type part struct{ heading, body string }

// exhibit hangs up a call's displays.
func exhibit(displays []sandbox.Display) exhibition {
	var e exhibition
	for _, d := range displays {
		what, said := label(d.MIME), remark(d)
		switch {
		case strings.HasPrefix(d.MIME, "image/") && len(d.Data) > 0:
			e.images = append(e.images, mcp.NewImageContent(base64.StdEncoding.EncodeToString(d.Data), d.MIME))
			what = fmt.Sprintf("image %d", len(e.images))
			e.line(what+": "+pixels(d), said)
		case len(d.Data) > 0:
			e.parts = append(e.parts, part{what, sandbox.ValidUTF8(d.Data)})
			if said != "" {
				e.line(what, said)
			}
		default:
			e.line(fmt.Sprintf("%s, %d bytes", what, len(d.Original)), said)
		}
		if said != "" {
			e.notes = append(e.notes, what+": "+said)
		}
	}
	return e
}

func (e *exhibition) line(what, said string) {
	if said != "" {
		what += "; " + said
	}
	e.parts = append(e.parts, part{"", "[" + what + "]"})
}

// remark is what a reader must know of a display besides what it sees.
func remark(d sandbox.Display) string {
	var said []string
	if d.About != "" {
		said = append(said, d.About)
	}
	switch {
	case d.URI == "":
	case len(d.Data) > 0:
		said = append(said, "original: "+d.URI)
	default:
		said = append(said, d.URI)
	}
	return strings.Join(said, "; ")
}

func pixels(d sandbox.Display) string {
	s := strings.ToUpper(strings.TrimPrefix(d.MIME, "image/"))
	if d.Width > 0 {
		s += fmt.Sprintf(", %d x %d", d.Width, d.Height)
	}
	return s
}

// label is a media type as people say it.
func label(mime string) string {
	known := map[string]string{
		"text/html": "HTML", "text/markdown": "Markdown", "text/latex": "LaTeX", "application/json": "JSON",
		"application/vnd.plotly.v1+json": "plotly chart", "application/vnd.vegalite.v5+json": "Vega-Lite chart",
		"image/svg+xml": "SVG", "image/png": "PNG image", "image/jpeg": "JPEG image",
	}
	return orElse(known[mime], mime)
}
