package workload

import (
	"encoding/json"
	"strings"
	"time"
)

// record is a workload, an artifact or a proton as the API tells of it. What it
// does not tell is zero.
type record struct {
	ID          string
	Name        string
	Description string
	Status      string // lower case; "" = not told
	Endpoint    string // the invoke URL, as it stands: see package doc before the token goes there
	ArtifactID  string
	ProtonID    string
	Role        string // of a proton
	CreatedAt   time.Time
	ExitCode    *int // null on today's platform
	LogTail     string
}

// UnmarshalJSON implements json.Unmarshaler. It fails where b is no object.
func (r *record) UnmarshalJSON(b []byte) error {
	var fields struct {
		ID, Name, Description, Status, Endpoint, ArtifactID, ProtonID, Role, CreatedAt loose[string]

		ExitCode loose[int]
		Artifact loose[struct{ ID loose[string] }]

		StatusDetails loose[struct{ LogTail loose[[]json.RawMessage] }]
	}
	if err := json.Unmarshal(b, &fields); err != nil {
		return err
	}
	*r = record{
		ID: fields.ID.v, Name: fields.Name.v, Description: fields.Description.v,
		Status: strings.ToLower(fields.Status.v), Endpoint: fields.Endpoint.v,
		ArtifactID: fields.ArtifactID.v, ProtonID: fields.ProtonID.v, Role: strings.ToLower(fields.Role.v),
		CreatedAt: parseTime(fields.CreatedAt.v), LogTail: logTail(fields.StatusDetails.v.LogTail.v),
	}
	if fields.ArtifactID.v == "" {
		r.ArtifactID = fields.Artifact.v.ID.v
	}
	if fields.ExitCode.ok {
		r.ExitCode = &fields.ExitCode.v
	}
	return nil
}

// workloadRecord is a record whose id may be called workloadId.
type workloadRecord struct{ record }

func (r *workloadRecord) UnmarshalJSON(b []byte) error {
	if err := r.record.UnmarshalJSON(b); err != nil {
		return err
	}
	var alias struct{ WorkloadID loose[string] }
	if err := json.Unmarshal(b, &alias); err != nil {
		return err
	}
	if alias.WorkloadID.v != "" {
		r.ID = alias.WorkloadID.v
	}
	return nil
}

// logTail joins the entries that hold something, texts or objects with a message.
func logTail(entries []json.RawMessage) string {
	var lines []string
	for _, e := range entries {
		var text loose[string]
		var object loose[struct{ Message loose[string] }]
		_ = text.UnmarshalJSON(e) // never fails
		_ = object.UnmarshalJSON(e)
		if line := text.v + object.v.Message.v; line != "" {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "\n")
}

// phase is what a status means to one who waits.
type phase int

const (
	moving phase = iota // something else will follow
	up                  // running
	failed              // as things stand; what came out of it may still arrive
	final               // nothing will follow
)

// phaseOf classes a status. One that is not known is still moving.
func phaseOf(status string) phase {
	switch status {
	case "running":
		return up
	case "errored", "stopped", "failed":
		return failed
	case "terminated", "suspended":
		return final
	case "succeeded", "completed": // never sent by the platform of today
		return failed
	}
	return moving
}
