package sandbox

import (
	"errors"
	"fmt"
	"mime"
	"strings"
)

// keepOriginals hands what displays have besides to the outputs of their session, and
// names it. What can't be kept, as where the session has none, is said.
func (r *Result) keepOriginals(s Session, id string) {
	outputs, _ := s.(Outputs)
	for i := range r.Displays {
		d := &r.Displays[i]
		if len(d.Original) == 0 {
			continue
		}
		err := errors.ErrUnsupported
		var kept Output
		if outputs != nil {
			kept, err = outputs.KeepOutput(fmt.Sprintf("display-%d%s", i+1, ending(d.OriginalMIME)), d.Original)
		}
		if err != nil {
			d.About = strings.TrimPrefix(d.About+"; the original could not be kept", "; ")
			continue
		}
		d.URI = OutputURI(id, kept.N)
	}
}

// ending is that of files of a media type.
func ending(mediaType string) string {
	known := map[string]string{"image/png": ".png", "image/jpeg": ".jpg", "image/svg+xml": ".svg", "text/html": ".html", "text/markdown": ".md", "text/latex": ".tex"}
	if e := known[mediaType]; e != "" {
		return e
	}
	if kind, _, err := mime.ParseMediaType(mediaType); err == nil && (strings.HasSuffix(kind, "json")) {
		return ".json"
	}
	return ".bin"
}
