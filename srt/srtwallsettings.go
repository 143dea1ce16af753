package srt

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
)

// srtSettings are the keys of srt's settings file that a Policy is rendered to. Each is
// always there: one that is left out has a default, and reading everything is srt's.
type srtSettings struct {
	Network    srtNetwork    `json:"network"`
	Filesystem srtFilesystem `json:"filesystem"`
}

type srtNetwork struct {
	AllowedDomains []string `json:"allowedDomains"`
	DeniedDomains  []string `json:"deniedDomains"`
}

type srtFilesystem struct {
	DenyRead   []string `json:"denyRead"`
	AllowRead  []string `json:"allowRead"` // in what DenyRead takes away
	AllowWrite []string `json:"allowWrite"`
	DenyWrite  []string `json:"denyWrite"`
}

// settings renders p. Everything may be read by default, so everything is denied first.
func (w *srtWall) settings(p Policy, dir string) (srtSettings, error) {
	s := srtSettings{
		Network: srtNetwork{AllowedDomains: []string{}, DeniedDomains: []string{}},
		Filesystem: srtFilesystem{
			DenyRead: slices.Clone(unread),
			AllowRead: slices.Concat(present(systemReads), p.ReadOnly,
				[]string{w.exe, w.tool.Dir, filepath.Join(w.dir, "kernel"), filepath.Join(dir, "pipes")}),
			AllowWrite: []string{p.Tmp, filepath.Join(dir, "pipes")},
			DenyWrite:  []string{},
		},
	}
	f := &s.Filesystem
	f.AllowRead = append(f.AllowRead, p.Tmp)
	for _, m := range p.shown() {
		f.AllowRead = append(f.AllowRead, m.Host)
		if m.Writable {
			f.AllowWrite = append(f.AllowWrite, m.Host)
		} else {
			f.DenyWrite = append(f.DenyWrite, m.Host)
		}
	}
	var faults []error
	for _, path := range slices.Concat(f.AllowRead, f.AllowWrite, f.DenyWrite) {
		faults = append(faults, noPattern(path))
	}
	return s, errors.Join(faults...)
}

// write puts the settings where nobody else can read or change them.
func (s srtSettings) write(path string) error {
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o600)
}

// present are those of some patterns that lie on this host.
func present(patterns []string) []string {
	var all []string
	for _, p := range patterns {
		found, _ := filepath.Glob(p) // the patterns are constants; ErrBadPattern can't be
		all = append(all, found...)
	}
	return all
}
