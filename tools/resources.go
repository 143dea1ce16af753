package tools

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"mcp-sandbox/sandbox"
)

// templates of the resources. What a session has is not known before it is asked for.
const (
	filesTemplate   = sandbox.URIScheme + "{session_id}/files/{+path}{?offset,limit}"
	outputsTemplate = sandbox.URIScheme + "{session_id}/outputs/{n}{?offset,limit}"
)

// maxReads bounds how many resources are read at once: each takes several times a
// page's memory.
const maxReads = 16

// offerResources has s offer what lies in sessions: their files, and what was too long
// for a result.
func (t *Tools) offerResources(s *server.MCPServer) {
	paging := " Text comes in pages of 100000 bytes, ?offset=N&limit=N for others, ?line=N&lines=N by lines."
	s.AddResourceTemplate(mcp.NewResourceTemplate(filesTemplate, "files",
		mcp.WithTemplateDescription("A file of a session's /workspace; of a directory (path/ or nothing for /workspace) the list, as JSON."+paging)), t.readResource)
	s.AddResourceTemplate(mcp.NewResourceTemplate(outputsTemplate, "outputs",
		mcp.WithTemplateDescription("What was too long or too large for a result, as the result names it."+paging)), t.readResource)
}

// hooks let mcp-go list what changes from call to call, and read what is not spelled as
// its templates want it.
func (t *Tools) hooks() *server.Hooks {
	h := &server.Hooks{}
	h.AddAfterListResources(func(ctx context.Context, _ any, _ *mcp.ListResourcesRequest, result *mcp.ListResourcesResult) {
		result.Resources = append(result.Resources, t.listResources(ctx)...)
	})
	h.AddBeforeReadResource(func(_ context.Context, _ any, req *mcp.ReadResourceRequest) {
		req.Params.URI = escape(req.Params.URI)
	})
	t.offerExternals(h)
	return h
}

// escape spells the characters that no URI has: people and models write paths as they
// read them.
func escape(uri string) string {
	var b strings.Builder
	for i := range len(uri) {
		if c := uri[i]; c == '%' && !escapes(uri[i:]) || c <= ' ' || c >= 0x7f || strings.IndexByte("\"<>\\^`{|}", c) >= 0 {
			fmt.Fprintf(&b, "%%%02X", c)
			continue
		}
		b.WriteByte(uri[i])
	}
	return b.String()
}

// escapes reports whether s begins with % and two hexadecimal digits.
func escapes(s string) bool {
	_, err := url.PathUnescape(s[:min(len(s), 3)])
	return err == nil && len(s) >= 3
}

// place is what a resource's URI names.
type place struct {
	session string
	output  int    // 0 = a file
	path    string // of a file, as sandbox.FilePath gives it
	extent  extent
}

// parsePlace takes a URI apart, or says what would be right.
func parsePlace(uri string) (p place, err error) {
	rest, ok := strings.CutPrefix(uri, sandbox.URIScheme)
	rest, query, _ := strings.Cut(rest, "?")
	session, rest, _ := strings.Cut(rest, "/")
	kind, rest, _ := strings.Cut(rest, "/")
	if !ok || session == "" {
		return p, sandbox.Invalid("a resource is %s or %s", filesTemplate, outputsTemplate)
	}
	p.session = session
	if rest, err = url.PathUnescape(rest); err != nil {
		return p, sandbox.Invalid("the URI has a %% that begins no escape: write %%25")
	}
	switch kind {
	case "files":
		p.path, err = sandbox.FilePath(rest)
	case "outputs":
		if p.output, err = strconv.Atoi(rest); err != nil || p.output <= 0 {
			err = sandbox.Invalid("an output is named by its number, from 1")
		}
	default:
		err = sandbox.Invalid("a session has files and outputs: %s or %s", filesTemplate, outputsTemplate)
	}
	if err != nil {
		return p, err
	}
	p.extent, err = parseExtent(query)
	return p, err
}

// uri names the place.
func (p place) uri() string {
	if p.output > 0 {
		return sandbox.OutputURI(p.session, p.output)
	}
	return sandbox.FileURI(p.session, p.path)
}

func (t *Tools) readResource(ctx context.Context, req mcp.ReadResourceRequest) ([]mcp.ResourceContents, error) {
	start := time.Now()
	p, err := parsePlace(req.Params.URI)
	var all []mcp.ResourceContents
	if err == nil {
		err = t.cfg.Sessions.Visit(ctx, t.cfg.Caller(ctx), p.session, func(ctx context.Context, s sandbox.Session) (err error) {
			select {
			case t.reads <- struct{}{}:
				defer func() { <-t.reads }()
				all, err = p.read(s, req.Params.URI)
				return err
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		})
	}
	t.cfg.Log.DebugContext(ctx, "resource", "session", p.session, "output", p.output, "err", err, "took", time.Since(start))
	if err != nil {
		return nil, t.resourceFault(ctx, err)
	}
	return all, nil
}

// read reads the page, or the directory, that p names.
func (p place) read(s sandbox.Session, uri string) ([]mcp.ResourceContents, error) {
	f, size, name, err := p.open(s)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if size < 0 {
		return p.list(s.(sandbox.Files).Root(), f, uri)
	}
	page, err := p.extent.read(f, size)
	if err != nil {
		return nil, err
	}
	meta := map[string]any{"offset": page.offset, "bytes": len(page.data), "size": size}
	kind := sandbox.MIMEOf(name)
	var all []mcp.ResourceContents
	if page.text {
		all = append(all, mcp.TextResourceContents{Meta: meta, URI: uri, MIMEType: orElse(kind, "text/plain"), Text: string(page.data)})
	} else {
		all = append(all, mcp.BlobResourceContents{
			Meta: meta, URI: uri, MIMEType: orElse(kind, "application/octet-stream"), Blob: base64.StdEncoding.EncodeToString(page.data),
		})
	}
	if next := page.offset + int64(len(page.data)); next < size {
		further := p.uri() + "?" + p.extent.after(page, next)
		meta["next"] = further
		all = append(all, mcp.TextResourceContents{URI: further, MIMEType: "text/plain", Text: fmt.Sprintf(
			"[bytes %d to %d of %d; the next page: %s]", page.offset, next, size, further)})
	}
	return all, nil
}

// open opens what p names; size is -1 for a directory.
func (p place) open(s sandbox.Session) (f *os.File, size int64, name string, err error) {
	if p.output > 0 {
		outputs, ok := s.(sandbox.Outputs)
		if !ok {
			return nil, 0, "", fmt.Errorf("the session keeps no outputs: %w", fs.ErrNotExist)
		}
		f, out, err := outputs.OpenOutput(p.output)
		return f, out.Size, out.Name, err
	}
	files, ok := s.(sandbox.Files)
	if !ok {
		return nil, 0, "", fmt.Errorf("the session has no files here: %w", fs.ErrNotExist)
	}
	f, info, err := sandbox.OpenFile(files.Root(), p.path)
	if err != nil {
		return nil, 0, "", err
	}
	if info.IsDir() {
		return f, -1, p.path, nil
	}
	return f, info.Size(), p.path, nil
}

// listed is an entry of a directory as clients get it.
type listed struct {
	Name     string    `json:"name"`
	Kind     string    `json:"kind"`
	Size     *int64    `json:"size,omitempty"`
	Modified time.Time `json:"modified"`
	URI      string    `json:"uri,omitempty"`
}

func (p place) list(root *os.Root, dir *os.File, uri string) ([]mcp.ResourceContents, error) {
	entries, more, err := sandbox.Entries(root, dir, p.path)
	if err != nil {
		return nil, err
	}
	all := make([]listed, len(entries))
	for i, e := range entries {
		all[i] = listed{Name: sandbox.ValidUTF8([]byte(e.Name)), Kind: e.Kind, Modified: e.Modified.UTC().Truncate(time.Millisecond)}
		at := sandbox.FileURI(p.session, path.Join(p.path, e.Name))
		switch e.Kind {
		case "file":
			all[i].Size, all[i].URI = &e.Size, at
		case "directory":
			all[i].URI = at + "/"
		}
	}
	text, err := json.Marshal(map[string]any{"path": sandbox.ValidUTF8([]byte(p.path)), "entries": all, "more": more})
	if err != nil {
		return nil, err
	}
	return []mcp.ResourceContents{mcp.TextResourceContents{URI: uri, MIMEType: "application/json", Text: string(text)}}, nil
}

// resourceFault puts an error into words for a client, and leaves its code for the
// transport. What the client can't mend it is told in general; the cause is for the log.
func (t *Tools) resourceFault(ctx context.Context, err error) error {
	var e *sandbox.Error
	code := mcp.INVALID_PARAMS
	switch {
	case errors.Is(err, sandbox.ErrUnknownSession), errors.Is(err, fs.ErrNotExist):
		if !server.IsModernRequest(ctx) { // which has no code of its own for it
			code = mcp.RESOURCE_NOT_FOUND
		}
		if errors.Is(err, sandbox.ErrUnknownSession) {
			err = sandbox.ErrUnknownSession
		}
		err = unwrapped(err)
	case errors.As(err, &e) && (e.Status == sandbox.StatusInvalid || e.Status == sandbox.StatusDenied):
		err = e.Err
	default:
		t.cfg.Log.WarnContext(ctx, "a resource can't be read", "err", err)
		code, err = mcp.INTERNAL_ERROR, errors.New("the resource can't be read at present; the server's log has the cause")
	}
	if c, ok := ctx.Value(codeKey{}).(*int); ok {
		*c = code
	}
	return err
}

// unwrapped is an error without the words of the library's sentinel at its end.
func unwrapped(err error) error {
	return errors.New(strings.TrimSuffix(err.Error(), ": "+fs.ErrNotExist.Error()))
}

type codeKey struct{}

// WithCode derives the context of a request, in which the code of a JSON-RPC error is
// left that mcp-go has no way to be told; 0 = none.
func WithCode(ctx context.Context) (context.Context, *int) {
	code := new(int)
	return context.WithValue(ctx, codeKey{}, code), code
}
