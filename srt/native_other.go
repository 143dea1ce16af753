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
)

func newNative(nativeConfig) (*native, error) { return nil, errNoNative }

func (*native) start(context.Context, Policy, command) (*cage, error) { return nil, errNoNative }
func (*native) limitsMemory() bool                                    { return false }
func (*native) hostIDs() (uid, gid int)                               { return os.Geteuid(), os.Getegid() }
func (*native) close() error                                          { return nil }

func (*native) hostFacts() [][2]string { return nil }
