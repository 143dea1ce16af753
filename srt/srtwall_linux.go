package srt

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// unread is all of the host: srt takes it away directory by directory, but for the
// kernel's own, of which it gives a /proc and a /dev of the guest's.
var unread = []string{"/", "/sys"}

// systemReads are the parts of the system that a guest sees. There is no passwd among
// them: it would be the host's own.
var systemReads = append([]string{"/etc/hosts", "/etc/nsswitch.conf"}, append(etc, systemDirs...)...)

// sharedMemory is where memory is shared by name.
var sharedMemory = []string{"/dev/shm"}

// canConfine says what be-child needs inside and this kernel does not have.
func canConfine() error {
	if _, err := landlockABI(); err != nil {
		return failed(layerLandlock, err)
	}
	_, err := seccompFilter(Policy{})
	return err
}

// namespaceRemedy is what helps where bubblewrap gets no namespaces.
func namespaceRemedy() string { return usernsRemedy(os.ReadFile) }

// errNotBelow is a child inside that the kernel does not show below the keeper.
var errNotBelow = errors.New("the child inside is not among the processes that srt has started")

// findInside finds the process that has a number in a namespace below keeper, and runs exe
// as the child inside: nothing of the guest's runs yet, so that nobody can pretend. It waits
// for us, and may be missed where srt's other helpers begin and end meanwhile.
func findInside(keeper, number int, exe string) (found kin, err error) {
	for end := time.Now().Add(2 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if found, err = lookInside(keeper, number, exe); !errors.Is(err, errNotBelow) || time.Now().After(end) {
			return found, err
		}
	}
}

func lookInside(keeper, number int, exe string) (kin, error) {
	want := []byte(exe + "\x00be-child\x00" + verbInside + "\x00")
	for _, pid := range descendants(keeper, nil)[1:] {
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err != nil || !bytes.Equal(line, want) {
			continue
		}
		numbers, err := numbersOf(pid)
		if err != nil {
			return kin{}, err
		}
		if len(numbers) < 2 || numbers[len(numbers)-1] != number {
			return kin{}, fmt.Errorf("process %d is %v, and says that it is %d: srt gave it no PID namespace", pid, numbers, number)
		}
		return kin{first: pid, namespace: true, number: number}, nil
	}
	return kin{}, errNotBelow
}

// numbersOf are those of a process in this PID namespace and all below that it is in.
func numbersOf(pid int) ([]int, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "NSpid:"); ok {
			var all []int
			for _, f := range strings.Fields(rest) {
				n, err := strconv.Atoi(f)
				if err != nil {
					return nil, err
				}
				all = append(all, n)
			}
			return all, nil
		}
	}
	return nil, errors.New("the kernel tells of no PID namespaces")
}

// take gets hold of PID 1 of the namespace of k, whose end is the end of all in it.
func (e *srtEnds) take(k kin) error {
	pid, err := parentOf(k.first)
	if err != nil {
		return err
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return fmt.Errorf("pidfd: %w", err)
	}
	handle := os.NewFile(uintptr(fd), "init")
	// Now that it can't be another one's any more:
	if again, err := parentOf(k.first); err != nil || again != pid {
		return errors.Join(fmt.Errorf("the first process has another parent than %d", pid), err, handle.Close())
	}
	if numbers, err := numbersOf(pid); err != nil || numbers[len(numbers)-1] != 1 {
		return errors.Join(fmt.Errorf("process %d is no PID 1 inside: %v", pid, numbers), err, handle.Close())
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.init = handle
	return nil
}

// openProxy takes a copy of the listening socket that the child inside holds, and serves the
// network on it. There is no other way for a descriptor: srt lets nobody inside make the Unix
// socket over which one is sent. The server may, since the namespaces are its own user's.
func (s *srtStart) openProxy(c *cage, e *srtEnds, number, socket int) error {
	child, err := unix.PidfdOpen(c.kin.first, 0)
	if err != nil {
		return fmt.Errorf("pidfd: %w", err)
	}
	defer unix.Close(child)
	// Now that it can't be another one's any more:
	if again, err := findInside(e.keeper, number, s.wall.exe); err != nil || again.first != c.kin.first {
		return errors.Join(fmt.Errorf("process %d is not the child inside any more", c.kin.first), err)
	}
	fd, err := unix.PidfdGetfd(child, socket, 0)
	if err != nil {
		return fmt.Errorf("take the proxy's socket out of the wall: pidfd_getfd: %w", err)
	}
	f := os.NewFile(uintptr(fd), "the proxy's socket")
	if at, err := unix.Getsockname(fd); err != nil || !isProxyAddress(at) {
		return errors.Join(fmt.Errorf("descriptor %d of the child inside is not the proxy's socket", socket), err, f.Close())
	}
	return c.serveProxy(f, s.config.Policy.Network, s.command.Proxy)
}

func isProxyAddress(a unix.Sockaddr) bool {
	at, ok := a.(*unix.SockaddrInet4)
	return ok && at.Port == proxyAddress.Port && at.Addr == proxyAddress.Addr
}

func parentOf(pid int) (int, error) {
	_, fields, err := statOf(fmt.Sprintf("/proc/%d", pid))
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(fields[1])
}

func killHandle(f *os.File) { _ = unix.PidfdSendSignal(int(f.Fd()), unix.SIGKILL, nil, 0) }

// press kills what the keeper has not ended yet.
func (e *srtEnds) press() {
	for _, pid := range descendants(e.keeper, nil)[1:] {
		_ = unix.Kill(pid, unix.SIGKILL) // gone is what we want
	}
}

// adoptOrphans makes this process the parent of all below it whose parents end.
func adoptOrphans() error { return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// endDescendants kills all below this process, and returns when none is left.
func endDescendants() {
	for pause := time.Millisecond; ; pause = min(2*pause, 200*time.Millisecond) {
		for _, pid := range descendants(os.Getpid(), nil)[1:] {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
		for {
			pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil)
			if errors.Is(err, unix.ECHILD) {
				return
			}
			if err == nil && pid == 0 {
				break
			}
		}
		time.Sleep(pause)
	}
}

// dup makes to another name of from, which the exec does not close.
func dup(from, to int) error { return unix.Dup3(from, to, 0) }
