package externals

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"mcp-sandbox/sandbox"
)

// Bounds of a server's list of tools.
const (
	maxPages       = 100
	maxTools       = 2000
	maxDescription = 8 << 10 // bytes of one tool's
	maxSchema      = 64 << 10
	maxList        = 4 << 20 // bytes of all of that of one server
)

// fresh is how long a list is taken for true where no server would tell that it has
// changed.
const fresh = time.Minute

// tool is one of a server's, as far as a guest may know it.
type tool struct {
	sandbox.ExternalTool
	refusal string // why it may not be called; "" = it may
}

// listing is what a server said of its tools.
type listing struct {
	all []tool
	at  time.Time
}

func (l *listing) find(name string) (tool, bool) {
	for _, t := range l.all {
		if t.Name == name {
			return t, true
		}
	}
	return tool{}, false
}

// permitted are the tools that may be called.
func (l *listing) permitted() []sandbox.ExternalTool {
	var all []sandbox.ExternalTool
	for _, t := range l.all {
		if t.refusal == "" {
			all = append(all, t.ExternalTool)
		}
	}
	return all
}

// same reports whether a guest would see no difference.
func (l *listing) same(other *listing) bool {
	return slices.EqualFunc(l.all, other.all, func(a, b tool) bool {
		return a.Name == b.Name && a.Title == b.Title && a.Description == b.Description && a.refusal == b.refusal &&
			string(a.Input) == string(b.Input) && string(a.Output) == string(b.Output)
	})
}

// fetch asks a server for all its tools, page by page.
func (u *upstream) fetch(ctx context.Context, c *conn) (*listing, error) {
	l := &listing{at: time.Now()}
	size := 0
	var request mcp.ListToolsRequest
	seen := map[mcp.Cursor]bool{"": true}
	for range maxPages {
		ctx, capture := withCapture(ctx, false)
		_, err := c.client.ListToolsByPage(ctx, request)
		raw, fault, err := capture.of(err)
		if fault != nil {
			return nil, fmt.Errorf("it lists no tools: %s", oneLine(u.secrets.text(fault.Message), 400))
		}
		var page struct {
			Tools      []json.RawMessage `json:"tools"`
			NextCursor mcp.Cursor        `json:"nextCursor"`
		}
		if len(raw) == 0 {
			return nil, err
		}
		if json.Unmarshal(raw, &page) != nil { // mcp-go's error is about its own types
			return nil, errors.New("it sent a list of tools that can't be read")
		}
		for _, data := range page.Tools {
			t, ok := u.describe(data)
			if _, twice := l.find(t.Name); !ok || twice {
				u.log.Debug("a tool is left out: it has no name, or another's")
				continue
			}
			if size += len(t.Description) + len(t.Input) + len(t.Output); size > maxList || len(l.all) == maxTools {
				u.log.Warn("its further tools are left out: it has too many", "kept", len(l.all))
				return l, nil
			}
			l.all = append(l.all, t)
		}
		if page.NextCursor == "" {
			return l, nil
		}
		if seen[page.NextCursor] {
			return nil, errors.New("its list of tools goes round in circles")
		}
		seen[page.NextCursor] = true
		request.Params.Cursor = page.NextCursor
	}
	return nil, fmt.Errorf("its list of tools has more than %d pages", maxPages)
}

// describe reads one tool; ok is false for what has no name that can be used.
func (u *upstream) describe(data json.RawMessage) (t tool, ok bool) {
	var d struct {
		Name        string          `json:"name"`
		Title       string          `json:"title"`
		Description string          `json:"description"`
		Input       json.RawMessage `json:"inputSchema"`
		Output      json.RawMessage `json:"outputSchema"`
		Annotations struct {
			Title    string `json:"title"`
			ReadOnly bool   `json:"readOnlyHint"`
		} `json:"annotations"`
	}
	if json.Unmarshal(data, &d) != nil || d.Name == "" || len(d.Name) > sandbox.MaxExternalName || oneLine(d.Name, len(d.Name)) != d.Name {
		return tool{}, false
	}
	if d.Title == "" {
		d.Title = d.Annotations.Title
	}
	t.Name = d.Name
	t.Title = oneLine(u.secrets.text(d.Title), 200)
	t.Description = u.secrets.text(d.Description)
	if len(t.Description) > maxDescription {
		t.Description = sandbox.Clip(t.Description, maxDescription)
	}
	t.Input, t.Output = u.schema(d.Input), u.schema(d.Output)
	if u.secrets.text(d.Name) != d.Name {
		return tool{}, false
	}
	t.refusal = u.refusal(d.Name, d.Annotations.ReadOnly)
	return t, true
}

// schema is one without secrets; nil where that leaves none, or it is too large.
func (u *upstream) schema(raw json.RawMessage) json.RawMessage {
	clean, ok := u.secrets.json(raw)
	if !ok || len(clean) > maxSchema || string(clean) == "null" {
		return nil
	}
	return clean
}

// refusal is why a tool may not be called, for a guest to read; "" = it may.
func (u *upstream) refusal(name string, readOnly bool) string {
	s := u.server
	switch {
	case matchesAny(s.Deny, name):
		return "the operator's configuration denies it"
	case s.Allow != nil && !matchesAny(s.Allow, name):
		return "it is not among the tools that the operator's configuration allows"
	case !readOnly && !s.AllowDestructive:
		return "its server does not say that it only reads, and the operator's configuration does not allow others (allowDestructive)"
	}
	return ""
}
