// Package workloadtest is an emulator of the DataRobot Workload API: real HTTP
// in front of real processes. It is strict about requests, and its answers have
// the platform's own shapes, which recorded exchanges hold it to. What a cluster
// does late, wrong or differently is a field of [Config], and whatever goes
// wrong on the way a [Fault].
//
// A container is a process that a [Starter] starts, so the emulator's room needs no
// right to start any. A container whose image's command is not overridden runs our own runner (see
// package runner) in the interpreter of Config.Python; one with an entrypoint
// runs that, where the interpreter of the published image, /opt/venv/bin/python,
// stands for the same interpreter.
//
// Not emulated: containers beside the primary one, more than one replica,
// replacements of a running workload, image builds, the live specification. Of these
// the first two are accepted and not run, replacements answered with 501.
package workloadtest
