package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"mcp-sandbox/sandbox"
	"mcp-sandbox/srt"
	"mcp-sandbox/srt/egress"
)

type cli struct {
	logFlags `embed:""`

	Serve   serveFlags   `cmd:"" default:"withargs" help:"Serve MCP (the default)."`
	Exec    execFlags    `cmd:"" help:"Run Python, or commands, once, through the same tool, with the current directory read-only as its workspace."`
	Doctor  doctorFlags  `cmd:"" help:"Say what this machine can enforce, and what is missing."`
	Version versionFlags `cmd:"" help:"Print the version."`

	WorkloadEmulator emulatorFlags `cmd:"" help:"Emulate the DataRobot Workload API on this machine, to try the remote sandbox without a cluster."`
}

type logFlags struct {
	LogLevel string `placeholder:"LEVEL" help:"debug, info, warn or error; usually info for serve, warn for all else."`
	LogJSON  bool   `name:"log-json" help:"Log JSON lines."`
}

type wallFlags struct {
	Wall        string   `default:"auto" help:"What keeps code away from this machine: auto (the first of native, srt that holds), native, srt or landlock (${default})."`
	SRTSettings string   `name:"srt-settings" placeholder:"FILE" help:"Settings file of Anthropic's Sandbox Runtime: code gets no more than it allows, whatever the wall."`
	Python      string   `placeholder:"PATH" help:"Python interpreter; usually python3 of PATH."`
	Mount       []mount  `sep:"none" env:"-" placeholder:"SRC:DST[:rw]" help:"Host directory that code may see, read-only unless it ends in :rw. Repeatable ($MCP_SANDBOX_MOUNT, one a line)."`
	Memory      size     `default:"2GiB" help:"Memory of a session (${default})."`
	MaxTasks    int      `default:"256" help:"Processes and threads of a session (${default})."`
	MaxDisk     size     `default:"1GiB" help:"Bytes in a session's workspace, and in its /tmp (${default})."`
	MaxOutput   size     `default:"64MiB" help:"Bytes kept of what was too long for a session's results, on the server's disk; the oldest go first (${default})."`
	AllowDomain []string `placeholder:"HOST[:PORT]" help:"Host that code may reach, by HTTP and TLS: example.org, or *.example.org for all names below it; usually none. With a port, that port alone, by any protocol. An address that is not public is reached only where it is named itself. Repeatable."`
	Env         []env    `sep:"none" env:"-" placeholder:"NAME[=VALUE]" help:"Variable of the code's environment; without a value, ours. Repeatable ($MCP_SANDBOX_ENV, one a line)."`
}

type callFlags struct {
	Timeout    time.Duration `default:"30s" help:"Time limit of a call that names none (${default})."`
	MaxTimeout time.Duration `default:"600s" help:"The most that a call may ask for (${default})."`
}

type warmFlags struct {
	Warm    int      `default:"1" help:"Interpreters kept ready, so that a new session answers at once; 0 = none (${default})."`
	Preload []string `placeholder:"MODULES" help:"Modules that are imported in these ahead, such as numpy,pandas."`
}

type serveFlags struct {
	wallFlags    `embed:""`
	packageFlags `embed:""`
	warmFlags    `embed:""`
	callFlags    `embed:""`
	commandFlags `embed:""`
	remoteFlags  `embed:""`
	httpFlags    `embed:""`
	observeFlags `embed:""`

	externalsFlags `embed:""`

	callerTokenFlag `embed:""`

	Transport     string        `default:"stdio" help:"How clients connect: stdio, or http, which serves streamable HTTP and SSE (${default}; sse means http)."`
	Workspace     string        `placeholder:"DIR" type:"path" help:"Host directory that is every session's writable workspace; usually a temporary one for each. With --transport http each session has its own folder in it."`
	StateDir      string        `placeholder:"DIR" type:"path" help:"Directory, the server's own, in which sessions outlive it; usually they end with it."`
	SessionIdle   time.Duration `default:"30m" help:"A session unused for so long is hibernated: saved to disk, its processes ended (${default})."`
	SessionMaxAge time.Duration `default:"24h" help:"A session older than this ends (${default})."`
	MaxSessions   int           `default:"256" help:"Sessions with processes at once; beyond it the longest idle one is hibernated (${default})."`
	MaxHibernated int           `default:"1000" help:"Hibernated sessions; beyond it the longest unused one ends (${default})."`
	Checkpoint    string        `default:"always" help:"When variables are saved against the interpreter's end: always, idle (only where calls leave time for it) or off (${default})."`
	MaxRunning    int           `default:"0" help:"Calls running at once; 0 = four for each core."`
}

type execFlags struct {
	wallFlags    `embed:""`
	packageFlags `embed:""`
	callFlags    `embed:""`
	commandFlags `embed:""`
	remoteFlags  `embed:""`

	externalsFlags `embed:""`

	Code string `arg:"" optional:"" help:"Python source; - reads it from standard input."`
	CLI  bool   `name:"cli" env:"-" help:"It is no Python but a command line, to be run through execute_cli."`
	File string `short:"f" placeholder:"FILE" help:"Read the source from a file; - is standard input."`
	Out  string `placeholder:"DIR" help:"Save there the images that the code shows, and what was too long or too large for the text."`
}

type doctorFlags struct {
	wallFlags    `embed:""`
	packageFlags `embed:""`
	warmFlags    `embed:""`
	commandFlags `embed:""`
	remoteFlags  `embed:""`

	JSON bool `name:"json" help:"Print JSON."`
}

type versionFlags struct{}

// parse reads flags and environment. done says that the run ends here, with
// code: after --help, or a fault that stderr tells.
func (p program) parse(args []string) (c cli, command string, code int, done bool) {
	parser, err := kong.New(&c,
		kong.Name("mcp-sandbox"),
		kong.Description("An MCP server that runs Python in a live interpreter, and read-only commands, behind an OS sandbox. Without a command it serves: see mcp-sandbox serve --help."),
		kong.DefaultEnvars(strings.TrimSuffix(envPrefix, "_")),
		kong.Writers(p.stdout, p.stderr),
		kong.Exit(func(code int) { panic(exited(code)) }),
	)
	if err != nil {
		return c, "", p.fail(exitFailed, err), true
	}
	defer func() {
		switch e := recover().(type) {
		case nil:
		case exited: // kong's help has no other way to end
			code, done = int(e), true
		default:
			panic(e)
		}
	}()
	dropEmptyEnvironment()
	parsed, err := parser.Parse(args)
	if err == nil {
		command, _, _ = strings.Cut(parsed.Command(), " ")
		err = errors.Join(checkEnvironment(os.Environ(), parser.Model.Node), c.check(command))
	}
	if err != nil {
		fmt.Fprintf(p.stderr, "mcp-sandbox: %s\nTry: mcp-sandbox --help\n", strings.ReplaceAll(err.Error(), "\n", "\nmcp-sandbox: "))
		return c, "", exitUsage, true
	}
	return c, command, 0, false
}

type exited int

// check finds what a parser by type can't.
func (c *cli) check(command string) error {
	if l := c.LogLevel; l != "" && !slices.Contains([]string{"debug", "info", "warn", "error"}, l) {
		return fmt.Errorf("--log-level must be debug, info, warn or error; got %q", l)
	}
	switch command {
	case "exec":
		return errors.Join(c.Exec.wallFlags.check(), c.Exec.packageFlags.check(), c.Exec.callFlags.check(), c.Exec.commandFlags.check(), c.Exec.remoteFlags.check(), c.Exec.externalsFlags.check(), c.Exec.check())
	case "doctor":
		return errors.Join(c.Doctor.wallFlags.check(), c.Doctor.packageFlags.check(), c.Doctor.warmFlags.check(), c.Doctor.commandFlags.check(), c.Doctor.remoteFlags.check())
	case "version":
		return nil
	case "workload-emulator":
		return c.WorkloadEmulator.check()
	default:
		return errors.Join(c.Serve.wallFlags.check(), c.Serve.packageFlags.check(), c.Serve.warmFlags.check(), c.Serve.callFlags.check(), c.Serve.commandFlags.check(), c.Serve.remoteFlags.check(), c.Serve.externalsFlags.check(), c.Serve.check())
	}
}

func (f *wallFlags) check() error {
	var errs []error
	if err := srt.CheckWall(f.Wall); err != nil {
		errs = append(errs, fmt.Errorf("--%w", err))
	}
	if _, err := f.settings(); err != nil {
		errs = append(errs, err)
	}
	errs = append(errs, several("mount", &f.Mount), several("env", &f.Env))
	for _, m := range f.Mount {
		if _, err := os.Stat(m.host); err != nil {
			errs = append(errs, fmt.Errorf("--mount: %w", err))
		}
	}
	for _, n := range []struct {
		name string
		n    int64
	}{{"memory", int64(f.Memory)}, {"max-tasks", int64(f.MaxTasks)}, {"max-disk", int64(f.MaxDisk)}, {"max-output", int64(f.MaxOutput)}} {
		if n.n <= 0 {
			errs = append(errs, fmt.Errorf("--%s must be above 0", n.name))
		}
	}
	if _, err := f.network(); err != nil {
		errs = append(errs, errors.New("--allow-domain: "+strings.ReplaceAll(err.Error(), "\n", "\n--allow-domain: ")))
	}
	if errors.Join(errs...) == nil {
		if _, err := f.limits().Resolve(); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// settings reads the file of --srt-settings.
func (f wallFlags) settings() (s srt.Settings, err error) {
	if f.SRTSettings == "" {
		return s, nil
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("--srt-settings: %s: %w", f.SRTSettings, err)
		}
	}()
	data, err := readSome(f.SRTSettings, srt.MaxSettings+1) // one more, which is too many
	if err != nil {
		return s, err
	}
	dir, err := os.Getwd()
	if err != nil {
		return s, err
	}
	home, _ := os.UserHomeDir() // without one, ~ is refused
	return srt.ParseSettings(data, home, dir)
}

// readSome reads at most n bytes of a file. A pipe that nobody writes to is empty, and does
// not hold the server up.
func readSome(path string, n int64) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, errors.Unwrap(err) // whose text names the file, too
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, n))
	if named := (*os.PathError)(nil); errors.As(err, &named) {
		err = named.Err
	}
	return data, err
}

func (f *warmFlags) check() error {
	for i := range f.Preload { // "numpy, pandas"
		f.Preload[i] = strings.TrimSpace(f.Preload[i])
	}
	return srt.CheckWarm(f.Warm, f.Preload)
}

// String says what a server keeps ready.
func (f warmFlags) String() string {
	if f.Warm == 0 {
		return "no interpreter is kept ready"
	}
	s := fmt.Sprintf("%d kept ready", f.Warm)
	if len(f.Preload) > 0 {
		s += ", with " + strings.Join(f.Preload, ", ") + " imported"
	}
	return s
}

func directory(flag, path string) error {
	switch info, err := os.Stat(path); {
	case err != nil:
		return fmt.Errorf("--%s: %w", flag, err)
	case !info.IsDir():
		return fmt.Errorf("--%s: %s is no directory", flag, path)
	}
	return nil
}

// network is what code may reach.
func (f wallFlags) network() (egress.Rules, error) {
	rules, err := egress.ParseRules(f.AllowDomain, nil)
	if err != nil {
		return rules, err
	}
	settings, err := f.settings()
	if err != nil {
		return egress.Rules{}, nil // told as the settings' own
	}
	return settings.Network(rules)
}

func (f wallFlags) limits() sandbox.Limits {
	return sandbox.Limits{Memory: int64(f.Memory), Tasks: f.MaxTasks, Disk: int64(f.MaxDisk), Outputs: int64(f.MaxOutput)}
}

func (f callFlags) check() error {
	switch {
	case f.Timeout <= 0 || f.MaxTimeout <= 0:
		return errors.New("--timeout and --max-timeout must be above 0")
	case f.Timeout > f.MaxTimeout:
		return fmt.Errorf("--timeout %v is above --max-timeout %v", f.Timeout, f.MaxTimeout)
	}
	return nil
}

func (f serveFlags) check() error {
	var errs []error
	switch f.Transport {
	case "stdio", "http", "sse":
		errs = append(errs, f.httpFlags.check(f.Transport))
	default:
		errs = append(errs, fmt.Errorf("--transport must be stdio or http; got %q", f.Transport))
	}
	shown := []string{}
	for _, m := range f.Mount {
		shown = append(shown, m.host)
	}
	if f.Workspace != "" {
		shown = append(shown, f.Workspace)
	}
	errs = append(errs, f.observeFlags.check(shown))
	if f.apart() && len(f.Preload) > 0 {
		errs = append(errs, errors.New("--preload: sessions with a folder of their own in --workspace start when they are asked for: leave it out, or give --shared-workspace"))
	}
	if f.WorkloadCallerToken && !f.overHTTP() {
		errs = append(errs, errors.New("--workload-caller-token needs --transport http, where callers have headers"))
	}
	if f.WorkloadCallerToken && f.PythonBackend == sandbox.BackendLocal {
		errs = append(errs, errors.New("--workload-caller-token needs a backend that is not local"))
	}
	if f.SharedWorkspace && f.Workspace == "" {
		errs = append(errs, errors.New("--shared-workspace needs --workspace"))
	}
	if f.Workspace != "" {
		errs = append(errs, directory("workspace", f.Workspace))
	}
	if !slices.Contains([]string{"always", "idle", "off"}, f.Checkpoint) {
		errs = append(errs, fmt.Errorf("--checkpoint must be always, idle or off; got %q", f.Checkpoint))
	}
	if f.SessionIdle <= 0 || f.SessionMaxAge <= 0 {
		errs = append(errs, errors.New("--session-idle and --session-max-age must be above 0"))
	}
	if f.MaxSessions <= 0 {
		errs = append(errs, errors.New("--max-sessions must be above 0"))
	}
	if f.MaxHibernated <= 0 {
		errs = append(errs, errors.New("--max-hibernated must be above 0"))
	}
	if f.MaxRunning < 0 {
		errs = append(errs, errors.New("--max-running must not be below 0"))
	}
	return errors.Join(errs...)
}

func (f execFlags) check() error {
	switch {
	case f.Code == "" && f.File == "" && f.CLI:
		return errors.New("exec --cli needs a command: as an argument, by -f FILE, or - for standard input")
	case f.Code == "" && f.File == "":
		return errors.New("exec needs code: as an argument, by -f FILE, or - for standard input")
	case f.Code != "" && f.File != "":
		return errors.New("exec takes code or -f FILE, not both")
	case f.CLI && slices.Contains(f.CLIAllow, noCommands):
		return errors.New("exec --cli needs commands, but --cli-allow is none")
	}
	return nil
}
