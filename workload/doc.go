// Package workload is the remote sandbox: Python in containers of a cluster,
// through the DataRobot Workload API.
//
// The platform knows no jobs, only services that are restarted when they end.
// So there are two ways to run code. A session's container runs an agent that
// holds the interpreter and never ends by itself (ModeSession). A one-shot
// container runs the code once, in the published image's own runner, and tells
// of it in its log (ModeOneShot); the platform then starts it again, and code
// may run a second time before it is deleted.
//
// Nothing is left behind: what is created is deleted, with retries that do not
// depend on the caller, and what a lost answer or a killed server left is found
// again by its name and by the mark in its description. Another server's
// workloads are not touched while it may live.
//
// The token goes to the origin of the API alone, in one header. It is in no log
// and no error, and in no container. Whatever comes from the API is decoded with
// bounds and without trust in its shape; what is sent has only the fields that
// the API knows.
//
// A session is a [remote] with an [interpreter] in it: agent/ holds the Python that
// runs in the container, mac.go how messages are sealed, link how the kernel's
// channel gets there and back, mirror how the two workspaces stay the same. What is
// lost on the way is sent again and run once; a container that was lost is told as
// sandbox.StateLost, and never spoken to again.
//
// What the wall around the code is, the cluster says: the containers ask for
// the strictest security context that a user may ask for, but their network is
// the cluster's to limit. See SECURITY.md.
package workload
