package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"
)

// otlp is what the standard environment variables ask for.
type otlp struct{ metrics, traces *destination } // nil = not sent

// destination is where one kind of telemetry is sent, and how.
type destination struct {
	what    string // metrics, traces
	url     *url.URL
	header  http.Header
	timeout time.Duration // for all attempts of one sending
	gzip    bool
	tls     *tls.Config // nil = as usual
}

// readOTLP reads OTEL_… variables, those of one kind before those of both.
// Without an endpoint nothing is sent, and what is only half understood is refused:
// it would silently not arrive.
func readOTLP(env func(string) string) (otlp, error) {
	if strings.EqualFold(env("OTEL_SDK_DISABLED"), "true") {
		return otlp{}, nil
	}
	metrics, err1 := readSignal("metrics", env)
	traces, err2 := readSignal("traces", env)
	return otlp{metrics, traces}, errors.Join(err1, err2)
}

func readSignal(what string, env func(string) string) (*destination, error) {
	upper := strings.ToUpper(what)
	if names := env("OTEL_" + upper + "_EXPORTER"); names != "" && !strings.Contains(","+names+",", ",otlp,") {
		return nil, nil // none, or what others serve
	}
	read := func(name string) (variable, value string) {
		variable = "OTEL_EXPORTER_OTLP_" + upper + "_" + name
		if value = env(variable); value == "" {
			variable = "OTEL_EXPORTER_OTLP_" + name
			value = env(variable)
		}
		return variable, value
	}
	variable, endpoint := read("ENDPOINT")
	if endpoint == "" {
		return nil, nil
	}
	s := &destination{what: what, header: http.Header{}, timeout: 10 * time.Second}
	var err error
	if s.url, err = url.Parse(endpoint); err != nil || s.url.Host == "" || s.url.Scheme != "http" && s.url.Scheme != "https" {
		return nil, fmt.Errorf("%s must be a URL such as http://localhost:4318", variable)
	}
	if variable == "OTEL_EXPORTER_OTLP_ENDPOINT" {
		s.url = s.url.JoinPath("v1", what)
	}
	if variable, v := read("PROTOCOL"); v != "" && v != "http/protobuf" {
		return nil, fmt.Errorf("%s is %q, but only http/protobuf is spoken here (the collector's port 4318)", variable, v)
	}
	if variable, v := read("TIMEOUT"); v != "" {
		ms, err := strconv.Atoi(v)
		if err != nil || ms <= 0 {
			return nil, fmt.Errorf("%s must be a number of milliseconds above 0; got %q", variable, v)
		}
		s.timeout = time.Duration(ms) * time.Millisecond
	}
	switch variable, v := read("COMPRESSION"); v {
	case "", "none":
	case "gzip":
		s.gzip = true
	default:
		return nil, fmt.Errorf("%s must be gzip or none; got %q", variable, v)
	}
	if variable, v := read("HEADERS"); v != "" {
		if err := s.addHeaders(v); err != nil {
			return nil, fmt.Errorf("%s: %w", variable, err)
		}
	}
	s.tls, err = readTLS(read)
	return s, err
}

// addHeaders takes key=value,key=value, percent-encoded. The values are secrets: no
// fault shows them.
func (s *destination) addHeaders(list string) error {
	for i, pair := range strings.Split(list, ",") {
		key, value, ok := strings.Cut(pair, "=")
		key = strings.TrimSpace(key)
		decoded, err := url.PathUnescape(strings.TrimSpace(value))
		if !ok || key == "" || err != nil || strings.ContainsAny(key+decoded, "\r\n\x00") || strings.ContainsAny(key, " \t:") {
			return fmt.Errorf("expected KEY=VALUE,…, but number %d is not so", i+1)
		}
		s.header.Add(key, decoded)
	}
	return nil
}

func readTLS(read func(string) (string, string)) (*tls.Config, error) {
	var c *tls.Config
	if variable, file := read("CERTIFICATE"); file != "" {
		pem, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", variable, err)
		}
		c = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: x509.NewCertPool()}
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s: %s holds no certificate (PEM)", variable, file)
		}
	}
	variable, cert := read("CLIENT_CERTIFICATE")
	_, key := read("CLIENT_KEY")
	if cert == "" && key == "" {
		return c, nil
	}
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", variable, err)
	}
	if c == nil {
		c = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	c.Certificates = []tls.Certificate{pair}
	return c, nil
}
