//go:build !linux

package plain

import "syscall"

// apart puts a process into a group of its own.
func apart() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
