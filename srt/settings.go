package srt

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"mcp-sandbox/srt/egress"
)

// Settings are those of a file for Anthropic's Sandbox Runtime, as [ParseSettings] read it.
// They are part of the policy of every wall: code gets no more than they and the Config
// allow, and what they ask for and a wall can't give is an error that names the key. The
// zero value asks for nothing.
type Settings struct {
	given     bool
	home, dir string

	allowed, denied                            []string // domains
	denyRead, allowRead, allowWrite, denyWrite []settingsPath
	denyEnv                                    []string

	asks []ask
}

// ask is a key whose value not every wall can honour.
type ask struct {
	key, why string
	walls    []string // that can
}

// settingsPath is one entry of a list of paths.
type settingsPath struct {
	key, text string
	literal   bool // no pattern, whatever is in it
}

const patternMarks = "*?[]"

func (s Settings) check(p settingsPath) error {
	switch {
	case p.text == "":
		return errors.New("is empty")
	case strings.ContainsRune(p.text, 0):
		return errors.New("has a NUL in it")
	case strings.HasPrefix(p.text, "~") && p.text != "~" && !strings.HasPrefix(p.text, "~/"):
		return errors.New("the homes of others have no name here: ~ and ~/… are known")
	case strings.HasPrefix(p.text, "~") && !filepath.IsAbs(s.home):
		return errors.New("no home directory is known for ~")
	}
	return nil
}

func (p settingsPath) isPattern() bool {
	return !p.literal && strings.ContainsAny(p.text, patternMarks)
}

// find is the absolute path that the entry names, with links followed as far as there is
// something; of a pattern, the directory where it begins.
func (s Settings) find(p settingsPath) string {
	text := p.text
	if p.isPattern() {
		text = text[:strings.IndexAny(text, patternMarks)]
		text = text[:strings.LastIndexByte(text, '/')+1]
	}
	switch {
	case text == "~" || strings.HasPrefix(text, "~/"):
		text = filepath.Join(s.home, text[1:])
	case !filepath.IsAbs(text):
		text = filepath.Join(s.dir, text)
	}
	return realAsFar(filepath.Clean(text))
}

// realAsFar is path without links in the part of it that exists.
func realAsFar(path string) string {
	for rest, p := "", path; ; {
		if real, err := filepath.EvalSymlinks(p); err == nil {
			return filepath.Join(real, rest)
		}
		if p == filepath.Dir(p) {
			return path
		}
		rest = filepath.Join(filepath.Base(p), rest)
		p = filepath.Dir(p)
	}
}

// withoutTail is the entry without a /** at its end, which adds nothing where a path stands
// for all below it.
func (p settingsPath) withoutTail() settingsPath {
	if rest, ok := strings.CutSuffix(p.text, "/**"); ok && !p.literal && rest != "" {
		p.text = rest
	}
	return p
}

// applySettings makes the mounts that the settings allow, and takes from code what they
// don't. It is called before the places are resolved.
func (c *Config) applySettings() error {
	s := c.Settings
	if !s.given {
		return nil
	}
	var faults []error
	if rules, err := s.Network(c.Network); err != nil {
		faults = append(faults, err)
	} else {
		c.Network = rules
	}
	for _, name := range s.denyEnv {
		if slices.ContainsFunc(c.Env, func(e string) bool { return strings.HasPrefix(e, name+"=") }) {
			faults = append(faults, keyFault("credentials.envVars", "%s is to be hidden, and --env gives it to code", name))
		}
	}
	workspace := ""
	if c.Workspace != "" {
		workspace = realAsFar(absolute(c.Workspace, s.dir))
	}
	writable, err := s.permitted(s.allowWrite)
	faults = append(faults, err)
	readable, err := s.permitted(s.allowRead)
	faults = append(faults, err)
	c.takeWriting(workspace, writable)
	faults = append(faults, c.giveWriting(workspace, writable), c.giveReading(workspace, readable))
	c.Settings.asks = append(slices.Clone(s.asks), c.partlyDenied(workspace)...)
	return errors.Join(faults...)
}

// Network are the rules of the settings. What flags allow besides must be allowed by the
// settings, too; what either denies is denied. Applied to its own outcome it changes nothing.
func (s Settings) Network(flags egress.Rules) (egress.Rules, error) {
	if !s.given {
		return flags, nil
	}
	if slices.Contains(s.denied, "*") {
		return egress.Rules{}, nil
	}
	rules, err := egress.ParseRules(s.allowed, s.denied)
	if err != nil {
		return rules, keyFault("network.allowedDomains, network.deniedDomains", "%w", err)
	}
	for _, host := range flags.Allowed() {
		if !slices.Contains(rules.Allowed(), host) {
			return rules, keyFault("network.allowedDomains", "%s, which --allow-domain names, is not in it", host)
		}
	}
	return egress.ParseRules(s.allowed, append(slices.Clone(s.denied), flags.Denied()...))
}

func keyFault(key, format string, a ...any) error {
	return fmt.Errorf("settings: %s: %w", key, fmt.Errorf(format, a...))
}

// permit is one path that the settings allow.
type permit struct{ key, at string }

func (s Settings) permitted(entries []settingsPath) (all []permit, err error) {
	var faults []error
	for _, p := range entries {
		if p = p.withoutTail(); p.isPattern() {
			faults = append(faults, keyFault(p.key, "a pattern can't be allowed, only a path"))
			continue
		}
		all = append(all, permit{p.key, s.find(p)})
	}
	return all, errors.Join(faults...)
}

// covered reports whether at is one of these paths, or lies in one.
func covered(at string, by []permit) bool {
	return slices.ContainsFunc(by, func(p permit) bool { return within(at, p.at) })
}

// deniesWriting reports whether a path is denied as a whole.
func (s Settings) deniesWriting(at string) bool {
	return slices.ContainsFunc(s.denyWrite, func(p settingsPath) bool {
		p = p.withoutTail()
		return !p.isPattern() && within(at, s.find(p))
	})
}

// takeWriting makes read-only what no entry allows to be written, or one denies.
func (c *Config) takeWriting(workspace string, writable []permit) {
	s := c.Settings
	if workspace != "" && (!covered(workspace, writable) || s.deniesWriting(workspace)) {
		c.WorkspaceReadOnly = true
	}
	for i, m := range c.Mounts {
		if host := realAsFar(absolute(m.Host, s.dir)); !covered(host, writable) || s.deniesWriting(host) {
			c.Mounts[i].Writable = false
		}
	}
}

// giveWriting mounts what code may write.
func (c *Config) giveWriting(workspace string, writable []permit) error {
	var faults []error
	for i, w := range writable {
		others := slices.Delete(slices.Clone(writable), i, i+1)
		switch {
		case w.at == "/tmp": // code has one of its own
		case workspace != "" && w.at == workspace:
		case workspace != "" && within(w.at, workspace):
			if !covered(workspace, writable) {
				faults = append(faults, keyFault(w.key, "it lies in the workspace %s, which code can write as a whole or not at all", workspace))
			}
		case workspace != "" && within(workspace, w.at):
			faults = append(faults, keyFault(w.key, "it holds the workspace %s: name one of them alone", workspace))
		case c.mounted(w.at), slices.ContainsFunc(others, func(o permit) bool { return o.at != w.at && o.at != "/tmp" && within(w.at, o.at) }):
		default:
			found, err := find(named{what: "settings: " + w.key, path: w.at})
			if err != nil {
				faults = append(faults, err)
				continue
			}
			c.Mounts = append(c.Mounts, Mount{Host: found.path, Guest: found.path, Writable: !c.Settings.deniesWriting(w.at)})
		}
	}
	return errors.Join(faults...)
}

// giveReading mounts what code may read and does not see in any case.
func (c *Config) giveReading(workspace string, readable []permit) error {
	var faults []error
	for _, r := range readable {
		if within(r.at, systemDirs...) || workspace != "" && within(r.at, workspace) || c.mounted(r.at) {
			continue
		}
		found, err := find(named{what: "settings: " + r.key, path: r.at})
		if err != nil {
			faults = append(faults, err)
			continue
		}
		c.Mounts = append(c.Mounts, Mount{Host: found.path, Guest: found.path})
	}
	return errors.Join(faults...)
}

// partlyDenied are entries of denyWrite for a part of what code can write.
func (c *Config) partlyDenied(workspace string) (asks []ask) {
	for _, p := range c.Settings.denyWrite {
		p = p.withoutTail()
		at := c.Settings.find(p)
		for _, place := range c.writableNow(workspace) {
			if within(at, place) || p.isPattern() && within(place, at) {
				why := fmt.Sprintf("%s is about a part of %s, which code can write as a whole or not at all", p.text, place)
				asks = append(asks, ask{key: p.key, why: why})
			}
		}
	}
	return asks
}

func absolute(path, dir string) string {
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(dir, path)
}

func (c *Config) mounted(at string) bool {
	return slices.ContainsFunc(c.Mounts, func(m Mount) bool { return within(at, m.Host) })
}

// writableNow are the host's places that code can write.
func (c *Config) writableNow(workspace string) []string {
	var all []string
	if workspace != "" && !c.WorkspaceReadOnly {
		all = append(all, workspace)
	}
	for _, m := range c.Mounts {
		if m.Writable {
			all = append(all, m.Host)
		}
	}
	return all
}

// unhonoured is what the settings ask for and a wall can't give, whose guests see these
// places of the host besides the workspace and the mounts.
func (c Config) unhonoured(wall string, shown []string) error {
	var errs []error
	fault := func(key, why string) {
		errs = append(errs, keyFault(key, "the wall %s can't honour it: %s", wall, why))
	}
	for _, a := range c.Settings.asks {
		if !slices.Contains(a.walls, wall) {
			fault(a.key, a.why)
		}
	}
	if c.Workspace != "" {
		shown = append(slices.Clone(shown), c.Workspace)
	}
	for _, m := range c.Mounts {
		shown = append(shown, m.Host)
	}
	for _, p := range c.Settings.denyRead {
		for _, place := range shown {
			if c.Settings.hides(p, place) {
				fault(p.key, fmt.Sprintf("%s would hide %s, or a part of it, which code sees as a whole or not at all", p.text, place))
			}
		}
	}
	return errors.Join(errs...)
}

// hides reports whether an entry of denyRead says that some of a place is not to be read,
// and no entry of allowRead takes that back.
func (s Settings) hides(p settingsPath, place string) bool {
	at := s.find(p)
	p = p.withoutTail()
	switch {
	case p.isPattern():
		return within(at, place) || within(place, at)
	case within(place, at): // as a whole
		return !slices.ContainsFunc(s.allowRead, func(a settingsPath) bool {
			allowed := s.find(a.withoutTail())
			return !a.withoutTail().isPattern() && within(place, allowed) && within(allowed, at) && allowed != at
		})
	}
	return within(at, place)
}
