package tools

import (
	"context"
	"path"
	"slices"

	"github.com/mark3labs/mcp-go/mcp"

	"mcp-sandbox/sandbox"
)

const (
	listedSessions = 50  // directories of sessions that resources/list names
	listedFiles    = 200 // files of the connection's own session that it names
	listedDepth    = 5   // directories deep
)

// listResources is what a client sees without knowing where to look: the workspaces of
// its principal's sessions, and what lies in the connection's own.
func (t *Tools) listResources(ctx context.Context) []mcp.Resource {
	who := t.cfg.Caller(ctx)
	own := t.cfg.Sessions.Own(who)
	var all []mcp.Resource
	sessions := t.cfg.Sessions.List(who.Principal)
	slices.SortFunc(sessions, func(a, b sandbox.Info) int { return b.Used.Compare(a.Used) })
	for _, s := range sessions[:min(len(sessions), listedSessions)] {
		name := "/workspace of session " + s.ID
		if s.ID == own {
			name = "/workspace"
		}
		all = append(all, mcp.NewResource(sandbox.FileURI(s.ID, ""), name, mcp.WithMIMEType("application/json")))
	}
	if own == "" {
		return all
	}
	err := t.cfg.Sessions.Visit(ctx, who, own, func(_ context.Context, s sandbox.Session) error {
		if files, ok := s.(sandbox.Files); ok {
			all = append(all, filesIn(files, own)...)
		}
		if outputs, ok := s.(sandbox.Outputs); ok {
			for _, o := range outputs.Outputs() {
				all = append(all, resource(sandbox.OutputURI(own, o.N), o.Name, o.Size))
			}
		}
		return nil
	})
	if err != nil { // it has ended meanwhile: there is nothing of it to list
		t.cfg.Log.DebugContext(ctx, "resources not listed", "session", own, "err", err)
	}
	return all
}

// filesIn are the files of a workspace, those at the top first.
func filesIn(files sandbox.Files, session string) []mcp.Resource {
	root := files.Root()
	var all []mcp.Resource
	for level, depth := []string{"."}, 0; len(level) > 0 && depth < listedDepth; depth++ {
		var next []string
		for _, dir := range level {
			f, info, err := sandbox.OpenFile(root, dir)
			if err != nil {
				continue
			}
			var entries []sandbox.Entry
			if info.IsDir() {
				entries, _, _ = sandbox.Entries(root, f, dir) // what can't be listed is not
			}
			f.Close()
			for _, e := range entries {
				name := path.Join(dir, e.Name)
				switch {
				case e.Kind == "directory" && len(next) < listedFiles:
					next = append(next, name)
				case e.Kind == "file":
					if len(all) == listedFiles {
						return all
					}
					all = append(all, resource(sandbox.FileURI(session, name), name, e.Size))
				}
			}
		}
		level = next
	}
	return all
}

func resource(uri, name string, size int64) mcp.Resource {
	r := mcp.NewResource(uri, name, mcp.WithMIMEType(orElse(sandbox.MIMEOf(name), "application/octet-stream")))
	r.Size = &size
	return r
}
