package srt

import "syscall"

// apartFromUs puts a program into a process group of its own that ends with the server.
func apartFromUs() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
