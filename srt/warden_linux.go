package srt

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"unsafe"

	"golang.org/x/sys/unix"

	"mcp-sandbox/allowlist"
	"mcp-sandbox/sandbox/kernel"
)

// The warden's descriptors besides its streams, which its commands inherit.
const (
	wardenRequestsFD = 3
	wardenReportsFD  = 4
)

// wardenMemory is where the warden's garbage begins to be collected at any price.
// It needs a few MiB for itself, and what its wildcards hold.
const wardenMemory = supervisorAllowance

// wardenChild is PID 1 of a wall for commands, or the first in its domain, until the server closes its channel.
// It starts what the list resolves to, and nothing else.
func wardenChild() int {
	inDomain := ownsDomain()
	if !inDomain && !ownsNamespace() {
		fmt.Fprintln(os.Stderr, "be-child is for mcp-sandbox itself")
		return 2
	}
	runtime.GOMAXPROCS(2) // one reads what the server wants while the other waits for commands
	debug.SetMemoryLimit(wardenMemory)
	streams, err := guardWarden(inDomain)
	if err != nil {
		fmt.Fprintln(os.Stderr, "mcp-sandbox: warden:", err)
		return 1
	}
	in, out := os.NewFile(wardenRequestsFD, "requests"), os.NewFile(wardenReportsFD, "reports")
	if in == nil || out == nil {
		return 1
	}
	if err := serveLines(in, out, streams); err != nil {
		return 1 // the server hears of it by the end of the channel
	}
	return 0
}

// ownsNamespace reports whether all that kill(-1) reaches is the warden's: its work ends with
// that. It is PID 1 of its namespace, or, behind a wall of srt's, whose first process does
// nothing but reap and can't be killed from inside, comes next. There the filter tells that
// be-child was here before.
func ownsNamespace() bool {
	mode, err := unix.PrctlRetInt(unix.PR_GET_SECCOMP, 0, 0, 0, 0)
	return os.Getpid() == 1 || os.Getpid() == 2 && err == nil && mode == unix.SECCOMP_MODE_FILTER
}

// ownsDomain is ownsNamespace where the wall is a domain: then it takes the orphans in it, too.
func ownsDomain() bool {
	return os.Getpid() != 1 && proveScoped() == nil && unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == nil
}

// guardWarden keeps the warden apart from what it starts. The descriptors of the
// channel are not inherited, nor can they be taken by /proc or a debugger. The
// pipes of the output, which it returns, are for the commands: whatever the
// warden itself says, and be it the runtime's last words, is no command's output.
//
// In a domain there is no /proc that its commands could look into, and the server, which
// owns no user namespace around it, must be able to.
func guardWarden(inDomain bool) (streams [2]uintptr, err error) {
	if !inDomain {
		if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
			return streams, fmt.Errorf("dumpable: %w", err)
		}
	}
	null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return streams, fmt.Errorf("/dev/null: %w", err)
	}
	for i := range streams {
		moved, err := unix.FcntlInt(uintptr(i+1), unix.F_DUPFD_CLOEXEC, wardenReportsFD+1)
		if err == nil {
			err = unix.Dup3(null, i+1, 0)
		}
		if err != nil {
			return streams, fmt.Errorf("move descriptor %d: %w", i+1, err)
		}
		streams[i] = uintptr(moved)
	}
	if err := unix.CloseRange(wardenRequestsFD, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return streams, fmt.Errorf("close on exec: %w", err)
	}
	takeSignals()
	return streams, nil
}

// takeSignals lets no signal end the warden that a program can be kept from ending
// it with: one that the operator has allowed besides the list runs under the same
// id. They are taken, by a channel that nobody reads, and not ignored, which would
// be inherited by all commands.
func takeSignals() {
	var all []os.Signal
	for s := unix.Signal(1); s <= 64; s++ {
		if s != unix.SIGCHLD && s != unix.SIGURG { // harmless, and they come all the time
			all = append(all, s)
		}
	}
	signal.Notify(make(chan os.Signal, 1), all...)
	// libc's own two are left alone by Go, and make starts its children with the first
	// ignored. By default they do nothing to the first process of a PID namespace.
	var byDefault [4]uint64 // a struct sigaction
	for s := uintptr(32); s <= 33; s++ {
		_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, s, uintptr(unsafe.Pointer(&byDefault)), 0, 8, 0, 0) // EINVAL alone, and the numbers are valid
	}
}

// serveLines does what the server asks for until it closes the channel. With
// PID 1 everything behind the wall ends.
func serveLines(in io.Reader, out io.Writer, streams [2]uintptr) error {
	r := bufio.NewReader(in)
	lines, err := readWardenConfig(r)
	if err != nil {
		return err
	}
	lines.streams = streams
	for {
		kind, payload, err := kernel.ReadFrame(r, wardenBound)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		switch kind {
		case frameStop:
			var s lineStop
			if err := json.Unmarshal(payload, &s); err != nil {
				return err
			}
			lines.stop(s.ID)
		case frameRun:
			var q lineRequest
			if err := json.Unmarshal(payload, &q); err != nil {
				return err
			}
			if q.Line == nil || !lines.begin(q.ID) {
				return fmt.Errorf("line %d: nothing to run, or another one is running", q.ID)
			}
			go func() { // ends with this process, as all it has started does
				report := lines.run(q.Line)
				report.ID = q.ID
				text, _ := json.Marshal(report) // strings and numbers: can't fail
				// This can fail only if the server has gone, whose requests then end too.
				_ = kernel.WriteFrame(out, frameReport, text)
			}()
		default:
			return fmt.Errorf("unknown frame %q", kind)
		}
	}
}

// readWardenConfig takes the first frame, and opens what every command needs.
func readWardenConfig(r *bufio.Reader) (*pipelines, error) {
	kind, payload, err := kernel.ReadFrame(r, wardenBound)
	if err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	var config wardenConfig
	if kind != frameConfig {
		return nil, fmt.Errorf("frame %q instead of the configuration", kind)
	}
	if err := json.Unmarshal(payload, &config); err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	list, err := allowlist.New(config.List)
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	null, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("/dev/null: %w", err)
	}
	scratch, err := openScratch(config.Scratch)
	if err != nil {
		return nil, err
	}
	return &pipelines{
		resolve: list.Resolve, programs: config.Programs, env: config.Env,
		null: uintptr(null), scratch: scratch,
	}, nil
}
