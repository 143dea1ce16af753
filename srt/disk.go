package srt

import (
	"cmp"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"mcp-sandbox/sandbox/kernel"
)

// disk holds the limits of one workspace, for as long as its session lives: an
// interpreter that is ended at a limit must not find a fresh allowance. It is safe for
// concurrent use.
//
// Up to soft, the limit, all is well. Between soft and hard, a quarter more at least, a call
// that grows is interrupted: code that cleans up may run. Beyond hard, whatever grows is
// killed with all that runs in the session. Beyond last, twice the limit and a burst
// more, nothing runs any longer.
type disk struct {
	dir              string
	what             string                          // the beginning of a sentence on it; "" = The workspace
	look             func(stop usage) (usage, error) // how it is measured; nil = file by file
	limit            usage                           // what the session itself may add
	soft, hard, last usage
	spare            map[fileID]struct{}
	uploads          sync.Mutex   // held while an upload looks for room and reserves it
	uploading        atomic.Int64 // bytes that are reserved and not written

	mu      sync.Mutex
	now     usage // when last measured
	floor   usage // growth counts from here while beyond soft
	strikes int   // how often the session was ended for what could not be measured
}

const (
	diskRound = 32 * mib  // what honest code may write between two checks: it is interrupted, not killed
	diskBurst = 256 * mib // what hostile code may
)

// maxStrikes is how often a session may hide something from the server.
const maxStrikes = 3

// before is what a directory held before any session: it is not held against one.
type before struct {
	usage  usage
	closed map[fileID]struct{} // directories that the server can't read
}

// holdings measures an operator's directory once, at the server's start. A directory of
// more than maxEntries is refused: to look through it again and again would take longer
// than a limit can wait.
func holdings(dir string) (before, error) {
	b := before{closed: map[fileID]struct{}{}}
	w := &walk{
		stop:  usage{bytes: 1 << 62, inodes: maxEntries},
		links: map[fileID]struct{}{},
		blind: func(id fileID) { b.closed[id] = struct{}{} },
	}
	if err := w.from(dir); err != nil {
		return before{}, err
	}
	if w.used.inodes > maxEntries {
		return before{}, fmt.Errorf("srt: workspace: %s holds more than %d files and directories, too many to watch "+
			"its limits: name a smaller directory, or make it read-only", dir, maxEntries)
	}
	b.usage = w.used
	b.usage.blind = ""
	return b, nil
}

// newDisk watches the workspace of p, which held b before its session began: nothing,
// where the server has just made it.
func newDisk(p Policy, b before) *disk {
	p = p.withDefaults()
	limit := usage{bytes: p.Disk, inodes: p.Inodes}
	d := &disk{dir: p.Workspace.Host, limit: limit, spare: b.closed, soft: b.usage.plus(limit)}
	d.hard = d.soft.plus(usage{bytes: max(limit.bytes/4, diskRound), inodes: max(limit.inodes/4, 1000)})
	d.last = d.soft.plus(limit).plus(usage{bytes: diskBurst, inodes: limit.inodes})
	return d
}

// measure looks; more is what open files hold that have no name any longer.
func (d *disk) measure(more int64) (usage, error) {
	stop := d.last.plus(usage{inodes: 1})
	look := d.look
	if look == nil {
		look = func(stop usage) (usage, error) { return measure(d.dir, stop, d.spare) }
	}
	used, err := look(stop)
	used.bytes += more
	return used, err
}

// moment is what the session was doing when its workspace was measured.
type moment struct {
	ran     bool          // the interpreter has run something
	running time.Duration // how long the call has been under way; 0 = none is
	first   bool          // nothing was measured yet since a call began or ended
	stopped bool          // the call has been told to end

	turns  int           // how often a call has begun or ended
	unseen time.Duration // how long calls have run since the last measuring began, all together
	since  time.Duration // how long ago that was
}

// ruling is what must be done.
type ruling struct {
	act  action
	text string // one sentence
}

type action int

const (
	leave     action = iota
	interrupt        // the call, so that its variables stay
	end              // everything in the session
)

// judge decides on what was measured.
func (d *disk) judge(now usage, m moment) ruling {
	d.mu.Lock()
	defer d.mu.Unlock()
	was, floor := d.now, d.floor
	d.now = now
	d.floor = usage{bytes: min(floor.bytes, now.bytes), inodes: min(floor.inodes, now.inodes)}
	if m.first {
		d.floor = now
	}
	slack := usage{bytes: d.limit.bytes / 64, inodes: d.limit.inodes / 64}
	switch {
	case !m.ran:
		d.floor = now
		return ruling{}
	case now.beyond(d.last):
		return ruling{end, d.text(now)}
	case now.blind != "":
		return d.judgeBlind(now, was, m)
	}
	d.strikes = 0
	from := usage{bytes: max(floor.bytes, d.soft.bytes), inodes: max(floor.inodes, d.soft.inodes)}
	switch {
	case !now.beyond(d.soft):
		return ruling{}
	case !now.beyond(from), floor.beyond(d.soft) && !now.beyond(from.plus(slack)):
		return ruling{} // what was there before; code may clean up
	case now.beyond(d.hard), m.running == 0 && !m.first:
		return ruling{end, d.text(now)}
	case m.first, m.stopped: // the call before it was that, and this one may clean up
		return ruling{}
	}
	return ruling{interrupt, d.text(now)}
}

// blindPatience is how long code may take to open a directory that an earlier call closed.
const blindPatience = 2 * time.Second

func (d *disk) judgeBlind(now, was usage, m moment) ruling {
	text := d.text(now)
	switch {
	case m.running > 0 && was.blind == "" && !m.stopped:
		return ruling{interrupt, text}
	case m.running > 0 && m.running < blindPatience, m.running > 0 && m.stopped && m.running < 3*blindPatience:
		return ruling{}
	}
	d.strikes++
	return ruling{end, text}
}

func (d *disk) text(now usage) string {
	what := cmp.Or(d.what, "The workspace")
	switch {
	case now.bytes > d.soft.bytes:
		return fmt.Sprintf("%s holds more than %s, its limit: delete files.", what, kernel.Bytes(d.soft.bytes))
	case now.inodes > d.soft.inodes:
		return fmt.Sprintf("%s holds more than %d files and directories, its limit: delete some.", what, d.soft.inodes)
	}
	return fmt.Sprintf("The size of %s can't be told, which counts as beyond its limit: its directory %q "+
		"is closed to its owner or too deep (%d levels): open it by chmod u+rwx, or remove it.", strings.ToLower(what[:1])+what[1:], now.blind, maxDepth)
}

// refuses is why no code may run any longer; "" if it may. The session must be closed, or
// the files be deleted from outside: it measures again before it says no.
func (d *disk) refuses() string {
	d.mu.Lock()
	suspect := d.now.beyond(d.last) || d.strikes >= maxStrikes
	d.mu.Unlock()
	if !suspect {
		return ""
	}
	now, err := d.measure(0)
	d.mu.Lock()
	defer d.mu.Unlock()
	if err == nil {
		d.now = now
	}
	if d.now.beyond(d.last) || d.now.blind != "" && d.strikes >= maxStrikes {
		return d.text(d.now) + " It is far beyond it, so nothing runs in this session any longer: close it."
	}
	d.strikes = 0
	return ""
}
