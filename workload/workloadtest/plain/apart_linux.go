package plain

import "syscall"

// apart puts a process into a group of its own that ends with us.
func apart() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
