package sandbox

import (
	"net/url"
	"os"
	"strconv"
)

// Outputs is a power that a Session may have besides: what was too long or too
// large for a result stays on the server's disk, where no guest can reach it. It is
// safe for concurrent use, and takes no turn.
type Outputs interface {
	// Outputs are those that are there, the oldest first.
	Outputs() []Output
	// OpenOutput opens the one with a number, which the caller closes. Where it is
	// not there any longer, or never was, the error is fs.ErrNotExist and its
	// sentence says which.
	OpenOutput(n int) (*os.File, Output, error)
	// KeepOutput keeps data under a file name that tells what it is, such as
	// figure.png. The oldest outputs go where there is no room; what is larger than
	// all the room is refused.
	KeepOutput(name string, data []byte) (Output, error)
}

// Output is one of them.
type Output struct {
	N    int    // its number in the session, from 1
	Name string // stdout.txt, stderr.txt, or what it was kept as
	Size int64  // bytes
}

// OutputURI is how clients name output n of a session.
func OutputURI(session string, n int) string {
	return URIScheme + session + "/outputs/" + strconv.Itoa(n)
}

// FileURI is how clients name a file or directory of a session's workspace, by its
// path in it, with slashes.
func FileURI(session, path string) string {
	return URIScheme + session + "/files/" + (&url.URL{Path: "/" + path}).EscapedPath()[1:]
}

// URIScheme begins the URI of everything in a session; the session's id follows.
const URIScheme = "sandbox://"
