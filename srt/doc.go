// Package srt is the local sandbox: one live Python interpreter for each
// session, behind a wall that this machine's kernel enforces, with nothing to
// install but Python.
//
// [New] finds the interpreter, raises the wall once and tries to get through
// it; only if every attempt fails does it return a [Local], whose sessions
// stand behind the same wall. A layer that can't be raised is an error that
// names the layer and the remedy. There is no mode without a wall.
//
// The wall of this package, native, is made of namespaces, a root of its own,
// no capabilities, no_new_privs, resource limits, Landlock, seccomp, and a
// control group where one can be written. The server starts itself again with
// the verb be-child ([BeChild]), which builds the wall around itself and then
// executes Python.
//
// Commands ([Config.Commands]) run behind a stricter one: a root in which of the
// system only the programs of the list and their libraries exist, found once by reading
// their files, with nothing writable but a /tmp and a /dev/shm that can't be executed
// from, no /proc and no sockets. Where one binary is many programs (busybox), all that it can be is there,
// and the list alone says by which name it is called. PID 1 there is this binary once more,
// the warden, which starts pipelines argv by argv, without a shell; which and shasum are
// applets of it ([Applet]).
//
// What it does not protect against: faults of the kernel in what it still
// offers to the inside; other users' hardware side channels; what a person does
// with files that the guest wrote.
package srt
