package externals

import (
	"encoding/json"
	"testing"

	"mcp-sandbox/sandbox"
)

// Whatever a server answers is a result within its bounds, or an error.
func FuzzDecode(f *testing.F) {
	for _, s := range []string{
		`{"content":[{"type":"text","text":"s3cret-s3cret"}],"isError":true}`, `{"structuredContent":{"a":[1,"s3cret-s3cret"]}}`, `{"content":null}`, `{"content":[1]}`,
		`{"content":[{"type":"image","data":"!"}]}`, `{"content":[{"type":"resource","resource":{"blob":"AAAA"}},{"type":"resource_link","uri":"x"},{"type":"new"}]}`,
	} {
		f.Add([]byte(s))
	}
	secrets := newRedactor([]string{"s3cret-s3cret"})
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := decode(data, secrets)
		if err != nil {
			return
		}
		if r.Value != nil && !json.Valid(r.Value) {
			t.Errorf("the value is no JSON: %s", r.Value)
		}
		for _, c := range r.Content {
			switch c.Kind {
			case sandbox.ExternalText, sandbox.ExternalData, sandbox.ExternalLink:
			default:
				t.Errorf("content of the kind %q", c.Kind)
			}
			if secrets.text(c.Text) != c.Text {
				t.Errorf("a secret is in %q", c.Text)
			}
		}
	})
}

// What is taken from a file can be used as it is.
func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"mcpServers":{"a":{"command":"x","args":["${HOME}"],"env":{"A":"${B:-c}"}},"b":{"url":"http://x","headers":{"A":"b"}}}}`))
	f.Add([]byte(`{"mcpServers":{"a":{"url":"http://u:p@x/?q=1","type":"sse","tools":{"allow":["*"],"deny":[]},"disabled":false,"cwd":"..","description":"d"}}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		servers, err := Parse(data, "/etc", lookup)
		if err != nil {
			return
		}
		if _, err := New(Config{Servers: servers, Start: startChild}); err != nil {
			t.Error(err)
		}
	})
}
