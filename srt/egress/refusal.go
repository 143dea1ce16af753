package egress

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// Refusal is why a connection was not made, in a sentence for who wrote the code. It tells
// nothing that the code could not know: no address that a name has led to.
type Refusal struct {
	Status int // of HTTP
	Text   string
}

// Error implements error.
func (r *Refusal) Error() string { return r.Text }

func refuse(format string, a ...any) error {
	return &Refusal{http.StatusForbidden, fmt.Sprintf(format, a...)}
}

func malformed(format string, a ...any) error {
	return &Refusal{http.StatusBadRequest, fmt.Sprintf(format, a...)}
}

func unreachable(format string, a ...any) error {
	return &Refusal{http.StatusBadGateway, fmt.Sprintf(format, a...)}
}

// refusalOf is what a guest is told of an error.
func refusalOf(err error) *Refusal {
	var r *Refusal
	if errors.As(err, &r) {
		return r
	}
	return &Refusal{http.StatusBadRequest, err.Error()}
}

// maxReason bounds what stands in the status line. Clients show that line and not the body
// where a tunnel is refused, so the sentence stands there too.
const maxReason = 600

// response is the refusal as HTTP. Proxy-Status (RFC 9209) tells it from an answer of the
// host's own.
func (r *Refusal) response() []byte {
	text := strings.Map(func(c rune) rune {
		if c < ' ' || c > '~' {
			return '?'
		}
		return c
	}, r.Text)
	reason := text[:min(len(text), maxReason)]
	kind := map[int]string{
		http.StatusForbidden: "http_request_denied", http.StatusBadGateway: "destination_unavailable",
	}[r.Status]
	if kind == "" {
		kind = "http_request_error"
	}
	body := text + "\n"
	return []byte("HTTP/1.1 " + strconv.Itoa(r.Status) + " " + reason + "\r\n" +
		"Proxy-Status: mcp-sandbox; error=" + kind + "\r\n" +
		"Content-Type: text/plain; charset=us-ascii\r\n" +
		"Content-Length: " + strconv.Itoa(len(body)) + "\r\n" +
		"Connection: close\r\n\r\n" + body)
}
