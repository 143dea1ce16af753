package srt

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"mcp-sandbox/sandbox"
)

// sessionRecord is session.json.
type sessionRecord struct {
	ID        string    `json:"id"`
	Principal string    `json:"principal"`
	Created   time.Time `json:"created"`
	Empty     bool      `json:"empty,omitempty"` // there are no variables to restore, and none were lost
}

// read is what lies there under an id.
func (d *stateDir) read(id string) (sandbox.Kept, error) {
	r, used, err := d.record(id)
	return sandbox.Kept{Spec: sandbox.Spec{ID: r.ID, Principal: r.Principal, Created: r.Created}, Used: used}, err
}

// record reads the record of the session with an id, and when it was last used.
func (d *stateDir) record(id string) (r sessionRecord, used time.Time, err error) {
	info, err := d.root.Lstat(id)
	if err != nil {
		return r, used, err
	}
	if !info.IsDir() || !validID(id) {
		return r, used, errors.New("no session's directory")
	}
	f, err := d.root.OpenFile(filepath.Join(id, recordFile), os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return r, used, err
	}
	defer f.Close()
	if info, err = f.Stat(); err != nil {
		return r, used, err
	}
	text, err := io.ReadAll(io.LimitReader(f, maxRecord))
	if err != nil {
		return r, used, err
	}
	if err := json.Unmarshal(text, &r); err != nil {
		return r, used, err
	}
	if r.ID != id || r.Principal == "" {
		return r, used, errors.New("another session's record")
	}
	return r, info.ModTime(), nil
}

// record writes what the server knows of a session, unless it is there. A
// directory without it is none.
func record(dir string, spec sandbox.Spec) error {
	path := filepath.Join(dir, recordFile)
	if _, err := os.Lstat(path); err == nil {
		return nil
	}
	if spec.Created.IsZero() {
		spec.Created = time.Now()
	}
	return writeRecord(dir, sessionRecord{ID: spec.ID, Principal: spec.Principal, Created: spec.Created})
}

func writeRecord(dir string, r sessionRecord) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return writeDurably(filepath.Join(dir, recordFile), text)
}
