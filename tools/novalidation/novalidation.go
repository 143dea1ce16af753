// Package jsonschema stands in, by a replace directive in go.mod, for the JSON
// Schema library that mcp-go imports and we never use: arguments are validated
// by our own code, whose sentences a model can act on, and mcp-go's validation
// stays off. The real package compiles every draft of the standard as it is
// initialised, 5 ms and 1.7 MB at each start of this binary, and the binary
// starts itself again for every session's wall.
//
// It has just what mcp-go names, and Compile always fails: if validation were
// ever turned on by mistake, no schema would be taken for checked.
package jsonschema

import (
	"encoding/json"
	"errors"
	"io"
)

var errAbsent = errors.New("JSON Schema validation is not built into this binary")

// UnmarshalJSON decodes one value, with numbers as they are written.
func UnmarshalJSON(r io.Reader) (any, error) {
	var v any
	d := json.NewDecoder(r)
	d.UseNumber()
	err := d.Decode(&v)
	return v, err
}

// Compiler compiles nothing.
type Compiler struct{}

// NewCompiler returns a Compiler.
func NewCompiler() *Compiler { return &Compiler{} }

// AddResource accepts anything.
func (*Compiler) AddResource(string, any) error { return nil }

// Compile fails.
func (*Compiler) Compile(string) (*Schema, error) { return nil, errAbsent }

// Schema is never made.
type Schema struct{}

// Validate fails.
func (*Schema) Validate(any) error { return errAbsent }

// ValidationError is never returned.
type ValidationError struct {
	InstanceLocation []string
	ErrorKind        any
	Causes           []*ValidationError
}

// Error implements error.
func (*ValidationError) Error() string { return errAbsent.Error() }
