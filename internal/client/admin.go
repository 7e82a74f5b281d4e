package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/runtime"
)

// Health is the daemon's answer to a health request.
type Health struct {
	Status        string  `json:"status"`        // ok, loading, draining or stalled
	Progress      float64 `json:"load_progress"` // 0 … 1
	UptimeMs      int64   `json:"uptime_ms"`
	LastStepAgeMs *int64  `json:"last_step_age_ms"` // nil before the first decode step
	Requests      int64   `json:"requests"`         // running and queued
	StalledSince  string  `json:"stalled_since"`    // RFC 3339; "" unless Status is stalled
	StalledMs     int64   `json:"stalled_ms"`
}

// Info is what is served, by what, and what is in use.
type Info struct {
	Status       string               `json:"status"`
	Version      string               `json:"version"`
	Engine       string               `json:"engine"`
	Go           string               `json:"go"`
	PID          int                  `json:"pid"`
	Socket       string               `json:"socket"`
	UptimeMs     int64                `json:"uptime_ms"`
	Model        *Model               `json:"model"` // nil while it loads
	Capabilities runtime.Capabilities `json:"capabilities"`
	Config       struct {
		Policy         string  `json:"policy"`
		Parallel       int     `json:"parallel"`
		MaxQueue       int     `json:"max_queue"`
		MaxSessions    int     `json:"max_sessions"`
		MaxFrameBytes  int     `json:"max_frame_bytes"`
		MaxPromptBytes int     `json:"max_prompt_bytes"`
		MaxTokens      int     `json:"max_tokens"`
		TickBudgetMs   float64 `json:"tick_budget_ms"`
		// PolicyOptions are the options that Policy obeys.
		PolicyOptions []PolicyOption `json:"policy_options"`
	} `json:"config"`
	Memory struct {
		Weights  int64 `json:"weights_bytes"`
		Repacked int64 `json:"repacked_bytes"`
		KV       int64 `json:"kv_bytes"`
		GoHeap   int64 `json:"go_heap_bytes"`
		RSS      int64 `json:"rss_bytes"` // 0 where the system does not say
	} `json:"memory"`
	CostModel *wire.CostModel `json:"cost_model"` // nil while the model loads
	Live      struct {
		Sessions    int   `json:"sessions"`
		Requests    int64 `json:"requests"`
		Sequences   int   `json:"sequences"`
		Resident    int64 `json:"resident_sequences"`
		LiveCells   int   `json:"kv_cells_live"`
		FreeCells   int   `json:"kv_cells_free"`
		Goroutines  int   `json:"goroutines"`
		Descriptors int   `json:"file_descriptors"` // -1 where the system does not say
	} `json:"live"`
}

// PolicyOption is an option of the scheduling policy in use, in the unit its name ends with.
type PolicyOption struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
}

// Model are the facts about the model that is served.
type Model struct {
	runtime.ModelInfo
	ChatTemplate   bool     `json:"chat_template"`
	TemplateSource string   `json:"chat_template_source"` // the model's own, a file, or a built-in one and why
	NoChat         string   `json:"no_chat_reason"`       // why there is no chat, "" when there is
	Thinks         bool     `json:"think_tags"`
	ThinkMarkers   string   `json:"think_markers"`
	ThinkSwitch    []string `json:"think_switch"`
}

// Health asks how the daemon is. It answers while a prompt is being computed, and while the model loads.
func (c *Client) Health(ctx context.Context) (*Health, error) {
	_, h, err := c.HealthReport(ctx)
	return h, err
}

// HealthReport is Health, and the JSON the daemon wrote.
func (c *Client) HealthReport(ctx context.Context) ([]byte, *Health, error) {
	return askJSON[Health](ctx, c, wire.KindHealth, plain(wire.KindHealth))
}

// Info asks what is served.
func (c *Client) Info(ctx context.Context) (*Info, error) {
	_, i, err := c.InfoReport(ctx)
	return i, err
}

// InfoReport is Info, and the JSON the daemon wrote.
func (c *Client) InfoReport(ctx context.Context) ([]byte, *Info, error) {
	return askJSON[Info](ctx, c, wire.KindInfo, plain(wire.KindInfo))
}

// Metrics is the JSON snapshot of every metric.
func (c *Client) Metrics(ctx context.Context) ([]byte, error) {
	return c.ask(ctx, wire.KindMetrics, plain(wire.KindMetrics))
}

// Why asks for the decisions behind requests. It returns the JSON the daemon wrote, too.
func (c *Client) Why(ctx context.Context, q wire.WhyQuestion) ([]byte, *wire.WhyReport, error) {
	return askJSON[wire.WhyReport](ctx, c, wire.KindWhy, func(dst []byte, id string) []byte { return wire.AppendWhyQuestion(dst, id, &q) })
}

// KV asks what the KV cache holds, with the prefix tree as text if tree is set. It returns the JSON the daemon wrote, too.
func (c *Client) KV(ctx context.Context, tree bool) ([]byte, *wire.KVReport, error) {
	return askJSON[wire.KVReport](ctx, c, wire.KindKV, kvQuestion(wire.KVQuestion{Tree: tree}))
}

// KVDo asks for op, which is not KVShow, to be done with a cached prefix, or "all". It returns the JSON the daemon wrote, too.
func (c *Client) KVDo(ctx context.Context, op wire.KVOp, target string) ([]byte, *wire.KVDone, error) {
	return askJSON[wire.KVDone](ctx, c, wire.KindKV, kvQuestion(wire.KVQuestion{Op: op, Target: target}))
}

func kvQuestion(q wire.KVQuestion) func([]byte, string) []byte {
	return func(dst []byte, id string) []byte { return wire.AppendKVQuestion(dst, id, &q) }
}

// plain is a question that is nothing but its kind.
func plain(kind wire.Kind) func([]byte, string) []byte {
	return func(dst []byte, id string) []byte { return wire.AppendAdmin(dst, kind, id) }
}

// ask sends an admin question and returns the report.
func (c *Client) ask(ctx context.Context, kind wire.Kind, question func(dst []byte, id string) []byte) ([]byte, error) {
	s, err := c.start(ctx, "", question)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", kind, err)
	}
	for {
		ev, err := s.Next()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", kind, err)
		}
		if ev.Kind == wire.EventReport && ev.ReportKind == kind {
			s.finish(io.EOF)
			return ev.Report, nil
		}
	}
}

func askJSON[T any](ctx context.Context, c *Client, kind wire.Kind, question func([]byte, string) []byte) ([]byte, *T, error) {
	raw, err := c.ask(ctx, kind, question)
	if err != nil {
		return nil, nil, err
	}
	v := new(T)
	if err := json.Unmarshal(raw, v); err != nil {
		return nil, nil, fmt.Errorf("%s: the daemon's answer cannot be read (is it another version?): %w", kind, err)
	}
	return raw, v, nil
}

// WaitReady returns nil once the daemon answers requests. While the model loads it calls loading, unless it is
// nil, with what the daemon says, every 100 ms.
func (c *Client) WaitReady(ctx context.Context, loading func(*Health)) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		h, err := c.Health(ctx)
		if err != nil {
			return err
		}
		if h.Status != "loading" {
			return nil
		}
		if loading != nil {
			loading(h)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// Prometheus fetches GET /metrics over HTTP on the same socket, in Prometheus's text format.
func Prometheus(ctx context.Context, socket string) ([]byte, error) {
	transport := &http.Transport{
		DisableKeepAlives: true,
		DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx, socket) },
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://uma-serve/metrics", nil)
	if err != nil {
		return nil, err
	}
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return nil, cause
		}
		if inner := errors.Unwrap(err); inner != nil {
			err = inner // without `Get "http://…"`
		}
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 64<<20))
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("metrics: the daemon answered %s: %.200s", resp.Status, body)
	}
	return body, nil
}
