//go:build !linux

package srt

import (
	"context"
	"net"
)

// Contained is a started Program; on this system there is none.
type Contained struct{}

// Contain says that this system has no native wall.
func (l *Local) Contain(context.Context, Program) (*Contained, error) { return nil, errNoNative }

// Wait, OOMKilled, Terminate, Kill and Dial are those of a program that was never started.
func (*Contained) Wait() int                              { return 0 }
func (*Contained) OOMKilled() bool                        { return false }
func (*Contained) Terminate()                             {}
func (*Contained) Kill()                                  {}
func (*Contained) Dial(context.Context) (net.Conn, error) { return nil, errNoNative }
