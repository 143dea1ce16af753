package main

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"
)

const (
	bodyTime  = time.Minute // for a whole body to come
	writeTime = time.Minute // for a client to take a piece that is written

	// maxBodies is how much all bodies that are being read or handled may hold
	// together.
	maxBodies = 64 << 20

	// maxBare bounds a message without the arguments of its call: mcp-go decodes
	// it several times over, at some twenty times its size.
	maxBare = 1 << 20
)

// errCrowded is in the error of a body that there is no memory for at present.
var errCrowded = errors.New("too many large requests at once")

// read takes a JSON body, or answers why it does not: then it returns nil. What
// it has read counts until done is called.
func (b *budget) read(w http.ResponseWriter, r *http.Request) (body []byte, done func()) {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || !strings.EqualFold(kind, "application/json") {
		refuse(w, http.StatusUnsupportedMediaType, "the Content-Type must be application/json")
		return nil, nil
	}
	if r.ContentLength > maxLine {
		w.Header().Set("Connection", "close")
		refuse(w, http.StatusRequestEntityTooLarge, tooLong)
		return nil, nil
	}
	who := principalOf(r.Context())
	body, err = b.readAll(who, http.MaxBytesReader(w, r.Body, maxLine))
	var long *http.MaxBytesError
	switch {
	case err == nil:
		// Without the deadline the connection is watched for the client's going.
		_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
		return body, func() { b.give(who, int64(cap(body))) }
	case errors.As(err, &long):
		refuse(w, http.StatusRequestEntityTooLarge, tooLong)
	case errors.Is(err, errCrowded):
		w.Header().Set("Connection", "close")
		retry(w, http.StatusServiceUnavailable, err.Error())
	default:
		w.Header().Set("Connection", "close")
		refuse(w, http.StatusBadRequest, "the body did not come whole in time")
	}
	return nil, nil
}

var tooLong = fmt.Sprintf("the message is longer than %d MiB", maxLine>>20)

// readAll takes memory only for what has come, so that announcing much and
// sending little holds nothing.
func (b *budget) readAll(who string, r io.Reader) (_ []byte, err error) {
	body := make([]byte, 0, 4<<10)
	if !b.take(who, int64(cap(body))) {
		return nil, errCrowded
	}
	defer func() {
		if err != nil {
			b.give(who, int64(cap(body)))
		}
	}()
	for {
		if len(body) == cap(body) {
			size := min(2*cap(body), maxLine+1) // one more than may come: the end is seen by a read too
			if !b.take(who, int64(size-cap(body))) {
				return nil, errCrowded
			}
			body = append(make([]byte, 0, size), body...)
		}
		n, err := r.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		if err == io.EOF {
			return body, nil
		}
		if err != nil {
			return nil, err
		}
	}
}
