//go:build !linux

package srt

import (
	"context"
	"errors"
	"fmt"
	"os"
)

// errNoNative is what the native wall says where there is none.
var errNoNative = fmt.Errorf("srt: the native wall needs Linux: %w", errors.ErrUnsupported)

type (
	nativeConfig struct {
		Executable string
		HostID     int
		Proc       string
	}
	native struct{}
	cage   struct{}
)

func newNative(nativeConfig) (*native, error) { return nil, errNoNative }

func (*native) start(context.Context, Policy, command) (*cage, error) { return nil, errNoNative }
func (*native) limits() string                                        { return "" }
func (*native) limitsMemory() bool                                    { return false }
func (*native) hostIDs() (uid, gid int)                               { return os.Geteuid(), os.Getegid() }
func (*native) close() error                                          { return nil }

func (*cage) Pid() int                { return 0 }
func (*cage) Done() <-chan struct{}   { return nil }
func (*cage) Wait() *os.ProcessState  { return nil }
func (*cage) Kill() error             { return errNoNative }
func (*cage) Close() error            { return errNoNative }
func (*cage) OOMKills() (int64, bool) { return 0, false }
func (*cage) oomKilled() bool         { return false }
func (*cage) limitsMemory() bool      { return false }
func (*cage) memory() (int64, error)  { return 0, errNoNative }

func (*native) hostFacts() [][2]string { return nil }

func sweepCgroups() error { return nil }

// BeChild is the hidden half of the binary; on this system it has nothing to do.
func BeChild([]string) int {
	fmt.Fprintln(os.Stderr, errNoNative)
	return 2
}
