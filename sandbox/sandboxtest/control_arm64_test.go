package sandboxtest

// Numbers that package syscall lacks, and those to imitate where a kernel has
// been built without them.
const (
	sysPrlimit = 261
	sysClone3  = 435
	sysIopl    = 0 // none
	sysIoperm  = 0
)

// kexec_load, kexec_file_load, init_module, finit_module, delete_module
var imitable = []int{104, 294, 105, 273, 106}
