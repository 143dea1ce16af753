package egress

import (
	"bytes"
	"errors"
	"net/http"
	"strconv"
	"strings"
)

const (
	maxHead   = 64 << 10 // bytes of a request's head
	maxFields = 200
)

// head is what comes before a request's body. It is read here, and not by net/http, because
// that repairs what a proxy must refuse: it takes the target's host for the Host header, and
// tells nothing of a second one.
type head struct {
	method, target string
	minor          byte // of the version, HTTP/1.
	fields         []field
}

type field struct{ name, value string }

// readHead takes a head off the connection.
func (c *client) readHead() (head, error) {
	for {
		if i := bytes.Index(c.pending, []byte("\r\n\r\n")); i >= 0 {
			text := string(c.pending[:i+2])
			c.pending = c.pending[i+4:]
			return parseHead(text)
		}
		switch err := c.fill(maxHead); {
		case errors.Is(err, errTooLong):
			return head{}, &Refusal{http.StatusRequestHeaderFieldsTooLarge, "The request's head is longer than 64 KiB."}
		case err != nil:
			return head{}, err
		}
	}
}

// parseHead takes lines that each end in CR LF. Whatever two readers might read differently
// is refused: bare CR or LF, folded lines, space before a colon.
func parseHead(text string) (head, error) {
	lines := strings.Split(strings.TrimSuffix(text, "\r\n"), "\r\n")
	parts := strings.Split(lines[0], " ")
	if len(parts) != 3 || !isToken(parts[0]) || !isVisible(parts[1]) {
		return head{}, malformed("The request's first line is malformed.")
	}
	h := head{method: parts[0], target: parts[1]}
	switch parts[2] {
	case "HTTP/1.0", "HTTP/1.1":
		h.minor = parts[2][7] - '0'
	default:
		return head{}, malformed("This proxy speaks HTTP/1.1.")
	}
	if len(lines)-1 > maxFields {
		return head{}, &Refusal{http.StatusRequestHeaderFieldsTooLarge, "The request has more than 200 header fields."}
	}
	for _, line := range lines[1:] {
		name, value, found := strings.Cut(line, ":")
		value = strings.Trim(value, " \t")
		if !found || !isToken(name) || !isText(value) {
			return head{}, malformed("A header field of the request is malformed.")
		}
		h.fields = append(h.fields, field{name, value})
	}
	return h, nil
}

// isToken is RFC 9110, 5.6.2.
func isToken(s string) bool {
	for i := range len(s) {
		c := s[i]
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0) {
			return false
		}
	}
	return s != ""
}

func isVisible(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] >= 0x7f {
			return false
		}
	}
	return s != ""
}

func isText(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' && s[i] != '\t' || s[i] == 0x7f {
			return false
		}
	}
	return true
}

func (h head) values(name string) []string {
	var all []string
	for _, f := range h.fields {
		if strings.EqualFold(f.name, name) {
			all = append(all, f.value)
		}
	}
	return all
}

// checkHost refuses a Host that is another than the one that is connected to: a server that
// serves many hosts would serve that one.
func (h head) checkHost(t target, needed bool) error {
	hosts := h.values("Host")
	switch {
	case len(hosts) == 0 && !needed:
		return nil
	case len(hosts) != 1:
		return malformed("The request has %d Host headers; it needs one.", len(hosts))
	}
	if named, err := parseAuthority(hosts[0], t.port); err != nil || named != t {
		return refuse("The request's Host header is not %v, which the connection is for.", t)
	}
	return nil
}

// body is how long what follows the head is; chunked says that it tells by itself.
func (h head) body() (length int64, chunked bool, err error) {
	lengths, codings := h.values("Content-Length"), h.values("Transfer-Encoding")
	switch {
	case len(codings) > 0 && len(lengths) > 0, len(lengths) > 1, len(codings) > 1:
		return 0, false, malformed("The request tells the length of its body twice.")
	case len(codings) == 1:
		if !strings.EqualFold(codings[0], "chunked") || h.minor == 0 {
			return 0, false, malformed("The only transfer coding here is chunked, of HTTP/1.1.")
		}
		return 0, true, nil
	case len(lengths) == 0:
		return 0, false, nil
	}
	n, err := strconv.ParseUint(lengths[0], 10, 63)
	if err != nil || lengths[0][0] == '+' {
		return 0, false, malformed("The request's Content-Length is no number.")
	}
	return int64(n), false, nil
}

// hops are fields that are about a connection, and not about the request.
var hops = []string{
	"Host", "Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authorization", "Proxy-Authenticate",
	"TE", "Trailer", "Upgrade", "HTTP2-Settings",
}

// render is the request as it goes to t: one for each connection, so that none can hide
// behind another.
func (h head) render(t target, path string) []byte {
	dropped := append([]string{}, hops...)
	for _, list := range h.values("Connection") {
		for name := range strings.SplitSeq(list, ",") {
			name = strings.TrimSpace(name)
			if !strings.EqualFold(name, "Content-Length") && !strings.EqualFold(name, "Transfer-Encoding") {
				dropped = append(dropped, name)
			}
		}
	}
	authority := t.host.String()
	if t.port != 80 {
		authority = t.String()
	}
	var b bytes.Buffer
	b.WriteString(h.method + " " + path + " HTTP/1.1\r\nHost: " + authority + "\r\n")
fields:
	for _, f := range h.fields {
		for _, name := range dropped {
			if strings.EqualFold(name, f.name) {
				continue fields
			}
		}
		b.WriteString(f.name + ": " + f.value + "\r\n")
	}
	b.WriteString("Connection: close\r\n\r\n")
	return b.Bytes()
}
