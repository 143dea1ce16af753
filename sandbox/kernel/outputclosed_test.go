package kernel

import (
	"testing"

	"mcp-sandbox/sandbox"
)

// A session that is closed during a call still gives what the call had written.
func TestOutputOfCallThatIsClosed(t *testing.T) {
	o := NewFedOutput(100)
	o.Begin(nil)
	o.Feed(sandbox.Stdout, 0, []byte("part\n"))
	o.Close()
	o.Close()
	var res sandbox.Result
	if o.End(&res); res.Stdout != "part\n" {
		t.Errorf("the output is %q", res.Stdout)
	}
}
