package tools

import (
	"context"
	"path"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"mcp-sandbox/sandbox"
)

// linksSince is the revision that brought links to resources. A client of an earlier
// one may refuse a whole result for a kind of content that it does not know.
const linksSince = "2025-06-18"

// links are the resources that a result speaks of: the rest of what was too long for
// it, what the call has shown besides, and the files that it has changed, the newest
// first.
func links(ctx context.Context, r sandbox.Result, session string) []mcp.Content {
	if v := server.RequestProtocolVersion(ctx); session == "" || v != "" && v < linksSince {
		return nil
	}
	var all []mcp.Content
	for _, s := range []struct {
		name  string
		count sandbox.Count
	}{{"stdout", r.Truncated.Stdout}, {"stderr", r.Truncated.Stderr}} {
		if s.count.Rest != "" {
			what := "All of "
			if s.count.Held < s.count.Produced {
				what = "The beginning of "
			}
			all = append(all, link(s.count.Rest, s.name, what+s.name+", in pages.", "text/plain", s.count.Held))
		}
	}
	for _, d := range r.Displays {
		if d.URI != "" {
			all = append(all, link(d.URI, label(d.OriginalMIME), "Shown by this call.", d.OriginalMIME, int64(len(d.Original))))
		}
	}
	for _, f := range r.Files[:min(len(r.Files), maxListed)] {
		all = append(all, link(sandbox.FileURI(session, f.Path), path.Base(f.Path), "Changed by this call.", orElse(sandbox.MIMEOf(f.Path), "application/octet-stream"), f.Size))
	}
	return all
}

func link(uri, name, description, kind string, size int64) mcp.Content {
	l := mcp.NewResourceLink(uri, name, description, kind)
	l.Size = &size
	return l
}
