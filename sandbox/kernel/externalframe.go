package kernel

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"unicode/utf8"

	"mcp-sandbox/sandbox"
)

// A frame of kindExternal is a line of JSON, the head, and bytes of a call's
// arguments behind it. It is written by any thread of user code's process, so a
// frame is as short as a pipe takes at once, and arguments come in as many as
// they need.

const maxExternalFrame = 4096 - 5 // bytes

// externalHead is what a worker says of a call of an external tool.
type externalHead struct {
	Op     string `json:"op"`     // call, list, more, cancel, taken
	Cell   uint64 `json:"cell"`   // the call of the session that it belongs to
	ID     uint64 `json:"id"`     // of the external call; of a new one, above all before
	Taken  int64  `json:"taken"`  // bytes of answers that the worker has read, see externals.window
	Server string `json:"server"` // of call and list
	Tool   string `json:"tool"`   // of call
	Size   int    `json:"size"`   // of call: bytes of arguments, here and in what follows
}

func decodeExternal(payload []byte) (externalHead, []byte, error) {
	var h externalHead
	line, data, found := bytes.Cut(payload, []byte("\n"))
	if !found {
		return h, nil, fmt.Errorf("%w: external: no head", errFrame)
	}
	if err := json.Unmarshal(line, &h); err != nil {
		return h, nil, fmt.Errorf("%w: external: %w", errFrame, err)
	}
	if h.Taken < 0 || h.Cell > math.MaxInt64 || h.ID > math.MaxInt64 {
		return h, nil, fmt.Errorf("%w: external: a number out of bounds", errFrame)
	}
	named := func(name string) bool {
		return name != "" && len(name) <= sandbox.MaxExternalName && utf8.ValidString(name)
	}
	ok := false
	switch h.Op {
	case "call":
		ok = named(h.Server) && named(h.Tool) && h.Size >= 2 && h.Size <= sandbox.MaxExternalArguments && len(data) <= h.Size
	case "list":
		ok = named(h.Server) && len(data) == 0
	case "more":
		ok = len(data) > 0
	case "cancel", "taken":
		ok = len(data) == 0
	}
	if !ok {
		return h, nil, fmt.Errorf("%w: external: not the form of a %q", errFrame, clip(h.Op))
	}
	return h, data, nil
}

// isObject reports whether arguments are what Externals are promised.
func isObject(arguments []byte) bool {
	return len(arguments) > 0 && arguments[0] == '{' && utf8.Valid(arguments) && json.Valid(arguments) && sandbox.Depth(arguments) <= maxDepth
}

// answerTo is the body of an answer: a result, a list, or a fault.
type answerTo struct {
	Value   json.RawMessage       `json:"value,omitempty"`
	Content []answerPart          `json:"content,omitempty"`
	IsError bool                  `json:"error,omitempty"`
	Tools   []answerTool          `json:"tools,omitempty"`
	Fault   sandbox.ExternalFault `json:"fault,omitempty"`
	Text    string                `json:"text,omitempty"` // of a fault
}

type answerPart struct {
	Kind sandbox.ExternalKind `json:"kind"`
	Text string               `json:"text,omitempty"`
	Data []byte               `json:"data,omitempty"`
	MIME string               `json:"mime,omitempty"`
	URI  string               `json:"uri,omitempty"`
	Name string               `json:"name,omitempty"`
}

type answerTool struct {
	Name        string          `json:"name"`
	Title       string          `json:"title,omitempty"`
	Description string          `json:"description,omitempty"`
	Input       json.RawMessage `json:"input,omitempty"`
	Output      json.RawMessage `json:"output,omitempty"`
}

// unusable is an answer that the guest can't be handed.
func unusable(format string, args ...any) error {
	return &sandbox.ExternalError{Fault: sandbox.ExternalUnavailable, Text: fmt.Sprintf(format, args...)}
}

// encodeResult makes the body of a result, which is the word of a server that
// may be anybody's.
func encodeResult(r sandbox.ExternalResult) ([]byte, error) {
	size := len(r.Value)
	a := answerTo{IsError: r.IsError}
	for _, c := range r.Content {
		size += len(c.Text) + len(c.Data)/3*4 + len(c.MIME) + len(c.URI) + len(c.Name)
		a.Content = append(a.Content, answerPart{Kind: c.Kind, Text: c.Text, Data: c.Data, MIME: c.MIME, URI: c.URI, Name: c.Name})
	}
	if size > sandbox.MaxExternalResult {
		return nil, unusable("the tool's result is %s; at most %s can be taken: ask for less", Bytes(int64(size)), Bytes(sandbox.MaxExternalResult))
	}
	var err error
	if a.Value, err = clean(r.Value); err != nil {
		return nil, unusable("the tool's result is %v", err)
	}
	return encodeAnswer(a) // which finds out whether it is JSON
}

// encodeTools makes the body of a list.
func encodeTools(tools []sandbox.ExternalTool) ([]byte, error) {
	size := 0
	a := answerTo{Tools: []answerTool{}}
	for _, t := range tools {
		size += len(t.Name) + len(t.Title) + len(t.Description) + len(t.Input) + len(t.Output)
		known := answerTool{Name: t.Name, Title: t.Title, Description: t.Description}
		// A schema that can't be read is one that was not told: the server judges the arguments.
		known.Input, known.Output = schema(t.Input), schema(t.Output)
		a.Tools = append(a.Tools, known)
	}
	if size > sandbox.MaxExternalResult {
		return nil, unusable("the list of the server's tools is %s; at most %s can be taken", Bytes(int64(size)), Bytes(sandbox.MaxExternalResult))
	}
	return encodeAnswer(a)
}

func encodeAnswer(a answerTo) ([]byte, error) {
	body, err := marshal(a)
	if err != nil {
		return nil, unusable("the server's answer is no JSON")
	}
	if len(body) > sandbox.MaxExternalResult*2 { // short of which escapes may make it longer
		return nil, unusable("the server's answer is %s", Bytes(int64(len(body))))
	}
	return body, nil
}

// encodeFault makes the body of an answer that says why there is no result.
func encodeFault(fault sandbox.ExternalFault, text string) []byte {
	body, err := marshal(answerTo{Fault: fault, Text: clip(sandbox.ValidUTF8([]byte(text)))})
	if err != nil {
		return []byte(`{"fault":"unavailable"}`)
	}
	return body
}

func schema(v json.RawMessage) json.RawMessage {
	if !json.Valid(v) {
		return nil
	}
	v, _ = clean(v)
	return v
}

// clean is JSON, if it is any, that the guest's parser takes; nil for null.
func clean(v json.RawMessage) (json.RawMessage, error) {
	v = bytes.TrimSpace(v)
	switch {
	case len(v) == 0 || bytes.Equal(v, []byte("null")):
		return nil, nil
	case sandbox.Depth(v) > maxDepth:
		return nil, fmt.Errorf("JSON nested deeper than %d", maxDepth)
	}
	return bytes.ToValidUTF8(v, []byte("\uFFFD")), nil
}
