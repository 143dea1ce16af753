package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/google/uuid"

	"mcp-sandbox/sandbox"
	"mcp-sandbox/workload"
)

// reachLimit is how long the platform may take to say whose the token is.
const reachLimit = 15 * time.Second

// examineRemote asks the platform whether it takes the token. It reports whether code
// could run there.
func (p program) examineRemote(ctx context.Context, f remoteFlags, cfg localConfig, d *diagnosis) bool {
	endpoint, token := os.Getenv(endpointEnv), os.Getenv(tokenEnv)
	add := func(state, detail, remedy string) { d.add(fact{"workload", "workload API", state, detail, remedy}) }
	switch {
	case d.Backend == sandbox.BackendWorkload:
	case endpoint == "" && token == "":
		add(factInfo, "not configured: Python runs on this machine", "")
		return false
	case endpoint == "":
		add(factMissing, tokenEnv+" is set, "+endpointEnv+" is not: Python runs on this machine", "set "+endpointEnv+", such as https://app.datarobot.com/api/v2")
		return false
	case token == "":
		add(factMissing, endpointEnv+" is set, "+tokenEnv+" is not: Python runs on this machine", "set "+tokenEnv+" to an API key of your account")
		return false
	}
	ctx, cancel := context.WithTimeoutCause(ctx, reachLimit, fmt.Errorf("no answer within %v", reachLimit))
	defer cancel()
	begun := time.Now()
	account, err := p.reach(ctx, f.config(false, cfg.limits(), &instance{id: uuid.NewString()}, cfg.log))
	took := time.Since(begun).Round(time.Millisecond)
	switch {
	case err == nil:
		detail := fmt.Sprintf("%s takes the token (%v)", account.Host, took)
		if account.MaxWorkloads > 0 {
			detail += fmt.Sprintf("; the account may have %d workloads at once", account.MaxWorkloads)
		}
		add(factOK, detail, "")
		return true
	case workload.Refused(err):
		add(factMissing, err.Error(), "set "+tokenEnv+" to an API key that is valid there, of an account that may create workloads")
	case errors.Is(err, context.DeadlineExceeded):
		add(factMissing, context.Cause(ctx).Error(), "look whether this machine reaches "+endpointEnv+", perhaps by HTTPS_PROXY")
	default:
		add(factMissing, err.Error(), "look whether "+endpointEnv+" is right, and this machine reaches it, perhaps by HTTPS_PROXY")
	}
	return false
}
