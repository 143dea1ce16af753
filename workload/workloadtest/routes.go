package workloadtest

import (
	"encoding/json"
	"net/http"
	"strings"
)

// prefix is what all paths of the API begin with.
const prefix = "/api/v2"

// call is a request that bears a token.
type call struct {
	*http.Request
	user string // its token: a user is known by nothing else
}

// base is where the caller finds this server.
func (c call) base() string { return baseOf(c.Request) }

func baseOf(r *http.Request) string {
	if r.TLS != nil {
		return "https://" + r.Host
	}
	return "http://" + r.Host
}

// answer is what the API says: a status, and JSON unless body is nil.
type answer struct {
	status int
	body   any
	header map[string]string
}

// object is JSON written by hand.
type object = map[string]any

// detail is the commonest shape of an error.
func detail(status int, text string) answer {
	return answer{status: status, body: object{"detail": text}}
}

func (a answer) write(w http.ResponseWriter) {
	for name, value := range a.header {
		w.Header().Set(name, value)
	}
	if a.body == nil {
		w.WriteHeader(a.status)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(a.status)
	_ = json.NewEncoder(w).Encode(a.body) // the caller may have gone
}

// ServeHTTP implements http.Handler.
func (e *Emulator) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	noted := &noting{ResponseWriter: w}
	defer func() {
		e.saw(Seen{Method: r.Method, URI: r.URL.RequestURI(), Status: noted.status})
	}()
	if e.ctx.Err() != nil {
		noted.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	if f := e.faults.due(r.Method, strings.TrimPrefix(r.URL.Path, prefix)); f != nil {
		e.strike(f, noted, r)
		return
	}
	e.mux.ServeHTTP(noted, r)
}

// noting is a ResponseWriter that remembers the status.
type noting struct {
	http.ResponseWriter
	status int
}

func (n *noting) WriteHeader(status int) {
	if n.status == 0 && status >= http.StatusOK {
		n.status = status
	}
	n.ResponseWriter.WriteHeader(status)
}

func (n *noting) Write(b []byte) (int, error) {
	if n.status == 0 {
		n.status = http.StatusOK
	}
	return n.ResponseWriter.Write(b)
}

// Unwrap is for http.ResponseController.
func (n *noting) Unwrap() http.ResponseWriter { return n.ResponseWriter }

func (e *Emulator) routes() *http.ServeMux {
	mux := http.NewServeMux()
	for pattern, f := range map[string]func(call) answer{
		"GET /workloads":                                  e.listWorkloads,
		"POST /workloads":                                 e.createWorkload,
		"GET /workloads/{id}":                             e.readWorkload,
		"PATCH /workloads/{id}":                           e.patchWorkload,
		"DELETE /workloads/{id}":                          e.deleteWorkload,
		"POST /workloads/{id}/start":                      e.startWorkload,
		"POST /workloads/{id}/stop":                       e.stopWorkload,
		"GET /workloads/{id}/settings":                    e.readSettings,
		"PATCH /workloads/{id}/settings":                  e.notEmulated,
		"GET /workloads/{id}/replacement":                 e.noReplacement,
		"POST /workloads/{id}/replacement":                e.notEmulated,
		"DELETE /workloads/{id}/replacement":              e.noReplacement,
		"POST /workloads/{id}/promote":                    e.notEmulated,
		"GET /workloads/{id}/protons":                     e.listProtons,
		"GET /workloads/{id}/protons/{pid}":               e.readProton,
		"GET /workloads/{id}/protons/{pid}/statusDetails": e.statusDetails,
		"GET /workloads/{id}/events":                      e.listEvents,
		"GET /artifacts":                                  e.listArtifacts,
		"GET /artifacts/{id}":                             e.readArtifact,
		"DELETE /artifacts/{id}":                          e.deleteArtifact,
		"GET /account/info":                               e.account,
		"POST /entitlements/evaluate":                     e.entitlements,
		"GET /mlops/compute/bundles":                      e.bundles,
	} {
		method, path, _ := strings.Cut(pattern, " ")
		mux.HandleFunc(method+" "+prefix+path, e.api(f))
		mux.HandleFunc(method+" "+prefix+path+"/{$}", e.api(f))
	}
	const logs = prefix + "/otel/workload/{id}/logs"
	mux.HandleFunc("GET "+logs+"/{$}", e.api(e.readLogs))
	mux.HandleFunc("DELETE "+logs+"/{$}", e.api(e.deleteLogs))
	mux.HandleFunc(logs, withSlash)
	mux.HandleFunc(prefix+"/endpoints/workloads/{id}/", e.invoke)
	mux.HandleFunc("/", e.api(func(call) answer { return detail(http.StatusNotFound, "Not Found") }))
	return mux
}

// api stands before every route of the API.
func (e *Emulator) api(f func(call) answer) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		user, ok := e.user(r)
		switch {
		case !ok:
			refuseToken(w)
		case e.cfg.Cluster.NotEntitled:
			detail(http.StatusForbidden, "The Workload API is not enabled for this user.").write(w)
		default:
			f(call{r, user}).write(w)
		}
	}
}

// user is whose token a request bears.
func (e *Emulator) user(r *http.Request) (string, bool) {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		return "", false
	}
	for _, known := range append([]string{e.cfg.Token}, e.cfg.Tokens...) {
		if token == known {
			return token, true
		}
	}
	return "", false
}

// refuseToken is the edge gateway's answer.
func refuseToken(w http.ResponseWriter) {
	answer{status: http.StatusUnauthorized, body: object{"message": "Invalid API key"}}.write(w)
}

// withSlash is what the gateway says to a path of the logs that lacks its slash.
func withSlash(w http.ResponseWriter, r *http.Request) {
	to := *r.URL
	to.Path += "/"
	w.Header().Set("Location", baseOf(r)+to.RequestURI())
	w.WriteHeader(http.StatusPermanentRedirect)
}

func (e *Emulator) notEmulated(c call) answer {
	if _, missing := e.find(c); missing != nil {
		return *missing
	}
	return detail(http.StatusNotImplemented, "This emulator does not do that.")
}

func (e *Emulator) noReplacement(c call) answer {
	if _, missing := e.find(c); missing != nil {
		return *missing
	}
	return detail(http.StatusNotFound, "There is no active replacement for this workload.")
}
