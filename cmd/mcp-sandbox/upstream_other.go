//go:build !linux

package main

import (
	"os"
	"syscall"
)

// ownProgram is this program.
func ownProgram() (string, error) { return os.Executable() }

// keptAttributes put a server into a group of its own, which is what ends with its
// keeper.
func keptAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func adoptOrphans() {}

func children() []int { return nil }
