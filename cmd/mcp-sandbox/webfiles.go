package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strings"
	"time"

	"mcp-sandbox/sandbox"
)

// transferTime bounds how long a file may take to come or go, however alive its
// connection is: as long as it does, its session is in use.
const transferTime = time.Hour

// beginSession makes a session, for files that are to be there before the first call.
func (s *httpServer) beginSession(w http.ResponseWriter, r *http.Request) {
	id, err := s.cfg.sessions.Begin(r.Context(), sandbox.Caller{Principal: principalOf(r.Context())})
	if err != nil {
		s.refuseFile(w, err)
		return
	}
	w.Header().Set("Location", "/sessions/"+id+"/files/")
	answerJSON(w, http.StatusCreated, map[string]string{"session_id": id})
}

func answerJSON(w http.ResponseWriter, status int, what any) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTime))
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(what) // a client that has gone needs no answer
}

// visit lends the session and the path that a request names to do, and answers with what
// it gives, or why it fails; a nil answer says that do has answered.
func (s *httpServer) visit(w http.ResponseWriter, r *http.Request, do func(context.Context, sandbox.Session, string) (any, error)) {
	var reply any
	ctx, cancel := context.WithTimeout(r.Context(), transferTime)
	defer cancel()
	name, err := sandbox.FilePath(r.PathValue("path"))
	if err == nil {
		who := sandbox.Caller{Principal: principalOf(ctx)}
		err = s.cfg.sessions.Visit(ctx, who, r.PathValue("id"), func(ctx context.Context, session sandbox.Session) (err error) {
			reply, err = do(ctx, session, name)
			return err
		})
	}
	switch {
	case err != nil:
		s.refuseFile(w, err)
	case reply != nil:
		answerJSON(w, http.StatusOK, reply)
	}
}

// getFile gives a file of a session's workspace, whole or in part, or the list of a
// directory.
func (s *httpServer) getFile(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength == 0 { // the guard waits for a body; this answer may take longer
		_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	}
	s.visit(w, r, func(ctx context.Context, session sandbox.Session, name string) (any, error) {
		files, ok := session.(sandbox.Files)
		if !ok {
			return nil, fs.ErrNotExist
		}
		f, info, err := sandbox.OpenFile(files.Root(), name)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		if info.IsDir() {
			entries, more, err := sandbox.Entries(files.Root(), f, name)
			return webDirectory{Path: sandbox.ValidUTF8([]byte(name)), Entries: entriesOf(entries), More: more}, err
		}
		h := w.Header()
		h.Set("Content-Type", passive(name))
		h.Set("Content-Disposition", cmp.Or(mime.FormatMediaType("attachment", map[string]string{"filename": path.Base(name)}), "attachment"))
		h.Set("Content-Security-Policy", "sandbox; default-src 'none'")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		// What the guest appends meanwhile is not part of it.
		content := io.NewSectionReader(f, 0, info.Size())
		http.ServeContent(&patientWriter{w, http.NewResponseController(w)}, r, "", info.ModTime(), &endingReader{content, ctx})
		if ctx.Err() != nil { // the client must not take it for the whole
			panic(http.ErrAbortHandler)
		}
		return nil, nil
	})
}

// webDirectory is a directory as clients get it.
type webDirectory struct {
	Path    string     `json:"path"`
	Entries []webEntry `json:"entries"`
	More    bool       `json:"more"`
}

type webEntry struct {
	Name     string    `json:"name"`
	Kind     string    `json:"kind"`
	Size     int64     `json:"size"`
	Modified time.Time `json:"modified"`
}

func entriesOf(all []sandbox.Entry) []webEntry {
	entries := make([]webEntry, len(all))
	for i, e := range all {
		entries[i] = webEntry{sandbox.ValidUTF8([]byte(e.Name)), e.Kind, e.Size, e.Modified.UTC()}
	}
	return entries
}

// passive is the media type of a file, as far as no browser would run what it holds.
func passive(name string) string {
	switch kind := sandbox.MIMEOf(name); kind {
	case "text/plain", "text/csv", "text/tab-separated-values", "application/json", "image/png", "image/jpeg", "image/gif", "image/webp":
		return kind
	}
	return "application/octet-stream"
}

// putFile takes a file into a session's workspace.
func (s *httpServer) putFile(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Content-Range") != "" {
		w.Header().Set("Connection", "close")
		refuse(w, http.StatusBadRequest, "a file is put whole: Content-Range is not supported")
		return
	}
	if strings.HasSuffix(r.PathValue("path"), "/") {
		s.refuseFile(w, sandbox.Invalid("the path names a directory: name the file in it"))
		return
	}
	s.visit(w, r, func(ctx context.Context, session sandbox.Session, name string) (any, error) {
		store, ok := session.(sandbox.FileStore)
		if !ok {
			return nil, errors.ErrUnsupported
		}
		body := &patientBody{r.Body, http.NewResponseController(w), cmp.Or(s.cfg.body, bodyTime), ctx}
		defer body.watch()()
		file, err := store.StoreFile(ctx, name, r.ContentLength, body)
		if err != nil {
			return nil, err
		}
		_ = body.ctl.SetReadDeadline(time.Time{})
		s.cfg.log.Info("file stored", "session", r.PathValue("id"), "bytes", file.Size)
		return map[string]any{
			"path": sandbox.ValidUTF8([]byte(file.Path)), "size": file.Size, "uri": sandbox.FileURI(r.PathValue("id"), file.Path),
		}, nil
	})
}

// refuseFile says why a file does not come or go. What is left of a body is not waited
// for.
func (s *httpServer) refuseFile(w http.ResponseWriter, err error) {
	w.Header().Set("Connection", "close")
	var e *sandbox.Error
	switch {
	case errors.Is(err, sandbox.ErrUnknownSession):
		refuse(w, http.StatusNotFound, sandbox.ErrUnknownSession.Error())
	case errors.Is(err, fs.ErrNotExist):
		refuse(w, http.StatusNotFound, "there is no such file")
	case errors.Is(err, sandbox.ErrQuota):
		refuse(w, http.StatusRequestEntityTooLarge, err.Error())
	case errors.Is(err, fs.ErrExist):
		refuse(w, http.StatusConflict, "a directory lies there, or what is none lies above")
	case errors.Is(err, errors.ErrUnsupported):
		refuse(w, http.StatusForbidden, "files can't be stored in this session: its workspace is read-only")
	case errors.As(err, &e) && e.Status == sandbox.StatusInvalid:
		refuse(w, http.StatusBadRequest, e.Err.Error())
	case errors.As(err, &e) && e.Status == sandbox.StatusDenied:
		refuse(w, http.StatusForbidden, e.Err.Error())
	case errors.Is(err, sandbox.ErrFull):
		retry(w, http.StatusServiceUnavailable, err.Error())
	case errors.Is(err, errBody), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		refuse(w, http.StatusBadRequest, "the body did not come whole in time")
	default:
		s.cfg.log.Error("a file did not come or go", "err", err)
		refuse(w, http.StatusInternalServerError, "internal error; the server's log has the cause")
	}
}

// errBody is in the error of a body that did not come.
var errBody = errors.New("the body did not come")

// patientBody is a body that may take long, as long as something of it comes.
type patientBody struct {
	io.Reader
	ctl  *http.ResponseController
	wait time.Duration
	ctx  context.Context // its end ends the wait
}

// Read implements io.Reader.
func (b *patientBody) Read(p []byte) (int, error) {
	_ = b.ctl.SetReadDeadline(time.Now().Add(b.wait))
	if b.ctx.Err() != nil { // after the deadline was set: watch may have come before
		return 0, context.Cause(b.ctx)
	}
	n, err := b.Reader.Read(p)
	switch {
	case err == nil || err == io.EOF:
		return n, err
	case b.ctx.Err() != nil:
		return n, context.Cause(b.ctx)
	}
	return n, errors.Join(errBody, err)
}

// watch ends a Read that waits when ctx ends, until the function that it returns is
// called.
func (b *patientBody) watch() func() bool {
	return context.AfterFunc(b.ctx, func() { _ = b.ctl.SetReadDeadline(time.Unix(1, 0)) })
}

// patientWriter is an answer that may take long, as long as the client takes some of it.
type patientWriter struct {
	http.ResponseWriter
	ctl *http.ResponseController
}

// Write implements io.Writer.
func (w *patientWriter) Write(p []byte) (int, error) {
	_ = w.ctl.SetWriteDeadline(time.Now().Add(writeTime))
	return w.ResponseWriter.Write(p)
}

// endingReader ends with ctx.
type endingReader struct {
	io.ReadSeeker
	ctx context.Context
}

// Read implements io.Reader.
func (r *endingReader) Read(p []byte) (int, error) {
	if r.ctx.Err() != nil {
		return 0, context.Cause(r.ctx)
	}
	return r.ReadSeeker.Read(p)
}
