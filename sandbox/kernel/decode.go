package kernel

import (
	"bytes"
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"mcp-sandbox/sandbox"
)

// What a worker may say is hostile: user code shares its process. Whatever is
// not of the form below ends the interpreter.

const (
	maxDepth = 100   // nesting of a value; kernel.py stops at 50
	maxNotes = 50    // notes of one reply
	maxText  = 64000 // bytes of an error's or a note's text

	valueSlack = 64 << 10 // a repr's bounds are counted before it is escaped
)

// reply is a worker's answer to a request.
type reply struct {
	Event       string          `json:"event"`
	ID          string          `json:"id"`
	Status      string          `json:"status"` // ok, error, interrupted
	Output      json.RawMessage `json:"output"`
	ReturnValue json.RawMessage `json:"return_value"`
	Error       string          `json:"error"`
	ExitCode    int             `json:"exit_code"`
	OOM         bool            `json:"oom"`
	Interrupted bool            `json:"interrupted"`
	Hint        string          `json:"hint"` // what the server is to explain, see Config.Hints
	Notes       []string        `json:"notes"`
}

func decodeReply(payload []byte) (reply, error) {
	var r reply
	if !utf8.Valid(payload) { // values are passed on as they are
		return r, fmt.Errorf("%w: reply: not UTF-8", errFrame)
	}
	if err := json.Unmarshal(payload, &r); err != nil {
		return r, fmt.Errorf("%w: reply: %w", errFrame, err)
	}
	switch {
	case r.Event == "refused": // the request, before any code ran
		r.Error = clip(r.Error)
		return r, nil
	case r.Event != "result" && r.Event != "restored":
		return r, fmt.Errorf("%w: reply: unknown event %q", errFrame, clip(r.Event))
	case len(r.Notes) > maxNotes:
		return r, fmt.Errorf("%w: reply: %d notes", errFrame, len(r.Notes))
	}
	for i := range r.Notes {
		r.Notes[i] = clip(r.Notes[i])
	}
	if r.Event == "restored" { // no answer: a standby tells what it could not bring along
		return reply{Event: r.Event, Notes: r.Notes}, nil
	}
	switch r.Status {
	case "ok", "error", "interrupted":
	default:
		return r, fmt.Errorf("%w: reply: unknown status %q", errFrame, clip(r.Status))
	}
	for _, v := range []*json.RawMessage{&r.Output, &r.ReturnValue} {
		var err error
		if *v, err = DecodeValue(*v); err != nil {
			return r, fmt.Errorf("%w: reply: %w", errFrame, err)
		}
	}
	r.Error = clip(r.Error)
	return r, nil
}

// DecodeValue checks a value that a guest sent, which is JSON in UTF-8, against
// the bounds of a Result, and returns it as a Result has it: nil for null.
func DecodeValue(v json.RawMessage) (json.RawMessage, error) {
	switch {
	case bytes.Equal(v, []byte("null")):
		return nil, nil
	case sandbox.Depth(v) > maxDepth:
		return nil, fmt.Errorf("a value nested deeper than %d", maxDepth)
	case len(v) > sandbox.MaxValue+valueSlack:
		return nil, fmt.Errorf("a value of %d bytes", len(v))
	}
	return wholeSurrogates(v), nil
}

// wholeSurrogates replaces escapes of half a surrogate pair, which JSON allows
// and many a client's parser does not.
func wholeSurrogates(v json.RawMessage) json.RawMessage {
	if !bytes.Contains(v, []byte(`\ud`)) && !bytes.Contains(v, []byte(`\uD`)) {
		return v
	}
	out := bytes.Clone(v)
	for i := 0; i < len(out); i++ {
		if out[i] != '\\' {
			continue
		}
		switch half := surrogate(out[i:]); {
		case half == 1 && surrogate(out[i+6:]) == 2:
			i += 11
		case half != 0:
			copy(out[i:], `\ufffd`)
			i += 5
		default:
			i++ // whatever is escaped, also a backslash
		}
	}
	return out
}

// surrogate is 1 for an escape of a high half, 2 for a low one, 0 for all else.
func surrogate(b []byte) int {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' || b[2]|0x20 != 'd' {
		return 0
	}
	switch c := b[3] | 0x20; {
	case b[3] == '8' || b[3] == '9' || c == 'a' || c == 'b':
		return 1
	case c >= 'c' && c <= 'f':
		return 2
	}
	return 0
}

func clip(s string) string { return sandbox.Clip(s, maxText) }

// event is what the supervisor says of itself and of its worker. It never runs
// user code, and its frames can't be forged by code that does.
type event struct {
	Event    string `json:"event"` // worker, died, done, checkpoint, discarded
	Exit     *int   `json:"exit"`
	Signal   *int   `json:"signal"`
	Asked    bool   `json:"asked"`    // the death was our doing
	Requests *int   `json:"requests"` // how many had reached a worker when it died, all in all
	Standby  bool   `json:"standby"`  // a standby is taking over from the one that died
	Restored *int   `json:"restored"` // the worker was a standby, parked after that many calls
	PID      int    `json:"pid"`      // of the worker or standby, as seen from inside
	Seq      uint64 `json:"seq"`      // of the control that is done
}

func decodeEvent(payload []byte) (event, error) {
	var e event
	if err := json.Unmarshal(payload, &e); err != nil {
		return e, fmt.Errorf("%w: event: %w", errFrame, err)
	}
	switch e.Event {
	case "worker", "done", "checkpoint", "discarded":
		return e, nil
	case "died":
		if e.Exit == nil && e.Signal == nil {
			return e, fmt.Errorf("%w: event: died of nothing", errFrame)
		}
		return e, nil
	}
	return e, fmt.Errorf("%w: event: unknown %q", errFrame, clip(e.Event))
}

// encodeRun makes the payload of a request. Inputs travel as they came, so
// that numbers stay exact.
func encodeRun(id string, req sandbox.Request, ext *externals) ([]byte, error) {
	m := map[string]any{"op": "run", "id": id, "code": req.Code}
	if req.Inputs != nil {
		inputs, err := marshal(req.Inputs)
		if err != nil {
			return nil, sandbox.Invalid("inputs can't be given as JSON: %v", err)
		}
		if len(inputs) > sandbox.MaxInputs {
			return nil, sandbox.Invalid("inputs are %d bytes as JSON; at most %d are allowed: put data into a file of the workspace", len(inputs), sandbox.MaxInputs)
		}
		m["inputs"] = json.RawMessage(inputs)
	}
	if offer := ext.offer(); offer != nil {
		m["externals"] = offer
	}
	return marshal(m)
}

// marshal writes JSON without escapes that only HTML needs.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}
