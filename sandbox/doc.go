// Package sandbox holds the words that every room of mcp-sandbox shares: what
// may be asked of a sandbox, what comes back, and who owns an open session.
//
// The one distinction to keep in mind: what the guest does is a [Result], what
// the wall does is an error. Code that raises, runs out of time or kills its
// interpreter yields a Result with a status that says so, and a nil error. An
// error says that the sandbox itself could not do its work, or that the caller
// has gone.
//
// Code may call tools outside the wall: [Request.Externals] answers it, and
// [Functions] are Go functions as such.
//
// Backends (package srt, package workload) implement [Sandbox] and [Session];
// package sandboxtest holds the suite that each of them must pass.
package sandbox
