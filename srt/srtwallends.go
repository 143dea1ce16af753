package srt

import (
	"os"
	"path/filepath"
	"sync"
)

// srtEnds ends what srt has started: the keeper does, when the server closes its lifeline,
// be it by dying.
type srtEnds struct {
	dir    string
	keeper int // its process, which leads a session
	life   *os.File

	mu   sync.Mutex
	init *os.File // a handle of PID 1 of the guest's namespace; nil where there is none
}

// kill ends the guest at once where there is a handle of it, and lets the keeper end the
// rest. It is called more than once.
func (e *srtEnds) kill() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.init != nil {
		killHandle(e.init) // it may have ended
	}
	e.life.Close()
	return nil
}

// clear removes the directory of the cage, and with it the guest's temporary files.
func (e *srtEnds) clear() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.init != nil {
		e.init.Close()
		e.init = nil
	}
	e.life.Close()
	return removeAll(filepath.Clean(e.dir))
}
