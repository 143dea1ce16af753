package workload

import (
	"bytes"
	"compress/zlib"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"strconv"
	"strings"
	"time"

	"mcp-sandbox/sandbox"
	"mcp-sandbox/sandbox/kernel"
)

// parcel is what once.py says of a call. It comes as lines of the log, known by
// the run's own nonce, of which any may be late, twice, or out of order. The code
// could write such lines too, if it found the nonce in the memory that it
// shares with nobody else: it would deceive its own caller alone.
type parcel struct {
	Timeout   bool    `json:"timeout"` // it was told to stop, its time being up
	Killed    bool    `json:"killed"`  // it had to be
	Wall      float64 `json:"wall_s"`
	Exit      int     `json:"exit"`   // of the process; -1 = it has none
	Signal    int     `json:"signal"` // that ended it; 0 = none
	OOMKilled bool    `json:"oom_killed"`
	OutHead   []byte  `json:"out_head"`
	OutTail   []byte  `json:"out_tail"`
	OutBytes  int64   `json:"out_bytes"`
	ErrHead   []byte  `json:"err_head"`
	ErrTail   []byte  `json:"err_tail"`
	ErrBytes  int64   `json:"err_bytes"`
	Reply     *reply  `json:"reply"` // nil = the process ended without one
}

// reply is the word of the process that ran the code.
type reply struct {
	Status   string          `json:"status"` // ok or error
	Error    string          `json:"error"`
	ExitCode int             `json:"exit_code"`
	OOM      bool            `json:"oom"`
	Duration float64         `json:"duration_s"`
	Output   json.RawMessage `json:"output"`
	Return   json.RawMessage `json:"return_value"`
	Notes    []string        `json:"notes"`
}

const (
	maxParts  = 1 << 10
	maxParcel = 8 << 20 // bytes, unpacked
	maxNotes  = 20
	maxText   = 64_000 // bytes of an error's or a note's text
)

// label is the value after the marker where a parcel comes with it.
type label struct {
	Nonce string `json:"drx"`
	Parts int    `json:"parts"`
	Sum   uint32 `json:"sum"`
}

// readLabel reads it; ok is false for the value of somebody else's runner.
func readLabel(value json.RawMessage, nonce string) (l label, ok bool) {
	if len(value) > 500 || json.Unmarshal(value, &l) != nil {
		return label{}, false
	}
	return l, l.Nonce == nonce && l.Parts > 0 && l.Parts <= maxParts
}

// errParts says that some of a parcel's lines are not there yet.
var errParts = errors.New("parts of the result are missing")

// openParcel puts a parcel together from the log's lines.
func openParcel(l label, rows []row) (*parcel, error) {
	parts := make([]string, l.Parts)
	prefix := "__DRX__" + l.Nonce + ":"
	found := 0
	for _, r := range rows {
		for _, text := range strings.Split(r.Message, "\n") {
			rest, ok := strings.CutPrefix(text, prefix)
			if !ok {
				continue
			}
			place, data, _ := strings.Cut(rest, ":")
			at, _, _ := strings.Cut(place, "/")
			n, err := strconv.Atoi(at)
			if err == nil && n >= 0 && n < l.Parts && parts[n] == "" {
				parts[n] = strings.TrimSpace(data)
				found++
			}
		}
	}
	if found < l.Parts {
		return nil, fmt.Errorf("%w: %d of %d have come", errParts, found, l.Parts)
	}
	packed := strings.Join(parts, "")
	if crc32.ChecksumIEEE([]byte(packed)) != l.Sum {
		return nil, errors.New("the result's lines were damaged on their way")
	}
	return unpack(packed)
}

func unpack(packed string) (*parcel, error) {
	raw, err := base64.StdEncoding.DecodeString(packed)
	if err != nil {
		return nil, err
	}
	z, err := zlib.NewReader(bytes.NewReader(raw))
	if err != nil {
		return nil, err
	}
	plain, err := io.ReadAll(io.LimitReader(z, maxParcel+1))
	if err != nil {
		return nil, err
	}
	if len(plain) > maxParcel {
		return nil, fmt.Errorf("the result is longer than %d bytes", maxParcel)
	}
	var p parcel
	if err := json.Unmarshal(plain, &p); err != nil {
		return nil, err
	}
	return &p, p.check()
}

// check bounds what the code had a hand in.
func (p *parcel) check() error {
	r := p.Reply
	if r == nil {
		return nil
	}
	for _, v := range []*json.RawMessage{&r.Output, &r.Return} {
		var err error
		if *v, err = kernel.DecodeValue(*v); err != nil {
			return err
		}
	}
	if r.Notes = r.Notes[:min(len(r.Notes), maxNotes)]; r.Status != "ok" && r.Status != "error" {
		return fmt.Errorf("unknown status %q", clean(r.Status, 64))
	}
	for i := range r.Notes {
		r.Notes[i] = sandbox.Clip(r.Notes[i], maxText)
	}
	r.Error = sandbox.Clip(r.Error, maxText)
	return nil
}

// result is the parcel as a Result.
func (p *parcel) result(limit time.Duration, memory int64) sandbox.Result {
	res := sandbox.Result{Duration: seconds(p.Wall)}
	res.Stdout, res.Truncated.Stdout = stream(p.OutHead, p.OutTail, p.OutBytes)
	res.Stderr, res.Truncated.Stderr = stream(p.ErrHead, p.ErrTail, p.ErrBytes)
	if r := p.Reply; r != nil {
		res.Duration = seconds(r.Duration)
		res.Output, res.ReturnValue, res.Error, res.Notes = r.Output, r.Return, r.Error, r.Notes
	}
	switch r := p.Reply; {
	case p.Timeout:
		res.Status = sandbox.StatusTimeout
		text := fmt.Sprintf("The time limit of %v was reached.", limit)
		if p.Killed {
			text += " The code did not stop when it was interrupted, so the interpreter was ended."
		}
		res.Error = strings.TrimSpace(text + "\n\n" + res.Error)
	case r == nil && p.Signal != 0:
		p.killed(&res, memory)
		return res
	case r == nil:
		res.Status, res.ExitCode = sandbox.StatusCrash, p.Exit
		res.Error = fmt.Sprintf("The interpreter ended: it exited with code %d, by os._exit or from native code.", p.Exit)
		return res
	case r.OOM:
		res.Status = sandbox.StatusOOM
		res.Error += "\n\nThe container's memory limit is " + kernel.Bytes(memory) + "."
	case r.Status == "ok":
		res.Status, res.Error = sandbox.StatusOK, ""
	default:
		res.Status, res.ExitCode = sandbox.StatusError, r.ExitCode
		if res.ExitCode < 1 || res.ExitCode > 255 { // the code's own word, so bounded
			res.ExitCode = 1
		}
		if res.Error == "" {
			res.Error = "The code failed without a word of why."
		}
		return res
	}
	res.ExitCode = res.Status.ExitCode()
	return res
}

func (p *parcel) killed(res *sandbox.Result, memory int64) {
	const sigkill = 9
	if p.Signal == sigkill && p.OOMKilled {
		res.Status, res.ExitCode = sandbox.StatusOOM, sandbox.StatusOOM.ExitCode()
		res.Error = "The interpreter was ended: the code went beyond the container's memory limit of " + kernel.Bytes(memory) + "."
		return
	}
	res.Status, res.ExitCode = sandbox.StatusCrash, 128+p.Signal
	res.Error = fmt.Sprintf("The interpreter ended: killed by signal %d.", p.Signal)
}

// stream is head and tail of what was produced, as text.
func stream(head, tail []byte, produced int64) (string, sandbox.Count) {
	kept := int64(len(head) + len(tail))
	produced = max(produced, kept)
	if produced == kept {
		return sandbox.ValidUTF8(append(bytes.Clone(head), tail...)), sandbox.Count{Produced: produced, Kept: kept}
	}
	text, in := sandbox.Excerpt(head, tail, produced-kept, "not kept: print less")
	return text, sandbox.Count{Produced: produced, Kept: in}
}

func seconds(s float64) time.Duration {
	if !(s > 0 && s < 1e6) { // what is no number neither
		return 0
	}
	return time.Duration(s * float64(time.Second))
}
