// Package telemetry exports traces of requests and the daemon's metrics over OTLP, by gRPC or HTTP, with the
// OpenTelemetry SDK.
//
// The decode loop fills a Request while it serves one and gives it away at its end (Exporter.Ended), without a wait:
// when the exporter is behind, the record is dropped and counted. A goroutine of the exporter makes spans of it. A
// collector that is dead, slow or killed therefore costs the loop nothing.
//
// The SDK is half of the program, so it is built in with the tag otlp only (make TAGS=otlp; packages have it). Without
// the tag Start fails, and nothing is traced.
package telemetry

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strings"
	"time"
)

// Config has the destination and the amount of telemetry.
type Config struct {
	Endpoint string        // see ParseEndpoint
	Interval time.Duration // between two exports of the metrics
	// Sample is the share of requests that are traced, 0…1, of those without a traceparent; a request with one is
	// traced if its client traces it.
	Sample float64
	// Service names the program, Version its build, Model what it serves.
	Service, Version, Model string
	Log                     *slog.Logger
}

// Endpoint is a parsed Config.Endpoint.
type Endpoint struct {
	GRPC, TLS bool
	Host      string // host:port
	Path      string // before /v1/traces and /v1/metrics; HTTP only
}

// ParseEndpoint reads http://HOST:PORT[/PATH], https://…, grpc://HOST:PORT or grpcs://…. Without a port it is OTLP's:
// 4318 of HTTP, 4317 of gRPC.
func ParseEndpoint(text string) (Endpoint, error) {
	u, err := url.Parse(text)
	if err != nil {
		return Endpoint{}, fmt.Errorf("%.100q is no URL: %w", text, errors.Unwrap(err))
	}
	e := Endpoint{Host: u.Host, Path: strings.TrimSuffix(u.Path, "/")}
	port := "4318"
	switch u.Scheme {
	case "http":
	case "https":
		e.TLS = true
	case "grpc", "grpcs":
		e.GRPC, e.TLS, port = true, u.Scheme == "grpcs", "4317"
	default:
		return Endpoint{}, fmt.Errorf("%.100q must begin with http://, https://, grpc:// or grpcs://", text)
	}
	switch {
	case u.Hostname() == "":
		return Endpoint{}, fmt.Errorf("%.100q names no host", text)
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return Endpoint{}, fmt.Errorf("%.100q must be a scheme, a host and a port; headers with credentials are taken "+
			"from OTEL_EXPORTER_OTLP_HEADERS", text)
	case e.GRPC && e.Path != "":
		return Endpoint{}, fmt.Errorf("%.100q has a path; gRPC has none", text)
	}
	if u.Port() == "" {
		e.Host = net.JoinHostPort(u.Hostname(), port)
	}
	return e, nil
}
