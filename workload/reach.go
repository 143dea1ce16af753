package workload

import (
	"context"
	"net/http"
)

// Account is whose a token is, and what they may.
type Account struct {
	Host         string // of the platform
	MaxWorkloads int    // at once; 0 = no limit
}

// Reach asks the platform whose the token of cfg is: one request, made once, that changes
// nothing. A token that is not taken is an [APIError] with the status 401 or 403.
func Reach(ctx context.Context, cfg Config) (Account, error) {
	cfg, base, err := cfg.resolve()
	if err != nil {
		return Account{}, err
	}
	c := &client{base: base, token: cfg.Token, http: cfg.httpClient(), log: cfg.Logger, clock: newClock(cfg.speed), limit: cfg.requestLimit}
	defer c.http.CloseIdleConnections()
	a, err := c.account(ctx)
	return Account{Host: base.Host, MaxWorkloads: a.MaxWorkloads}, err
}

// Refused reports whether err is the platform's refusal of a token.
func Refused(err error) bool {
	return statusOf(err) == http.StatusUnauthorized || statusOf(err) == http.StatusForbidden
}
