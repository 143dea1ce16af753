package workload

import (
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"
)

// putPiece is a part of a file on its way to the container, or a directory; see
// agent/files.py.
type putPiece struct {
	Path       string `json:"path"`
	ID         string `json:"id"` // of the whole file, so that none is written twice
	Folder     bool   `json:"folder,omitempty"`
	Offset     int64  `json:"offset"`
	Length     int    `json:"length"`
	Last       bool   `json:"last"`
	MTime      int64  `json:"mtime"` // ns
	Executable bool   `json:"executable,omitempty"`
}

// push brings what changed on this side since the last call to the container. It
// returns notes on what it left out; its error is the way's, not a file's.
func (m *mirror) push(ctx context.Context, r *remote) ([]string, error) {
	here, left, err := m.walk()
	if err != nil {
		return nil, err
	}
	if err := m.pushGone(ctx, r, here); err != nil {
		return nil, err
	}
	p := pusher{m: m, r: r, left: left}
	for _, path := range slices.Sorted(maps.Keys(here)) {
		info := here[path]
		was, known := m.known[path]
		switch {
		case info.IsDir() && known && was.dir, !info.IsDir() && known && m.same(path, info, was):
			continue
		case info.IsDir():
			err = p.add(ctx, putPiece{Path: path, Folder: true, ID: "d"}, nil, mirrored{dir: true})
		case p.sent+info.Size() > mirrorBytes:
			left.add("larger than what one call takes along", path)
		default:
			err = p.file(ctx, path)
		}
		if err != nil {
			return nil, err
		}
	}
	if err := p.flush(ctx); err != nil {
		return nil, err
	}
	return left.notes("not in the remote workspace"), nil
}

// walk lists the local workspace.
func (m *mirror) walk() (map[string]fs.FileInfo, omissions, error) {
	here, left := map[string]fs.FileInfo{}, omissions{}
	err := fs.WalkDir(m.root.FS(), ".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case path == ".":
			return err
		case err != nil:
			left.add("can't be read", path)
			return nil
		case strings.HasPrefix(d.Name(), mirrorPrefix):
			return nil
		case !plainPath(path), strings.ToValidUTF8(path, "") != path:
			left.add("a name that can't be sent", path)
		case len(here) >= mirrorMost:
			left.add("beyond the first files", path)
			return fs.SkipAll
		case d.IsDir() && strings.Count(path, "/") >= mirrorDeep:
			left.add("too deep", path)
		case d.IsDir() || d.Type().IsRegular():
			info, err := d.Info()
			if err == nil {
				here[path] = info
				return nil
			}
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			left.add("can't be read", path)
		default:
			left.add("links, pipes and devices", path)
		}
		if d.IsDir() {
			return fs.SkipDir
		}
		return nil
	})
	return here, left, err
}

// pushGone removes there what was removed here.
func (m *mirror) pushGone(ctx context.Context, r *remote, here map[string]fs.FileInfo) error {
	var gone []string
	for path, was := range m.known {
		if info, ok := here[path]; !ok || info.IsDir() != was.dir {
			gone = append(gone, path)
		}
	}
	slices.Sort(gone)
	for part := range slices.Chunk(gone, 1000) {
		if _, err := r.ask(ctx, "/v1/remove", map[string]any{"paths": part}, nil, nil); err != nil {
			return err
		}
	}
	for _, path := range gone {
		delete(m.known, path)
	}
	return nil
}

// pusher gathers pieces until a request is full.
type pusher struct {
	m    *mirror
	r    *remote
	left omissions
	sent int64

	pieces []putPiece
	data   []byte
	done   []mirrored // for each piece that is a file's last: what both sides have then
}

// file sends one file, in parts. One that can't be read, or that changes
// meanwhile, is left out.
func (p *pusher) file(ctx context.Context, path string) error {
	f, info, err := p.m.open(path)
	if err != nil {
		p.left.add("can't be read", path)
		return nil
	}
	defer f.Close()
	sum := sha256.New()
	piece := putPiece{Path: path, ID: randomName(), MTime: info.ModTime().UnixNano(), Executable: info.Mode()&0o111 != 0}
	part := make([]byte, min(info.Size(), mirrorPart))
	for !piece.Last {
		n, err := io.ReadFull(f, part[:min(info.Size()-piece.Offset, int64(len(part)))])
		if err != nil && !errors.Is(err, io.EOF) {
			p.left.add("changes while it is read", path) // what is there of it is never given its name
			return nil
		}
		sum.Write(part[:n])
		piece.Length, piece.Last = n, piece.Offset+int64(n) >= info.Size()
		was := mirrored{}
		if piece.Last {
			p.m.keep(path, info, [sha256.Size]byte(sum.Sum(nil)))
			was = p.m.known[path]
			delete(p.m.known, path) // until it is there
		}
		if err := p.add(ctx, piece, part[:n], was); err != nil {
			return err
		}
		piece.Offset += int64(n)
	}
	p.sent += info.Size()
	return nil
}

const maxPieces = 500 // in one request

func (p *pusher) add(ctx context.Context, piece putPiece, data []byte, was mirrored) error {
	if len(p.pieces) >= maxPieces || len(p.data)+len(data) > mirrorPart {
		if err := p.flush(ctx); err != nil {
			return err
		}
	}
	p.pieces, p.data, p.done = append(p.pieces, piece), append(p.data, data...), append(p.done, was)
	return nil
}

func (p *pusher) flush(ctx context.Context) error {
	if len(p.pieces) == 0 {
		return nil
	}
	var told struct{ Errors []string }
	if _, err := p.r.ask(ctx, "/v1/put", map[string]any{"pieces": p.pieces}, p.data, &told); err != nil {
		return err
	}
	if len(told.Errors) != len(p.pieces) {
		return errAnswer
	}
	for i, piece := range p.pieces {
		switch {
		case told.Errors[i] != "":
			p.left.add(clean(told.Errors[i], 100), piece.Path)
		case piece.Last || piece.Folder:
			p.m.known[piece.Path] = p.done[i]
		}
	}
	p.pieces, p.data, p.done = nil, nil, nil
	return nil
}
