package srt

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
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

func (p settingsPath) check() error {
	switch {
	case p.text == "":
		return errors.New("is empty")
	case strings.ContainsRune(p.text, 0):
		return errors.New("has a NUL in it")
	case strings.HasPrefix(p.text, "~") && p.text != "~" && !strings.HasPrefix(p.text, "~/"):
		return errors.New("the homes of others have no name here: ~ and ~/… are known")
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
	var errs []error
	fault := func(key, format string, a ...any) {
		errs = append(errs, fmt.Errorf("settings: %s: %w", key, fmt.Errorf(format, a...)))
	}
	if len(s.allowed) > 0 {
		fault("network.allowedDomains", "this server gives no network")
	}
	for _, name := range s.denyEnv {
		if slices.ContainsFunc(c.Env, func(e string) bool { return strings.HasPrefix(e, name+"=") }) {
			fault("credentials.envVars", "%s is to be hidden, and --env gives it to code", name)
		}
	}
	workspace := ""
	if c.Workspace != "" {
		workspace = realAsFar(absolute(c.Workspace, s.dir))
	}
	var writable []string
	for _, p := range s.allowWrite {
		p = p.withoutTail()
		if p.isPattern() {
			fault(p.key, "a pattern can't be allowed, only a path")
			continue
		}
		writable = append(writable, s.find(p))
	}
	c.denyWriting(s, workspace, writable)
	for i, at := range writable {
		key := s.allowWrite[min(i, len(s.allowWrite)-1)].key
		switch {
		case at == "/tmp": // code has one of its own
		case workspace != "" && at == workspace, c.mountedWritable(at):
		case workspace != "" && within(at, workspace):
			if !covered(workspace, writable) {
				fault(key, "%s lies in the workspace %s, which code can write as a whole or not at all", at, workspace)
			}
		case covered(at, slices.Delete(slices.Clone(writable), i, i+1)):
		default:
			c.Mounts = append(c.Mounts, Mount{Host: at, Guest: at, Writable: true})
		}
	}
	for _, p := range s.allowRead {
		p = p.withoutTail()
		if p.isPattern() {
			fault(p.key, "a pattern can't be allowed, only a path")
			continue
		}
		at := s.find(p)
		if !within(at, systemDirs...) && !(workspace != "" && within(at, workspace)) && !c.mounted(at) {
			c.Mounts = append(c.Mounts, Mount{Host: at, Guest: at})
		}
	}
	for _, p := range s.denyWrite {
		at := s.find(p)
		for i, m := range c.Mounts {
			if m.Writable && within(m.Host, at) && !p.isPattern() {
				c.Mounts[i].Writable = false
			}
		}
		for _, place := range c.writableNow(workspace) {
			if within(at, place) || p.isPattern() && within(place, at) {
				c.Settings.asks = append(c.Settings.asks, ask{p.key, fmt.Sprintf("%s lies in %s, which code can write as a whole or not at all", p.text, place), []string{WallSRT}})
			}
		}
	}
	return errors.Join(errs...)
}

// denyWriting makes read-only what no entry allows to be written.
func (c *Config) denyWriting(s Settings, workspace string, writable []string) {
	denied := func(at string) bool {
		return !covered(at, writable) || slices.ContainsFunc(s.denyWrite, func(p settingsPath) bool {
			p = p.withoutTail()
			return !p.isPattern() && within(at, s.find(p))
		})
	}
	if workspace != "" && denied(workspace) {
		c.WorkspaceReadOnly = true
	}
	for i, m := range c.Mounts {
		if m.Writable && denied(realAsFar(absolute(m.Host, s.dir))) {
			c.Mounts[i].Writable = false
		}
	}
}

func absolute(path, dir string) string {
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(dir, path)
}

// covered reports whether at is one of places, or lies in one.
func covered(at string, places []string) bool { return within(at, places...) }

func (c *Config) mounted(at string) bool {
	return slices.ContainsFunc(c.Mounts, func(m Mount) bool { return within(at, m.Host) })
}

func (c *Config) mountedWritable(at string) bool {
	return slices.ContainsFunc(c.Mounts, func(m Mount) bool { return m.Writable && within(at, m.Host) })
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
		errs = append(errs, fmt.Errorf("settings: %s: the wall %s can't honour it: %s", key, wall, why))
	}
	for _, a := range c.Settings.asks {
		if !slices.Contains(a.walls, wall) {
			fault(a.key, a.why)
		}
	}
	if wall == WallSRT { // which takes the list as it is
		return errors.Join(errs...)
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
