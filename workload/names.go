package workload

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"regexp"
	"strings"
	"time"
)

// What belongs to this product, and to which server of it, is written into the
// names and descriptions of workloads and artifacts: there is no other place
// that a request to create can fill.

const (
	workloadPrefix = "dr-sandbox-"
	artifactPrefix = "dr-sandbox-artifact-"
	application    = "mcp-sandbox"
)

// names are those of one workload and its artifact.
type names struct{ workload, artifact string }

// newNames are names that nobody else has.
func newNames() names {
	var b [6]byte
	_, _ = rand.Read(b[:]) // never fails
	id := hex.EncodeToString(b[:])
	return names{workloadPrefix + id, artifactPrefix + id}
}

var ourName = regexp.MustCompile(`^dr-sandbox-(artifact-)?[0-9a-f]{12}$`)

// mark is the description of what we create: whose it is, and when nobody can
// need it any more.
type mark struct {
	App     string `json:"app"`
	Owner   string `json:"owner"`
	Created int64  `json:"created"` // Unix seconds
	Expires int64  `json:"expires"` // likewise
}

func newMark(owner string, now time.Time, life time.Duration) mark {
	return mark{App: application, Owner: owner, Created: now.Unix(), Expires: now.Add(life).Unix()}
}

func (m mark) String() string {
	b, _ := json.Marshal(m) // strings and numbers
	return string(b)
}

// readMark reads a description; ok is false where it is not ours.
func readMark(description string) (m mark, ok bool) {
	if !strings.HasPrefix(description, "{") || json.Unmarshal([]byte(description), &m) != nil {
		return mark{}, false
	}
	return m, m.App == application && m.Owner != "" && m.Expires > 0
}
