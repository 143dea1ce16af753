//go:build !linux

package srt

import "syscall"

// apartFromUs puts a program into a process group of its own.
func apartFromUs() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
