package workloadtest

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"
)

// fault is one thing wrong with a request's body.
type fault struct {
	at        []any // names and indexes from the body down
	kind, msg string
	input     any
}

// invalid is the 422 that lists faults of the body by place.
func invalid(faults ...fault) answer { return invalidIn("body", faults...) }

// invalidIn is invalid for another part of a request: body, or query.
func invalidIn(part string, faults ...fault) answer {
	list := []object{}
	for _, f := range faults {
		list = append(list, object{"loc": append([]any{part}, f.at...), "msg": f.msg, "type": f.kind, "input": f.input, "ctx": object{}})
	}
	return answer{status: http.StatusUnprocessableEntity, body: object{"detail": list}}
}

// shape is what a value must be. Objects have the named fields and no others;
// the ones whose names end in * are required.
type shape struct {
	is     string // object, array, string, integer, number, boolean, any
	or     string // a second kind, or ""
	fields map[string]shape
	of     *shape   // an array's elements
	enum   []string // a string's values; nil: any
	min    float64  // of a number, or a string's characters
	max    float64  // likewise; 0: no limit
}

var (
	text    = shape{is: "string"}
	integer = shape{is: "integer"}
	number  = shape{is: "number"}
	boolean = shape{is: "boolean"}
	loose   = shape{is: "any"}
	texts   = listOf(text)
)

func listOf(s shape) shape                   { return shape{is: "array", of: &s} }
func oneOf(values ...string) shape           { return shape{is: "string", enum: values} }
func objectOf(fields map[string]shape) shape { return shape{is: "object", fields: fields} }

// createShape is CreateWorkloadRequest.
func createShape() shape {
	return objectOf(map[string]shape{
		"name*":       {is: "string", min: 1, max: 5000},
		"description": text,
		"importance":  oneOf("low", "moderate", "high", "critical"),
		"artifactId":  text,
		"artifact":    artifactShape(),
		"runtime":     runtimeShape(),
	})
}

func artifactShape() shape {
	return objectOf(map[string]shape{
		"name*":                {is: "string", min: 1, max: 5000},
		"type":                 oneOf("service", "nim", "agent"),
		"status":               oneOf("draft"),
		"description":          text,
		"artifactRepositoryId": text,
		"spec*": objectOf(map[string]shape{
			"type": oneOf("service", "nim", "agent"), // accepted, though it need not be sent
			"containerGroups*": listOf(objectOf(map[string]shape{
				"name":        text,
				"containers*": listOf(containerShape()),
			})),
		}),
	})
}

func containerShape() shape {
	probe := objectOf(map[string]shape{
		"path*": text, "port": {is: "integer", min: 1, max: 65535}, "scheme": oneOf("HTTP", "HTTPS"), "host": text, "httpHeaders": loose,
		"initialDelaySeconds": integer, "periodSeconds": {is: "integer", min: 1}, "timeoutSeconds": {is: "integer", min: 1},
		"failureThreshold": {is: "integer", min: 1}, "successThreshold": {is: "integer", min: 1},
	})
	return objectOf(map[string]shape{
		"name": text, "description": text, "imageUri": text, "primary": boolean,
		"port":       {is: "integer", min: 1024, max: 65535},
		"entrypoint": texts,
		"environmentVars": listOf(objectOf(map[string]shape{
			"source": oneOf("string", "dr-credential", "api-key"), "name": text, "value": text, "drCredentialId": text, "key": text,
		})),
		"readinessProbe": probe, "livenessProbe": probe, "startupProbe": probe,
		"securityContext": objectOf(map[string]shape{
			"readOnlyRootFilesystem": boolean, "allowPrivilegeEscalation": boolean,
			"capabilities":   objectOf(map[string]shape{"add": texts, "drop": texts}),
			"seccompProfile": objectOf(map[string]shape{"type*": oneOf("RuntimeDefault", "Unconfined", "Localhost"), "localhostProfile": text}),
		}),
		"imageBuildConfig": loose, "build": loose,
	})
}

func runtimeShape() shape {
	return objectOf(map[string]shape{
		"enclaveSelectionPolicy": oneOf("availability", "manual"), "enclaves": texts,
		"containerGroups": listOf(objectOf(map[string]shape{
			"name": text, "replicaCount": {is: "integer", min: 1}, "autoscaling": loose, "resourceBundles": texts,
			"bundleSelectionPolicy": oneOf("availability"),
			"containers": listOf(objectOf(map[string]shape{
				"name*": text,
				"resourceAllocation": objectOf(map[string]shape{
					"cpu": number, "memory": {is: "integer", or: "string", min: 1}, "gpu": number, "gpuMemory": {is: "integer", or: "string"},
				}),
			})),
		})),
	})
}

// check appends what is wrong with v at a place. Numbers are json.Number.
func (s shape) check(v any, at []any, faults []fault) []fault {
	add := func(kind, format string, args ...any) []fault {
		return append(faults, fault{at: slices.Clone(at), kind: kind, msg: fmt.Sprintf(format, args...), input: v})
	}
	got := kindOf(v)
	switch {
	case s.is == "any":
		return faults
	case got == "integer" && s.is == "number":
	case got != s.is && got != s.or:
		return add(s.is+"_type", "Input should be a valid %s", s.is)
	}
	switch v := v.(type) {
	case map[string]any:
		return s.checkFields(v, at, faults)
	case []any:
		for i, element := range v {
			faults = s.of.check(element, append(at, i), faults)
		}
	case string:
		if s.enum != nil && !slices.Contains(s.enum, v) {
			return add("enum", "Input should be %s", strings.Join(s.enum, ", "))
		}
		if s.is == "string" {
			return s.checkRange(float64(utf8.RuneCountInString(v)), "string_length", add, faults)
		}
	case json.Number:
		f, _ := v.Float64()
		return s.checkRange(f, "range", add, faults)
	}
	return faults
}

func (s shape) checkRange(n float64, kind string, add func(kind, format string, args ...any) []fault, faults []fault) []fault {
	switch {
	case n < s.min:
		return add(kind, "Input should be at least %v", s.min)
	case s.max != 0 && n > s.max:
		return add(kind, "Input should be at most %v", s.max)
	}
	return faults
}

func (s shape) checkFields(v map[string]any, at []any, faults []fault) []fault {
	names := make([]string, 0, len(v))
	for name := range v {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		field, ok := s.fields[name]
		if !ok {
			field, ok = s.fields[name+"*"]
		}
		if !ok {
			faults = append(faults, fault{at: append(slices.Clone(at), name), kind: "extra_forbidden", msg: "Extra inputs are not permitted", input: v[name]})
			continue
		}
		faults = field.check(v[name], append(at, name), faults)
	}
	for name := range s.fields {
		if plain, required := strings.CutSuffix(name, "*"); required {
			if _, ok := v[plain]; !ok {
				faults = append(faults, fault{at: append(slices.Clone(at), plain), kind: "missing", msg: "Field required", input: v})
			}
		}
	}
	return faults
}

func kindOf(v any) string {
	switch v := v.(type) {
	case map[string]any:
		return "object"
	case []any:
		return "array"
	case string:
		return "string"
	case bool:
		return "boolean"
	case json.Number:
		if f, err := v.Float64(); err == nil && f == math.Trunc(f) && !strings.ContainsAny(v.String(), ".eE") {
			return "integer"
		}
		return "number"
	}
	return "null"
}
