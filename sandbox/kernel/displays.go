package kernel

import (
	"bytes"
	"encoding/json"
	"fmt"
	"image"
	"image/jpeg"
	"image/png"
	"regexp"

	"mcp-sandbox/sandbox"
)

// What code shows comes ahead of its reply, each display as a frame that tells
// of it and frames with its bytes. A display that an interrupt cut off is
// forgotten once the next one begins, or the call ends.

// Bounds of what one call may show; displays.py keeps within them.
const (
	maxDisplays     = 32       // of all kinds
	maxDisplayBytes = 32 << 20 // of all together
	maxShown        = 2 << 20  // bytes of one that is shown
	maxOriginal     = 16 << 20 // bytes of one that is kept beside it
	maxImages       = 8        // shown as such
	maxEdge         = 2000     // pixels of an image's longer side: of more a client might make gigabytes
	maxAbout        = 1000     // bytes of what is said of one
	maxShownFrame   = 4096 - 5 // bytes of one in one frame: what a pipe takes all at once or not at all
	maxDisplayFrame = 4096 - 5 // bytes of what tells of one
)

var mediaType = regexp.MustCompile(`^[a-z]{1,20}/[a-zA-Z0-9.+-]{1,80}$`)

// gallery is what a call has shown. It is guarded by the client's mu.
type gallery struct {
	displays []sandbox.Display
	images   int
	bytes    int
	coming   *displayHead
	data     []byte // of the one that is coming, the original's behind its own
}

// displayHead tells of a display.
type displayHead struct {
	ID           string `json:"id"` // the call's
	MIME         string `json:"mime"`
	Size         int    `json:"size"` // bytes; 0 = there is only the original
	OriginalMIME string `json:"original_mime"`
	Original     int    `json:"original"` // bytes that follow after Size; 0 = none
	About        string `json:"about"`
}

func decodeDisplay(payload []byte) (*displayHead, error) {
	var h displayHead
	if err := json.Unmarshal(payload, &h); err != nil {
		return nil, fmt.Errorf("%w: display: %w", errFrame, err)
	}
	switch {
	case !mediaType.MatchString(h.MIME), h.OriginalMIME != "" && !mediaType.MatchString(h.OriginalMIME), h.Original > 0 && h.OriginalMIME == "":
		return nil, fmt.Errorf("%w: display: no media type", errFrame)
	case h.Size < 0 || h.Size > maxShown || h.Original < 0 || h.Original > maxOriginal:
		return nil, fmt.Errorf("%w: display: %d and %d bytes", errFrame, h.Size, h.Original)
	}
	h.About = sandbox.Clip(h.About, maxAbout)
	return &h, nil
}

// takeDisplay accepts a piece of what the call under way shows.
func (c *Client) takeDisplay(kind byte, payload []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.call == nil {
		return fmt.Errorf("%w: a display outside any call", errFrame)
	}
	g := &c.call.gallery
	if kind == kindShown {
		return g.add(payload)
	}
	h, err := decodeDisplay(payload)
	if err != nil {
		return err
	}
	if h.ID != c.call.id {
		return fmt.Errorf("%w: a display of another call", errFrame)
	}
	return g.begin(h)
}

func (g *gallery) begin(h *displayHead) error {
	g.coming, g.data = nil, nil
	if len(g.displays) >= maxDisplays || g.bytes+h.Size+h.Original > maxDisplayBytes {
		return fmt.Errorf("%w: more displays than a call may have", errFrame)
	}
	g.coming = h
	return g.add(nil)
}

// add takes bytes of the display that is coming, and hangs it up once all are there.
func (g *gallery) add(p []byte) error {
	if g.coming == nil || len(g.data)+len(p) > g.coming.Size+g.coming.Original {
		return fmt.Errorf("%w: more of a display than was announced", errFrame)
	}
	g.data = append(g.data, p...)
	h := g.coming
	if len(g.data) < h.Size+h.Original {
		return nil
	}
	g.bytes += len(g.data)
	d := sandbox.Display{MIME: h.MIME, OriginalMIME: h.OriginalMIME, About: h.About}
	if h.Size > 0 {
		d.Data = g.data[:h.Size:h.Size]
	}
	if h.Original > 0 {
		d.Original = g.data[h.Size:]
	}
	if isImage(d.MIME) && len(d.Data) > 0 {
		g.judge(&d)
	}
	g.displays = append(g.displays, d)
	g.coming, g.data = nil, nil
	return nil
}

// judge takes the bytes out of an image that no client should be handed. The
// reading is of its header alone: what the pixels are is for whoever draws them.
func (g *gallery) judge(d *sandbox.Display) {
	var fault string
	switch size, err := imageConfig(d.MIME, d.Data); {
	case err != nil:
		fault = "not shown: it is no valid " + d.MIME
	case size.Width > maxEdge || size.Height > maxEdge:
		fault = fmt.Sprintf("not shown: it has %d x %d pixels", size.Width, size.Height)
	case g.images >= maxImages:
		fault = fmt.Sprintf("not shown, since %d images at most go with a result", maxImages)
	default:
		g.images++
		d.Width, d.Height = size.Width, size.Height
		return
	}
	if len(d.Original) == 0 {
		d.Original, d.OriginalMIME = d.Data, d.MIME
	}
	d.Data, d.About = nil, fault
}

func isImage(mime string) bool { return len(mime) > 6 && mime[:6] == "image/" }

var errImage = fmt.Errorf("not a whole image")

// imageConfig reads the head of a picture of one of the two kinds that every
// model takes, and sees that its end is there.
func imageConfig(mime string, data []byte) (image.Config, error) {
	switch mime {
	case "image/png":
		if !bytes.Contains(data[max(0, len(data)-64):], []byte("IEND\xaeB`\x82")) {
			return image.Config{}, errImage
		}
		return png.DecodeConfig(bytes.NewReader(data))
	case "image/jpeg":
		if !bytes.Contains(data[max(0, len(data)-64):], []byte("\xff\xd9")) {
			return image.Config{}, errImage
		}
		return jpeg.DecodeConfig(bytes.NewReader(data))
	}
	return image.Config{}, errImage
}
