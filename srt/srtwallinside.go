package srt

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// runInside is what srt executes behind its wall. It returns only if become does, which means
// that a layer could not be raised.
func runInside(become func(c insideConfig, report int) error) int {
	if err := reserve(); err != nil {
		fmt.Fprintln(os.Stderr, "mcp-sandbox: reserve descriptors:", err)
		return 1
	}
	var config insideConfig
	if err := readJSON(0, &config); err != nil {
		fmt.Fprintln(os.Stderr, "mcp-sandbox: read the configuration:", err)
		return 1
	}
	report, err := openHigh(config.Report, unix.O_WRONLY)
	if err != nil {
		fmt.Fprintln(os.Stderr, "mcp-sandbox: the report:", err)
		return 1
	}
	socket, unopened := config.listen()
	hello := binary.BigEndian.AppendUint32(nil, uint32(os.Getpid()))
	_, err = unix.Write(report, binary.BigEndian.AppendUint32(hello, uint32(socket)))
	if err = errors.Join(err, unopened); err == nil {
		err = become(config, report)
	}
	var layer *LayerError
	if !errors.As(err, &layer) {
		layer = &LayerError{Layer: layerExec, Err: err}
	}
	r := childReport{Layer: layer.Layer, Error: layer.Err.Error(), Remedy: layer.Remedy}
	errors.As(layer.Err, &r.Errno)
	out, _ := json.Marshal(r) // strings and a number: can't fail
	unix.Write(report, out)   // nobody is left to tell if this fails
	return 1
}

// listen opens the socket of the server's proxy, if it is to have one; 0 = there is none. The
// exec closes it.
func (c insideConfig) listen() (fd int, err error) {
	if !c.Proxy {
		return 0, nil
	}
	if fd, err = proxySocket(); err == nil {
		fd, err = moveHigh(fd)
	}
	if err != nil {
		return 0, failed(layerNetwork, err)
	}
	return fd, nil
}

// open returns what the guest's program gets, from descriptor 0 on, all at high numbers.
func (c insideConfig) open() ([]int, error) {
	var fds []int
	add := func(path string, flag int) error {
		fd, err := openHigh(path, flag)
		fds = append(fds, fd)
		return err
	}
	errs := []error{add("/dev/null", unix.O_RDONLY)}
	for _, path := range c.Streams {
		if path == "" {
			path = "/dev/null"
		}
		errs = append(errs, add(path, unix.O_WRONLY))
	}
	for i, path := range c.Extra {
		flag := unix.O_WRONLY
		if c.Reads[i] {
			flag = unix.O_RDONLY
		}
		errs = append(errs, add(path, flag))
	}
	if c.OOMFD {
		errs = append(errs, add("/proc/self/oom_score_adj", unix.O_RDWR))
	}
	return fds, errors.Join(errs...)
}

// reserve takes all numbers that the guest's program may get, so that the runtime takes none
// of them for itself. It comes before anything else that opens something.
func reserve() error {
	null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(null)
	for fd := 3; fd < highFD; fd++ {
		if what, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd)); err == nil && strings.HasPrefix(what, "anon_inode:") {
			return fmt.Errorf("the runtime has taken descriptor %d already (%s)", fd, what)
		}
		if fd != null {
			if err := dup(null, fd); err != nil {
				return err
			}
		}
	}
	return dup(null, null+highFD)
}

// highFD is above every number that the guest's program gets.
const highFD = 64

// openHigh opens a path at a number that is in nobody's way.
func openHigh(path string, flag int) (int, error) {
	fd, err := unix.Open(path, flag|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return moveHigh(fd)
}

func moveHigh(fd int) (int, error) {
	defer unix.Close(fd)
	return unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, highFD)
}

// arrange gives descriptors their numbers, from 0 on.
func arrange(fds []int) error {
	for i, fd := range fds {
		if err := dup(fd, i); err != nil {
			return fmt.Errorf("descriptor %d: %w", i, err)
		}
	}
	return nil
}
