package tools

import (
	"bytes"
	"encoding/json"
	"testing"

	"mcp-sandbox/allowlist"
	"mcp-sandbox/sandbox/sandboxtest"
)

// What a model reads of the tools ahead of any call stands in its context for good.
func TestDescriptionsAreShort(t *testing.T) {
	const most = 900 // tokens, at four bytes each
	analyst := []string{
		"numpy 2.4.6", "pandas 3.1.1", "matplotlib 3.11.2", "scipy 1.17.1", "scikit-learn 1.9.1", "polars 2.1.0", "pyarrow 26.0.1", "pillow 13.0.0",
		"cloudpickle 3.1.3", "contourpy 1.3.3", "cycler 0.12.1", "fonttools 4.68.0", "joblib 1.6.0", "kiwisolver 1.5.1", "narwhals 2.29.0", "packaging 26.4",
		"polars-runtime-32 2.1.0", "pyparsing 3.3.3", "python-dateutil 4.0.0", "threadpoolctl 3.6.0", "tzdata 2026.6", "pip 23.0.1", "setuptools 66.1.1",
	}
	for name, change := range map[string]func(*Config){
		"stdio": func(*Config) {},
		"HTTP, an analyst's packages": func(c *Config) {
			c.Handles, c.Workspace, c.Packages, c.Preloaded = true, Folder, analyst, []string{"numpy", "pandas"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			commands := withCommands(t, allowlist.Options{})
			read := 0
			for _, d := range newTools(t, &sandboxtest.Fake{}, func(c *Config) { commands(c); change(c) }).defs {
				var input bytes.Buffer
				if err := json.Compact(&input, d.RawInputSchema); err != nil {
					t.Fatal(err)
				}
				read += len(d.Name) + len(d.Description) + input.Len()
				t.Logf("%s: %d bytes of description, %d of schema", d.Name, len(d.Description), input.Len())
			}
			if read > 4*most {
				t.Errorf("%d bytes are %d tokens; at most %d", read, (read+3)/4, most)
			}
		})
	}
}
