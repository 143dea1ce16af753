package workload

import (
	"context"
	"crypto/sha256"
	"errors"
	"net/http"

	"mcp-sandbox/sandbox"
)

type tokenKey struct{}

// WithToken is ctx with the DataRobot token of who makes the calls under it. A
// Workload with Config.CallerToken uses it for what that caller runs, and for
// nobody and nothing else; the session that was opened with it holds it until
// it is closed, since its container must be deleted with it.
func WithToken(ctx context.Context, token string) context.Context {
	return context.WithValue(ctx, tokenKey{}, token)
}

// token is the one to use under ctx.
func (w *Workload) token(ctx context.Context) (string, error) {
	if !w.cfg.CallerToken {
		return w.cfg.Token, nil
	}
	token, _ := ctx.Value(tokenKey{}).(string)
	if token == "" {
		return "", denied(errors.New("this server runs remote code with its callers' own accounts: send your DataRobot token in the header X-DataRobot-Api-Token"))
	}
	if err := checkToken(token); err != nil {
		return "", denied(err)
	}
	return token, nil
}

// sameCaller refuses a call in a session that was opened with another token: a
// container is its account's, and so is what runs in it.
func (w *Workload) sameCaller(ctx context.Context, t *tenant) error {
	token, err := w.token(ctx)
	if err == nil && w.cfg.CallerToken && sha256.Sum256([]byte(token)) != t.key {
		err = denied(errors.New("this session was opened with another DataRobot token: send that one, or use a session of your own"))
	}
	return err
}

// refused tells a caller whose own token the platform does not take: nobody else
// could mend it. The server's own token is its operator's business.
func (w *Workload) refused(err error) error {
	if w.cfg.CallerToken && statusOf(err) == http.StatusUnauthorized {
		return denied(errors.New("DataRobot does not take your token (HTTP 401): send a valid API key in the header X-DataRobot-Api-Token"))
	}
	return err
}

func denied(err error) error {
	return &sandbox.Error{Status: sandbox.StatusDenied, ExitCode: sandbox.StatusDenied.ExitCode(), Layer: "workload", Err: err}
}
