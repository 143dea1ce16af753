package srt

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// guest is what the wall's own /proc shows: all processes of the PID namespace, whoever
// their parents are; or where there is none, the descendants of its first process. An ordinary
// user's server may look at them, also at those that are not dumpable, since it owns their
// user namespace; see ptrace(2), the access mode check.
type guest struct {
	first  process // the supervisor, which runs nothing of the guest's
	others []process
}

// process is one process behind the wall.
type process struct {
	dir     string // of the wall's /proc, as the server reaches it, or of the host's
	threads []thread
}

type thread struct {
	dir  string
	dead bool
}

// guestProcesses bounds what is looked at: there are never more than the limit of tasks.
const guestProcesses = 100_000

func guestOf(k kin) (guest, error) {
	var g guest
	first := strconv.Itoa(k.inside())
	err := eachProcess(k, func(dir string, number string) {
		if len(g.others) > guestProcesses {
			return
		}
		p := process{dir: dir}
		tasks, err := os.ReadDir(dir + "/task")
		if err != nil {
			return // it has ended
		}
		for _, t := range tasks {
			one := thread{dir: dir + "/task/" + t.Name()}
			state, _, err := statOf(one.dir)
			if one.dead = err != nil || state == 'Z' || state == 'X'; !one.dead || t.Name() == path.Base(dir) {
				p.threads = append(p.threads, one)
			}
		}
		if number == first {
			g.first = p
			return
		}
		g.others = append(g.others, p)
	})
	return g, err
}

// activityOf changes whenever something has run behind the wall of k. alone tells that there is
// nothing but the supervisor, a worker of one thread, and the process parked, if there is one.
func activityOf(k kin, parked int) (sum uint64, alone bool, err error) {
	threads := 0
	err = eachProcess(k, func(dir, number string) {
		_, fields, err := statOf(dir)
		if err != nil {
			return
		}
		// FNV over number, start, and the processor time of it and its reaped children.
		const utime, stime, cutime, cstime, count, start = 11, 12, 13, 14, 17, 19
		h := uint64(14695981039346656037)
		for _, s := range []string{number, fields[start], fields[utime], fields[stime], fields[cutime], fields[cstime]} {
			for _, c := range []byte(s) {
				h = (h ^ uint64(c)) * 1099511628211
			}
			h *= 1099511628211
		}
		sum += h
		n, _ := strconv.Atoi(fields[count])
		if number != strconv.Itoa(parked) {
			threads += n
		}
	})
	return sum, threads <= 2, err
}

// eachProcess calls do for each process of k, with its number as the guest knows it.
func eachProcess(k kin, do func(dir, number string)) error {
	if !k.namespace {
		return eachDescendant(k, do)
	}
	proc := fmt.Sprintf("/proc/%d/root/proc", k.first)
	f, err := os.Open(proc)
	if errors.Is(err, fs.ErrNotExist) {
		return eachDescendant(k, do)
	}
	if err != nil {
		return err
	}
	defer f.Close()
	names, err := f.Readdirnames(-1)
	for _, name := range names {
		if n, err := strconv.Atoi(name); err == nil && n >= k.inside() {
			do(proc+"/"+name, name)
		}
	}
	return err
}

// eachDescendant is eachProcess for a wall without a /proc or without a PID namespace. All
// that are behind it descend from its first process, which is given those whose parents end.
func eachDescendant(k kin, do func(dir, number string)) error {
	first := fmt.Sprintf("/proc/%d", k.first)
	if _, err := os.Stat(first + "/root/."); err != nil {
		return err // it has ended
	}
	do(first, strconv.Itoa(k.inside()))
	for _, p := range descendants(k.first, nil)[1:] {
		do(fmt.Sprintf("/proc/%d", p), strconv.Itoa(p))
	}
	return nil
}

// statOf reads a task's state, and the fields from the state on.
func statOf(dir string) (state byte, fields []string, err error) {
	b, err := os.ReadFile(dir + "/stat")
	if err != nil {
		return 0, nil, err
	}
	fields = strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(fields) < 20 {
		return 0, nil, fmt.Errorf("%s: %d fields", dir, len(fields))
	}
	return fields[0][0], fields, nil
}

// held is what the session's processes hold that has no name any longer, or never had one.
type held struct {
	disk   int64 // files of the workspace, deleted and still open or mapped
	memory int64 // memory files
	flight int   // descriptors sent by a socket and not received: nobody can say of what
	files  map[fileID]int64
}

// heldBy looks at the descriptors and mappings of all processes of k. An
// error is a process that can't be looked into: it has made
// itself undumpable, or is just ending.
func heldBy(k kin, memory bool) (held, error) {
	g, err := guestOf(k)
	if err != nil {
		return held{}, err
	}
	s := search{kin: k, disk: map[fileID]int64{}, memory: map[fileID]int64{}, mapped: map[fileID]mapping{}}
	if s.shm, err = memoryDevice(); err != nil && memory {
		return held{}, err
	}
	var errs []error
	for _, p := range g.others {
		for _, t := range p.threads {
			errs = append(errs, s.descriptors(t))
		}
		errs = append(errs, s.mappings(p.live()))
	}
	return s.result(), errors.Join(errs...)
}

// search gathers files by what names them, so that none counts twice.
type search struct {
	kin          kin
	shm          uint64 // the device
	disk, memory map[fileID]int64
	mapped       map[fileID]mapping // deleted, and not yet known to be open
	flight       int
}

func (s *search) descriptors(t thread) error {
	if t.dead {
		return nil
	}
	f, err := os.Open(t.dir + "/fd")
	if err != nil {
		return ifAlive(t.dir, err)
	}
	defer f.Close()
	names, err := f.Readdirnames(-1)
	if err != nil {
		return ifAlive(t.dir, err)
	}
	for _, name := range names {
		var st unix.Stat_t
		link := t.dir + "/fd/" + name
		if err := unix.Stat(link, &st); err == nil {
			if st.Mode&unix.S_IFMT == unix.S_IFSOCK {
				s.flight += inFlight(t.dir + "/fdinfo/" + name)
			}
			s.take(&st, func() string {
				target, _ := os.Readlink(link) // closed meanwhile
				return target
			})
		} else if errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) {
			return ifAlive(t.dir, err)
		}
	}
	return nil
}

// inFlight is how many descriptors wait in a Unix socket to be received; those in sockets that
// wait themselves count with the one that can be seen.
func inFlight(fdinfo string) int {
	b, err := os.ReadFile(fdinfo)
	if err != nil {
		return 0 // closed meanwhile
	}
	for line := range bytes.Lines(b) {
		if rest, ok := bytes.CutPrefix(line, []byte("scm_fds:")); ok {
			n, _ := strconv.Atoi(string(bytes.TrimSpace(rest)))
			return n
		}
	}
	return 0
}

// ifAlive drops the error of looking into a task that has ended meanwhile, or is about to:
// it runs nothing any longer.
func ifAlive(dir string, err error) error {
	const exiting, flags = 0x4, 6 // PF_EXITING, in sched.h since Linux 2.6
	state, fields, e := statOf(dir)
	if e != nil || state == 'Z' || state == 'X' {
		return nil
	}
	if n, e := strconv.ParseUint(fields[flags], 10, 64); e == nil && n&exiting != 0 {
		return nil
	}
	return err
}

// take counts a file without a name. What was its name, by which a file of the workspace
// is known, is asked for only where it matters.
func (s *search) take(st *unix.Stat_t, was func() string) {
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFREG || st.Nlink != 0:
	case uint64(st.Dev) == s.shm:
		s.memory[idOf(st)] = st.Blocks * 512
	case s.kin.onDisk(was()):
		s.disk[idOf(st)] = st.Blocks * 512
	}
}

// onDisk takes a path as the kernel tells it of a file behind a wall: from that wall's root on.
func (k kin) onDisk(name string) bool {
	return slices.ContainsFunc(k.disks, func(dir string) bool { return strings.HasPrefix(name, dir+"/") })
}

// mappings finds deleted files that only a mapping keeps.
func (s *search) mappings(dir string) error {
	b, err := os.ReadFile(dir + "/maps")
	if err != nil {
		return ifAlive(dir, err)
	}
	for line := range bytes.Lines(b) {
		if !bytes.HasSuffix(line, []byte(" (deleted)\n")) {
			continue
		}
		m, ok := parseMapping(line)
		if !ok || m.id.dev != s.shm && !s.kin.onDisk(m.name) {
			continue
		}
		// Root may follow the mapping to the file and learn its true size; for others it is
		// at least as large as what is mapped of it.
		var st unix.Stat_t
		if unix.Stat(dir+"/../../map_files/"+m.at, &st) == nil {
			s.take(&st, func() string { return m.name })
		} else if was, ok := s.mapped[m.id]; !ok || was.end < m.end {
			s.mapped[m.id] = m
		}
	}
	return nil
}

func (s *search) result() held {
	h := held{files: s.memory, flight: s.flight}
	for id, m := range s.mapped {
		switch {
		case s.kin.onDisk(m.name):
			if _, open := s.disk[id]; !open {
				s.disk[id] = m.end
			}
		case strings.HasPrefix(m.name, "/memfd:"), strings.HasPrefix(m.name, "/SYSV"):
			if _, open := s.memory[id]; !open {
				s.memory[id] = m.end
			}
		}
	}
	for _, n := range s.disk {
		h.disk += n
	}
	for _, n := range s.memory {
		h.memory += n
	}
	return h
}

// mapping is one line of maps or smaps.
type mapping struct {
	at   string // as in map_files
	id   fileID
	end  int64 // offset in the file where it ends
	name string
}

func parseMapping(line []byte) (mapping, bool) {
	f := bytes.Fields(line) // start-end perms offset major:minor inode name…
	if len(f) < 5 {
		return mapping{}, false
	}
	from, to, ok := strings.Cut(string(f[0]), "-")
	if !ok {
		return mapping{}, false
	}
	major, minor, ok := strings.Cut(string(f[3]), ":")
	if !ok {
		return mapping{}, false
	}
	var errs [6]error
	hex := func(i int, text string) (n uint64) {
		n, errs[i] = strconv.ParseUint(text, 16, 64)
		return n
	}
	start, end, offset := hex(0, from), hex(1, to), hex(2, string(f[2]))
	dev := unix.Mkdev(uint32(hex(3, major)), uint32(hex(4, minor)))
	ino, err := strconv.ParseUint(string(f[4]), 10, 64)
	errs[5] = err
	if errors.Join(errs[:]...) != nil {
		return mapping{}, false
	}
	m := mapping{at: fmt.Sprintf("%x-%x", start, end), id: fileID{dev, ino}, end: int64(offset + end - start)}
	if len(f) > 5 {
		m.name = string(f[5])
	}
	return m, true
}

// descendants lists pid and its descendants, as far as the kernel tells: it need not tell
// of children while others end.
func descendants(pid int, into []int) []int {
	into = append(into, pid)
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return into
	}
	for _, t := range tasks {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/children", pid, t.Name()))
		if err != nil {
			continue
		}
		for _, child := range strings.Fields(string(b)) {
			if n, err := strconv.Atoi(child); err == nil && len(into) < 10_000 {
				into = descendants(n, into)
			}
		}
	}
	return into
}
