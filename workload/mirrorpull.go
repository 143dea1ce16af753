package workload

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"

	"mcp-sandbox/sandbox"
)

// UnmarshalJSON takes the list that the agent sends for each entry: path, kind,
// size, time.
func (f *remoteFile) UnmarshalJSON(b []byte) error {
	var fields [4]json.RawMessage
	if err := json.Unmarshal(b, &fields); err != nil {
		return err
	}
	for i, to := range []any{&f.Path, &f.Kind, &f.Size, &f.MTime} {
		if err := json.Unmarshal(fields[i], to); err != nil {
			return err
		}
	}
	if f.Size < 0 || f.Kind != "f" && f.Kind != "d" {
		return errAnswer
	}
	return nil
}

// ask asks the agent what changed in the workspace since the last call.
func (m *mirror) ask(ctx context.Context, r *remote) (*changes, error) {
	var c changes
	_, err := r.ask(ctx, "/v1/changes", map[string]any{"version": m.version}, nil, &c)
	return &c, err
}

// pull brings what changed in the container here. It returns the files that did,
// and notes on what it left out; its error is the way's, not a file's, and then
// the next call tries the rest.
func (m *mirror) pull(ctx context.Context, r *remote, c *changes) ([]sandbox.File, []string, error) {
	p := puller{m: m, r: r, left: omissions{}, changed: map[string]int64{}, room: m.disk - m.size()}
	p.remove(c)
	var todo []remoteFile
	for _, f := range c.Changed {
		switch {
		case !plainPath(f.Path):
			p.left.add("a name that can't be used here", f.Path)
		case f.Kind == "d":
			p.folder(f.Path)
		case p.conflict(f.Path):
			p.left.add("changed on both sides; the one here is kept", f.Path)
		default:
			todo = append(todo, f)
		}
	}
	slices.SortFunc(todo, func(a, b remoteFile) int { return int(min(max(a.Size-b.Size, -1), 1)) }) // many small ones rather than a large one
	for len(todo) > 0 {
		n, err := p.some(ctx, todo)
		if err != nil {
			return filesOf(p.changed), nil, err
		}
		todo = todo[n:]
	}
	m.version = c.Version
	notes := p.left.notes("not brought back from the container")
	for _, why := range slices.Sorted(maps.Keys(c.Left)) {
		notes = append(notes, fmt.Sprintf("not brought back from the container: %s (%d)", clean(why, 100), c.Left[why]))
	}
	return filesOf(p.changed), notes, nil
}

// puller is one pull under way.
type puller struct {
	m       *mirror
	r       *remote
	left    omissions
	changed map[string]int64 // path → size
	room    int64            // bytes that may yet come
	got     int64            // bytes that came
}

// remove takes away here what is gone there, unless it was changed here.
func (p *puller) remove(c *changes) {
	gone := slices.Clone(c.Gone)
	if c.Full { // whatever else was known
		there := map[string]bool{}
		for _, f := range c.Changed {
			there[f.Path] = true
		}
		for known := range p.m.known {
			if !there[known] {
				gone = append(gone, known)
			}
		}
	}
	slices.Sort(gone)
	slices.Reverse(gone) // what is in a directory before the directory
	for _, name := range gone {
		was, known := p.m.known[name]
		if !known || !plainPath(name) {
			continue
		}
		info, err := p.m.root.Lstat(name)
		if err == nil && (was.dir && info.IsDir() || p.m.same(name, info, was)) {
			_ = p.m.root.Remove(name) // a directory that holds what is not known stays
		}
		p.room += was.size
		delete(p.m.known, name)
	}
}

func (p *puller) folder(name string) {
	if info, err := p.m.root.Lstat(name); err == nil && !info.IsDir() {
		if was, known := p.m.known[name]; !known || !p.m.same(name, info, was) || p.m.root.Remove(name) != nil {
			p.left.add("changed on both sides; the one here is kept", name)
			return
		}
	}
	if err := p.m.root.MkdirAll(name, 0o755); err != nil {
		p.left.add(reason(err), name)
		return
	}
	p.m.known[name] = mirrored{dir: true}
}

// conflict reports whether a file here is not what both sides last had.
func (p *puller) conflict(name string) bool {
	info, err := p.m.root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false
	}
	was, known := p.m.known[name]
	return err != nil || !known || !was.dir && !p.m.same(name, info, was)
}

// getPiece is a part of a file that is asked for, gotPiece what came of it.
type getPiece struct {
	Path   string `json:"path"`
	Offset int64  `json:"offset"`
	Size   int64  `json:"size"`
}

type gotPiece struct {
	Size    int64
	Changed int64 // ns
	Length  int64
	Error   string

	Executable bool
}

// some brings the first files of a list, as many as fit one answer, or one large
// one; it returns how many.
func (p *puller) some(ctx context.Context, todo []remoteFile) (int, error) {
	var wanted []getPiece
	var size int64
	for _, f := range todo[:min(len(todo), maxPieces)] {
		if size += f.Size; size > mirrorPart && len(wanted) > 0 {
			break
		}
		wanted = append(wanted, getPiece{Path: f.Path, Size: min(f.Size+1, mirrorPart)})
	}
	if f := todo[0]; f.Size > p.room+p.m.known[f.Path].size {
		p.left.add("beyond the disk limit of the workspace", f.Path)
		return 1, nil
	} else if p.got+f.Size > mirrorBytes {
		p.left.add("larger than what one call brings back", f.Path)
		return 1, nil
	} else if f.Size >= mirrorPart {
		return 1, p.large(ctx, f)
	}
	pieces, data, err := p.fetch(ctx, wanted)
	if err != nil {
		return 0, err
	}
	for i, piece := range pieces {
		part := data[:piece.Length]
		data = data[piece.Length:]
		switch {
		case piece.Error != "":
			p.left.add(clean(piece.Error, 100), wanted[i].Path)
		case piece.Length > p.room+p.m.known[wanted[i].Path].size: // those before it took it
			p.left.add("beyond the disk limit of the workspace", wanted[i].Path)
		case piece.Length != piece.Size: // it has grown, or the answer is full
			if err := p.large(ctx, remoteFile{Path: wanted[i].Path, Size: piece.Size}); err != nil {
				return 0, err
			}
		default:
			w := p.begin(wanted[i].Path)
			w.executable = piece.Executable
			w.write(part)
			p.end(w)
		}
	}
	return len(pieces), nil
}

func (p *puller) fetch(ctx context.Context, wanted []getPiece) ([]gotPiece, []byte, error) {
	var told struct{ Pieces []gotPiece }
	data, err := p.r.ask(ctx, "/v1/fetch", map[string]any{"pieces": wanted}, nil, &told)
	if err != nil {
		return nil, nil, err
	}
	var n int64
	for _, piece := range told.Pieces {
		if piece.Length < 0 || piece.Length > mirrorPart || piece.Error != "" && piece.Length != 0 {
			return nil, nil, errAnswer
		}
		n += piece.Length
	}
	if len(told.Pieces) != len(wanted) || n != int64(len(data)) {
		return nil, nil, errAnswer
	}
	return told.Pieces, data, nil
}

// large brings one file in parts.
func (p *puller) large(ctx context.Context, f remoteFile) error {
	w := p.begin(f.Path)
	var since int64
	for {
		pieces, data, err := p.fetch(ctx, []getPiece{{Path: f.Path, Offset: w.size, Size: mirrorPart}})
		if err != nil {
			w.drop()
			return err
		}
		piece := pieces[0]
		switch {
		case piece.Error != "":
			w.err = errors.New(clean(piece.Error, 100))
		case since != 0 && since != piece.Changed:
			w.err = errors.New("changes while it is read")
		case w.size+piece.Length > p.room+p.m.known[f.Path].size:
			w.err = errors.New("beyond the disk limit of the workspace")
		case p.got+w.size+piece.Length > mirrorBytes:
			w.err = errors.New("larger than what one call brings back")
		}
		since, w.executable = piece.Changed, piece.Executable
		w.write(data)
		if w.err != nil || w.size >= piece.Size || piece.Length == 0 {
			p.end(w)
			return nil
		}
	}
}

// arrival is a file that comes in, under another name until it is whole.
type arrival struct {
	m    *mirror
	path string
	temp string
	f    *os.File
	sum  hash.Hash
	size int64
	err  error // why it can't be had; sticky

	executable bool
}

func (p *puller) begin(name string) *arrival {
	w := &arrival{m: p.m, path: name, sum: sha256.New(), temp: path.Join(path.Dir(name), mirrorPrefix+randomName())}
	perm := fs.FileMode(0o644)
	if old, err := p.m.root.Lstat(name); err == nil {
		perm &= old.Mode().Perm()
	}
	if w.err = p.m.root.MkdirAll(path.Dir(name), 0o755); w.err == nil {
		w.f, w.err = p.m.root.OpenFile(w.temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm|0o200)
	}
	return w
}

func (w *arrival) write(b []byte) {
	if w.err == nil {
		_, w.err = w.f.Write(b)
		w.sum.Write(b)
		w.size += int64(len(b))
	}
}

func (w *arrival) drop() {
	if w.f != nil {
		w.f.Close()
		_ = w.m.root.Remove(w.temp) // it may have got its name
	}
}

// permit gives a file the rights that the one which it replaces has here: what
// was closed to others stays so. Whether it can be executed is the container's word.
func (w *arrival) permit() {
	if w.err != nil {
		return
	}
	like, err := w.m.root.Lstat(w.path)
	if err != nil || !like.Mode().IsRegular() {
		if like, w.err = w.f.Stat(); w.err != nil { // a new one: what the umask has left it
			return
		}
	}
	perm := like.Mode().Perm() &^ 0o111
	if w.executable {
		perm |= perm & 0o444 >> 2
	}
	w.err = w.f.Chmod(perm)
}

// end gives a file its name, unless it is the one that is there already.
func (p *puller) end(w *arrival) {
	defer w.drop()
	p.got += w.size
	was, known := p.m.known[w.path]
	sum := [sha256.Size]byte(w.sum.Sum(nil))
	if w.err == nil && known && !was.dir && was.size == w.size && was.sum == sum {
		return // only its times have changed
	}
	w.permit()
	if w.err == nil && was.dir {
		w.err = p.m.root.Remove(w.path)
	}
	if w.err == nil {
		w.err = p.m.root.Rename(w.temp, w.path)
	}
	var info fs.FileInfo
	if w.err == nil {
		info, w.err = w.f.Stat()
	}
	if w.err != nil {
		p.left.add(reason(w.err), w.path)
		return
	}
	p.room -= w.size - was.size
	p.m.keep(w.path, info, sum)
	p.changed[w.path] = w.size
}

// reason is an error without the names of paths.
func reason(err error) string {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		err = e.Err
	}
	if e, ok := errors.AsType[*os.LinkError](err); ok {
		err = e.Err
	}
	return clean(err.Error(), 100)
}
