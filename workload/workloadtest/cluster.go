package workloadtest

import "time"

// Cluster is how an installation of the platform behaves. The zero value is the
// usual one. Times are the platform's.
type Cluster struct {
	Limit    int             // concurrent workloads of a user; 0: no limit
	Replicas int             // of a workload; 0: no limit
	Flags    map[string]bool // entitlements; nil: those that a sandbox needs are true. Others are unknown

	NotEntitled bool // the Workload API is not there for anybody: every call is 403

	Submitted    time.Duration // in this state; 0: 300 ms
	Provisioning time.Duration // 0: 1 s
	Pull         time.Duration // of the image; 0: 2 s
	PullFailures int           // pulls that fail before one succeeds
	PullRetry    time.Duration // after a failed pull; 0: 10 s
	Report       time.Duration // until statusDetails are there; 0: 1 s
	Grace        time.Duration // between SIGTERM and SIGKILL; 0: 30 s
	TTL          time.Duration // of a workload; 0: 8 h
	ErroredFrom  int           // the restart with which a workload is errored; 0: 2

	Command         []string // what images run, whatever was published; nil: our runner
	RefusedImages   []string // image URIs that the cluster does not permit
	RefuseEntry     bool     // an entrypoint is 422
	ErroredRecovers bool     // errored becomes running while a restarted container lives; else it sticks
	Unschedulable   bool     // no node takes a pod: it stays submitted
	OOM             bool     // every container is killed for its memory once it runs

	WorkloadID     bool // records have a workloadId too
	LegacyExitCode bool // records have the exit code of the last attempt, not null
	LogTail        bool // records have the last lines of the output
	DetailsOld     bool // statusDetails have the shape of spec 11.5
	DetailsMissing bool // statusDetails are 404
	DetailsEmpty   bool // statusDetails are 204 for ever
	DeleteRetries  int  // first DELETEs of each workload that are 502 "please retry"

	RecordLag   time.Duration // after its creation a workload is 404 to who reads it
	ListLag     time.Duration // likewise, is in no list
	InjectToken bool          // containers get an endpoint and a token, asked for or not

	ErroredBlocks bool          // requests to the container of an errored workload are 503
	InvokeTimeout time.Duration // of a request to a container, then 504; 0: none
	InvokeBody    int64         // bytes of a request to a container, beyond them 413; 0: no limit
	InvokeDenied  bool          // requests to containers are 403
	EndpointBase  string        // where records say that containers are; "": at this server
}

func (c Cluster) withDefaults() Cluster {
	for _, d := range []struct {
		field *time.Duration
		usual time.Duration
	}{
		{&c.Submitted, 300 * time.Millisecond}, {&c.Provisioning, time.Second}, {&c.Pull, 2 * time.Second},
		{&c.PullRetry, 10 * time.Second}, {&c.Report, time.Second}, {&c.Grace, 30 * time.Second}, {&c.TTL, 8 * time.Hour},
	} {
		if *d.field == 0 {
			*d.field = d.usual
		}
	}
	if c.ErroredFrom == 0 {
		c.ErroredFrom = 2
	}
	if c.Flags == nil {
		c.Flags = map[string]bool{flagSandbox: true, flagSecurity: true}
	}
	return c
}

// The entitlements that a sandbox asks for.
const (
	flagSandbox  = "ENABLE_MCP_SANDBOX"
	flagSecurity = "ENABLE_WORKLOAD_API_SECURITY_CONTEXT"
)

// Logs is how a cluster's logs come. The zero value is: each row after 400 ms,
// newest first. Times are the platform's.
type Logs struct {
	Stdout, Stderr, Platform time.Duration // from a line's writing to its row; 0: 400 ms
	Jitter                   time.Duration // at most so much more for each row, at random
	Never                    bool          // no row ever comes

	Limit       int  // rows of a page whose request names no limit; 0: 100
	Split       bool // lines are cut at 16 KiB
	Newlines    bool // messages keep their line's end
	OldestFirst bool
	Duplicate   bool   // each row comes twice
	Overlap     int    // rows of a page that the next one repeats
	EmptyPage   bool   // the page after the last has no rows, and a next page
	NextBase    string // scheme and host of the next page; "": ours
}

const usualLag = 400 * time.Millisecond

func (l Logs) withDefaults() Logs {
	for _, d := range []*time.Duration{&l.Stdout, &l.Stderr, &l.Platform} {
		if *d == 0 {
			*d = usualLag
		}
	}
	if l.Limit == 0 {
		l.Limit = 100
	}
	return l
}
