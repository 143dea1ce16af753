package sandboxtest

// Numbers that package syscall lacks, and those to imitate where a kernel has
// been built without them.
const (
	sysPrlimit = 302
	sysClone3  = 435
	sysIopl    = 172
	sysIoperm  = 173
)

// kexec_load, kexec_file_load, init_module, finit_module, delete_module
var imitable = []int{246, 320, 175, 313, 176}
