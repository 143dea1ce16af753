// Package allowlist reads a command line, decides whether it may run, and says
// why not. It is pure: it does no input or output, starts nothing, and looks at
// nothing of the machine.
//
// # Grammar
//
// Simple commands joined by | and &&, and nothing else. Quotes, escapes, $'…'
// with single-letter escapes, comments, file name patterns, ~, $HOME, $PWD and
// $USER, and LC_*, LANG and TZ put before a command mean what they mean to bash.
// An operator is one where a shell would see one: quoted, it is text. With
// [Options].Strict, the character sequences ||, ;, backtick, $(, > and < are
// refused wherever they stand.
//
// # What is promised
//
// A [Pipeline] is argument lists, to be executed one by one. No text, neither
// the original nor one printed again, may be given to a shell: there are inputs
// that every parser but the shell's own reads as one harmless command, and that
// run two. Two readers must agree before a line passes: a scanner of our own,
// which knows nothing but where words begin and what is refused, and the parser
// of mvdan.cc/sh, from whose tree the arguments are made.
//
// Not promised: that a command finds what it looks for, or ends. Time, memory,
// output, and what can be seen and written at all, are the wall's.
package allowlist
