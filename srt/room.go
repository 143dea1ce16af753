package srt

import (
	"fmt"

	"mcp-sandbox/sandbox"
)

// roomRound is how many bytes an upload writes at most between two looks at the
// workspace.
const roomRound = 16 * mib

// room is what one upload may take of a workspace: what its limit leaves beside what
// lies there, and beside other uploads. It is used by one goroutine.
type room struct {
	disk   *disk
	spare  func(dir string) (int64, error) // of the server's disk, in bytes
	inodes int                             // files and directories that it makes at most

	granted int64 // bytes, reserved and not written
}

// ask fails where there is no room for n more bytes.
func (r *room) ask(n int64) error {
	r.disk.uploads.Lock()
	defer r.disk.uploads.Unlock()
	_, err := r.look(n)
	return err
}

// look is how many bytes there is room for; that it is less than n is an error. The
// lock of all uploads is held.
func (r *room) look(n int64) (int64, error) {
	used, err := r.disk.measure(0)
	if err != nil {
		return 0, err
	}
	if used.blind != "" {
		return 0, fmt.Errorf("%w: %s", sandbox.ErrQuota, r.disk.text(used))
	}
	spare, err := r.spare(r.disk.dir)
	if err != nil {
		return 0, err
	}
	left := r.disk.soft.bytes - used.bytes - r.disk.uploading.Load()
	switch {
	case n > left:
		return 0, fmt.Errorf("%w: the workspace has room for %d bytes more", sandbox.ErrQuota, max(left, 0))
	case r.inodes > r.disk.soft.inodes-used.inodes:
		return 0, fmt.Errorf("%w: the workspace holds as many files and directories as it may", sandbox.ErrQuota)
	case n > spare:
		return 0, fmt.Errorf("%w: %w", sandbox.ErrQuota, errDiskFull)
	}
	return min(left, spare), nil
}

// take uses n bytes.
func (r *room) take(n int64) error {
	if r.granted < n {
		if err := r.reserve(n); err != nil {
			return err
		}
	}
	r.granted -= n
	r.disk.uploading.Add(-n)
	return nil
}

// reserve takes a round, or what is left of it near the limit.
func (r *room) reserve(n int64) error {
	r.disk.uploads.Lock()
	defer r.disk.uploads.Unlock()
	r.close()
	left, err := r.look(n)
	if err == nil {
		r.granted = max(min(left, roomRound), n)
		r.disk.uploading.Add(r.granted)
	}
	return err
}

// close gives back what was not used.
func (r *room) close() {
	r.disk.uploading.Add(-r.granted)
	r.granted = 0
}
