package main

import (
	"encoding/json"
	"maps"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"
)

// message is a JSON-RPC message, as far as it is looked at here. Of a tools/call
// the arguments are kept apart.
type message struct {
	Version json.RawMessage `json:"jsonrpc,omitempty"`
	ID      json.RawMessage `json:"id,omitempty"`
	Method  string          `json:"method"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   json.RawMessage `json:"error,omitempty"`
	Params  json.RawMessage `json:"params,omitempty"`

	text      []byte          // as mcp-go is to get it
	arguments json.RawMessage // as they came; nil = in text, if anywhere
}

// decode takes one message, or says in JSON-RPC's words why it is none.
func decode(text []byte) (message, *mcp.JSONRPCErrorDetails) {
	var m message
	err := json.Unmarshal(text, &m)
	switch {
	case err == nil && m.Method == string(mcp.MethodToolsCall):
		return m.withoutArguments(text), nil
	case err == nil:
		m.text = text
		return m, nil
	case json.Valid(text):
		return m, &mcp.JSONRPCErrorDetails{Code: mcp.INVALID_REQUEST, Message: "a message must be a JSON-RPC object; batches are not supported"}
	default:
		return m, &mcp.JSONRPCErrorDetails{Code: mcp.PARSE_ERROR, Message: brief("Parse error: " + err.Error())}
	}
}

// cancelledMethod is the notification by which a client gives up a request.
const cancelledMethod = "notifications/cancelled"

// request reports whether m wants an answer.
func (m message) request() bool { return m.ID != nil && string(m.ID) != "null" && m.Method != "" }

// response reports whether m answers somebody. We never ask, so nobody waits for it.
func (m message) response() bool { return m.Method == "" && (m.Result != nil || m.Error != nil) }

// withoutArguments takes the arguments out of a tools/call: mcp-go would decode
// them, and refuse the whole request for a number beyond a float's range. What
// has none to take out is left as it is.
func (m message) withoutArguments(text []byte) message {
	m.text = text
	var params map[string]json.RawMessage
	if json.Unmarshal(m.Params, &params) != nil || params == nil {
		return m
	}
	arguments := params["arguments"]
	maps.DeleteFunc(params, func(name string, _ json.RawMessage) bool {
		return strings.EqualFold(name, "arguments") // as encoding/json matches names
	})
	bare := m
	var err error
	if bare.Params, err = json.Marshal(params); err != nil {
		return m
	}
	if bare.text, err = json.Marshal(bare); err != nil {
		return m
	}
	bare.arguments = arguments
	return bare
}

// maxMessage bounds the text of a JSON-RPC error, which may quote what it refuses.
const maxMessage = 200 // bytes

func brief(s string) string {
	if len(s) <= maxMessage {
		return s
	}
	return strings.ToValidUTF8(s[:maxMessage], "") + "…"
}

// failure is a JSON-RPC error; a nil id says that it is not known.
func failure(id json.RawMessage, code int, message string) []byte {
	if id == nil {
		id = json.RawMessage("null")
	}
	b, _ := json.Marshal(struct {
		Version string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"`
		Error   any             `json:"error"`
	}{mcp.JSONRPC_VERSION, id, struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	}{code, message}})
	return b
}
