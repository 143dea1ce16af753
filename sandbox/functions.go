package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// Function is a Go function that code may call as a tool.
type Function struct {
	Title       string
	Description string
	Input       json.RawMessage // JSON Schema of the arguments; nil = any. The guest's side checks it, for the guest's comfort: Call must look for itself.
	Output      json.RawMessage // JSON Schema of the result; nil = not told
	// Call gets a JSON object. What it returns is the result as JSON, unless it is an
	// ExternalResult already; the text of its error is for the guest. It may be called
	// by many calls at once, and must return when ctx ends.
	Call func(ctx context.Context, arguments json.RawMessage) (any, error)
}

// Functions are Go functions as Externals, by the names of a server and a tool: code
// calls externals.server.tool(…). They must not be changed while they are in use.
type Functions map[string]map[string]Function

var _ Externals = Functions(nil)

// Servers implements Externals.
func (f Functions) Servers(context.Context) []ExternalServer {
	var servers []ExternalServer
	for _, name := range slices.Sorted(maps.Keys(f)) {
		servers = append(servers, ExternalServer{Name: name, Tools: slices.Sorted(maps.Keys(f[name])), Revision: "1"})
	}
	return servers
}

// Tools implements Externals.
func (f Functions) Tools(_ context.Context, server string) ([]ExternalTool, error) {
	functions, ok := f[server]
	if !ok {
		return nil, &ExternalError{Fault: ExternalUnknown, Text: fmt.Sprintf("there is no server %q", server)}
	}
	var tools []ExternalTool
	for _, name := range slices.Sorted(maps.Keys(functions)) {
		fn := functions[name]
		tools = append(tools, ExternalTool{Name: name, Title: fn.Title, Description: fn.Description, Input: fn.Input, Output: fn.Output})
	}
	return tools, nil
}

// Call implements Externals.
func (f Functions) Call(ctx context.Context, server, tool string, arguments json.RawMessage) (ExternalResult, error) {
	fn, ok := f[server][tool]
	if !ok || fn.Call == nil {
		return ExternalResult{}, &ExternalError{Fault: ExternalUnknown, Text: fmt.Sprintf("there is no tool %q of %q", tool, server)}
	}
	value, err := fn.Call(ctx, arguments)
	if err != nil {
		if ctx.Err() != nil {
			return ExternalResult{}, ctx.Err()
		}
		if _, known := errors.AsType[*ExternalError](err); known {
			return ExternalResult{}, err
		}
		return ExternalResult{IsError: true, Content: []ExternalContent{{Kind: ExternalText, Text: err.Error()}}}, nil
	}
	if result, ok := value.(ExternalResult); ok {
		return result, nil
	}
	encoded, err := json.Marshal(value)
	if err != nil {
		return ExternalResult{}, &ExternalError{Fault: ExternalUnavailable, Text: "the function's result can't be given as JSON", Err: err}
	}
	return ExternalResult{Value: encoded}, nil
}
