package workload

import (
	"bytes"
	"compress/zlib"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"

	"mcp-sandbox/sandbox/kernel"
)

//go:embed py/once.py
var onceSource string

// onceModules are those that once.py uses, the kernel's and one of the agent's: values,
// tables, tracebacks, hints and verdicts are the same wherever code runs.
func onceModules() (map[string]string, error) {
	agent, err := sourcesOf(agentSources, "agent")
	if err != nil {
		return nil, err
	}
	all := kernel.Sources()
	out := map[string]string{"once": onceSource, "memory": agent["memory.py"]}
	for _, name := range []string{"errors", "hints", "interrupts", "source", "tables", "text", "values", "verdict"} {
		out[name] = all[name+".py"]
	}
	return out, nil
}

// settings are what once.py is told.
type settings struct {
	Nonce   string  `json:"nonce"`   // by which its lines are known
	Timeout float64 `json:"timeout"` // seconds
	Output  int     `json:"output"`  // bytes kept of each stream
}

// loader unpacks the modules within the namespace that the image's runner gives
// to code: inputs are there already. It is the namespace's last line too, so
// what it leaves there does no harm.
const loader = `def _drx(inputs):
    import base64, json, sys, zlib
    packed, modules, files = json.loads(zlib.decompress(base64.b64decode(%q))), {}, set()
    def load(name):
        module = modules.get(name)
        if module is None:
            module = modules[name] = type(sys)("drx." + name)
            path = "<drx " + name + ">"
            files.add(path)
            vars(module).update(load=load, kernel_files=files, __builtins__=vars(sys.modules["builtins"]))
            exec(compile(packed[name], path, "exec", dont_inherit=True), vars(module))
        return module
    load("once").main(json.loads(%q), inputs)
_drx(inputs)
`

// onceProgram is the code for the image's runner that runs the user's under s.
func onceProgram(s settings) (string, error) {
	sources, err := onceModules()
	if err != nil {
		return "", err
	}
	modules, err := json.Marshal(sources) // which sorts them
	if err != nil {
		return "", err
	}
	packed, err := compress(modules)
	if err != nil {
		return "", err
	}
	told, err := json.Marshal(s)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf(loader, encode64(packed), told), nil
}

func compress(data []byte) ([]byte, error) {
	var packed bytes.Buffer
	z, err := zlib.NewWriterLevel(&packed, zlib.BestCompression)
	if err != nil {
		return nil, err
	}
	_, err = z.Write(data)
	err = errors.Join(err, z.Close())
	return packed.Bytes(), err
}
