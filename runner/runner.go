// Package runner holds the program that a one-shot container of the remote
// sandbox runs. It is here for those who start it without an image, as the
// emulator does; the Dockerfile beside it makes an image of it.
package runner

import _ "embed"

// Source is runner.py: Python 3.9 or newer, the standard library alone.
//
//go:embed runner.py
var Source string
