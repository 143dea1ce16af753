package main

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"

	"mcp-sandbox/sandbox"
)

// weakToken is the length below which a token is warned of: sixteen random
// characters can't be guessed over a network.
const weakToken = 16

// token is what one principal shows. The secret itself is not kept.
type token struct {
	name  string
	sum   [sha256.Size]byte
	weak  bool
	quota sandbox.Quota
}

// tokens are those that the operator gave out.
type tokens []token

var (
	tokenName   = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}$`)
	tokenSecret = regexp.MustCompile(`^[A-Za-z0-9._~+/-]+=*$`) // what RFC 6750 lets a bearer token be
)

// readTokens reads a file of lines NAME:TOKEN, each followed by quotas if need
// be: "ann:6f1c… sessions=8 running=2". Empty lines and lines that begin with #
// do not count. It returns all that is wrong with it, and never a token.
func readTokens(path string) (tokens, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var all tokens
	var errs []error
	n := 0
	for l := range strings.Lines(string(b)) {
		n++
		if l = strings.TrimSpace(l); l == "" || l[0] == '#' {
			continue
		}
		t, err := parseToken(l)
		for _, other := range all {
			switch {
			case err != nil:
			case other.name == t.name:
				err = fmt.Errorf("the name %s is there twice", t.name)
			case other.sum == t.sum:
				err = fmt.Errorf("%s and %s have the same token", other.name, t.name)
			}
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s:%d: %w", path, n, err))
			continue
		}
		all = append(all, t)
	}
	if len(all) == 0 && len(errs) == 0 {
		errs = append(errs, fmt.Errorf("%s holds no token: write lines NAME:TOKEN", path))
	}
	return all, errors.Join(errs...)
}

func parseToken(l string) (t token, err error) {
	fields := strings.Fields(l)
	name, secret, ok := strings.Cut(fields[0], ":")
	switch {
	case !ok:
		return t, errors.New("expected NAME:TOKEN, and after a space sessions=N or running=N")
	case !tokenName.MatchString(name):
		return t, errors.New("a name is made of up to 64 letters, digits and . _ @ -")
	case !tokenSecret.MatchString(secret):
		return t, fmt.Errorf("the token of %s must be made of letters, digits and - . _ ~ + /", name)
	}
	t = token{name: name, sum: sha256.Sum256([]byte(secret)), weak: len(secret) < weakToken}
	for _, f := range fields[1:] {
		key, value, _ := strings.Cut(f, "=")
		n, err := strconv.Atoi(value)
		switch {
		case err != nil || n <= 0 || key != "sessions" && key != "running": // it may be a piece of a token, so it is not shown
			return t, fmt.Errorf("%s: after the token only sessions=N and running=N may follow, with N above 0", name)
		case key == "sessions":
			t.quota.Sessions = n
		default:
			t.quota.Running = n
		}
	}
	return t, nil
}

// principal is whose token this is; "" if nobody's. How long it takes tells
// nothing of any token.
func (ts tokens) principal(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	found := -1
	for i := range ts {
		found = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(ts[i].sum[:], sum[:]), i, found)
	}
	if found < 0 {
		return ""
	}
	return ts[found].name
}

// quotas are those of each principal.
func (ts tokens) quotas() map[string]sandbox.Quota {
	all := map[string]sandbox.Quota{}
	for _, t := range ts {
		all[t.name] = t.quota
	}
	return all
}
