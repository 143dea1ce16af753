// Package sandboxtest holds what every backend is measured with, and what the
// rooms above the backends are tested with.
//
//   - [Fake] is a sandbox without a sandbox: a script says what each call
//     yields, and the calls are on record.
//   - [Run] is the conformance suite: a table of programs, each with the Result
//     that it must yield on any backend. What a backend can't do it names in
//     its [Abilities], with the reason.
//   - [Escape] is the escape table: attempts to get through the wall, each with
//     the [Verdict] that it must get. Every attempt is made for real; a test of
//     this package runs them without a wall and asserts that they succeed there.
package sandboxtest
