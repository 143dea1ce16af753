package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Files is a power that a Session may have besides: the server's own view of
// the session's workspace.
type Files interface {
	// Root is the workspace. It never follows a link that leaves it. The
	// session owns it and closes it.
	Root() *os.Root
}

// FileStore is a power that a Session with Files may have besides: files that come
// from outside.
type FileStore interface {
	// StoreFile puts what r gives at a path of the workspace, whole or not at all, in
	// the place of a file that is there; it makes the directories above. size is what r
	// will give, -1 if that is not known. It takes no turn. ErrQuota: it is more than
	// the workspace may hold. fs.ErrExist: a directory is there, or something that is
	// none above it. errors.ErrUnsupported: the workspace is read-only. An error of
	// r's own is in the error as it is.
	StoreFile(ctx context.Context, path string, size int64, r io.Reader) (File, error)
}

// ErrQuota is in the error of what would go beyond a session's limit.
var ErrQuota = errors.New("beyond the limit")

// FilePath is a path of a workspace as [os.Root] takes it, of one that a client gave:
// relative, with slashes; "." for the workspace itself. What could only lead outside
// is refused.
func FilePath(given string) (string, error) {
	clean := path.Clean(strings.TrimRight(given, "/"))
	switch {
	case strings.ContainsRune(given, 0), len(given) > 4096:
		return "", Invalid("that is no path")
	case strings.HasPrefix(given, "/"):
		return "", Invalid("the path must be relative to the workspace")
	case !filepath.IsLocal(clean):
		return "", Invalid("the path leads out of the workspace")
	}
	return clean, nil
}

// OpenFile opens a file or a directory of a workspace for reading. The guest chooses
// what lies there: links are followed within the workspace alone, and nothing else
// than a regular file or a directory is opened for long, nor waited for. What is there
// and can't be read is an error of StatusDenied.
func OpenFile(root *os.Root, name string) (*os.File, fs.FileInfo, error) {
	// A pipe without a writer would keep the caller waiting, and so would a lease.
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return nil, nil, fmt.Errorf("there is no such file: %w", fs.ErrNotExist)
	case errors.Is(err, fs.ErrClosed):
		return nil, nil, ErrClosed
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE), errors.Is(err, syscall.ENOMEM):
		return nil, nil, err
	case err != nil: // a link that leads out, a socket, a directory without rights: the guest's doing
		return nil, nil, denied(fmt.Errorf("it can't be read (%w)", WithoutPath(err)))
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() && !info.IsDir() {
		err = denied(errors.New("it is neither a file nor a directory"))
	}
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, info, nil
}

func denied(err error) error {
	return &Error{Status: StatusDenied, ExitCode: StatusDenied.ExitCode(), Err: err}
}

// WithoutPath is an error of a file without its path, which is the server's own
// business.
func WithoutPath(err error) error {
	var at *fs.PathError
	var link *os.LinkError
	switch {
	case errors.As(err, &at):
		err = at.Err
	case errors.As(err, &link):
		err = link.Err
	default:
		return err
	}
	if err.Error() == "path escapes from parent" { // os.Root's, which exports no such error
		return errLeadsOut
	}
	return err
}

var errLeadsOut = errors.New("a link on the way leads out of the workspace, or begins with /")

// Entry is what a directory of a workspace holds.
type Entry struct {
	Name     string // the guest's word, any bytes but a slash
	Kind     string // "file", "directory", "link", "other"
	Size     int64  // bytes; of a file alone
	Modified time.Time
}

// maxEntries bounds what is read of one directory.
const maxEntries = 1000

// Entries lists a directory that OpenFile opened under a name, sorted by name; more
// says that it holds further ones.
func Entries(root *os.Root, dir *os.File, name string) (all []Entry, more bool, err error) {
	found, err := dir.ReadDir(maxEntries + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, false, WithoutPath(err)
	}
	if more = len(found) > maxEntries; more {
		found = found[:maxEntries]
	}
	for _, f := range found {
		// By the root: what the entry itself tells goes by a path.
		info, err := root.Lstat(path.Join(name, f.Name()))
		if err != nil {
			continue // removed meanwhile
		}
		e := Entry{Name: f.Name(), Modified: info.ModTime(), Kind: "other"}
		switch mode := info.Mode(); {
		case mode.IsRegular():
			e.Kind, e.Size = "file", info.Size()
		case mode.IsDir():
			e.Kind = "directory"
		case mode&fs.ModeSymlink != 0:
			e.Kind = "link"
		}
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b Entry) int { return strings.Compare(a.Name, b.Name) })
	return all, more, nil
}

// MIMEOf is the media type that a file's name stands for; "" if it tells none. The
// list is ours, so that every server tells the same.
func MIMEOf(name string) string {
	switch strings.ToLower(path.Ext(name)) {
	case ".txt", ".log", ".text":
		return "text/plain"
	case ".csv":
		return "text/csv"
	case ".tsv":
		return "text/tab-separated-values"
	case ".md":
		return "text/markdown"
	case ".py":
		return "text/x-python"
	case ".html", ".htm":
		return "text/html"
	case ".xml":
		return "application/xml"
	case ".json", ".ipynb":
		return "application/json"
	case ".jsonl", ".ndjson":
		return "application/x-ndjson"
	case ".yaml", ".yml":
		return "application/yaml"
	case ".svg":
		return "image/svg+xml"
	case ".png":
		return "image/png"
	case ".jpg", ".jpeg":
		return "image/jpeg"
	case ".gif":
		return "image/gif"
	case ".webp":
		return "image/webp"
	case ".pdf":
		return "application/pdf"
	case ".zip":
		return "application/zip"
	case ".gz":
		return "application/gzip"
	case ".parquet":
		return "application/vnd.apache.parquet"
	case ".xlsx":
		return "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
	}
	return ""
}
