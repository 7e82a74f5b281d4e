package wireclient

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/frames"
	"github.com/uma-serve/uma-serve/ipc/wire/reports"
)

// Question is an admin question. The daemon answers it during a decode step and while the model loads.
type Question struct {
	Kind wire.Kind        // KindHealth, KindInfo, KindMetrics, KindWhy or KindKV
	Why  wire.WhyQuestion // with KindWhy
	KV   wire.KVQuestion  // with KindKV
}

// Report is the JSON that answers a Question.
type Report []byte

// Decode stores the report in v, a pointer to the type of the question's answer: reports.Health, reports.Info,
// reports.WhyReport, reports.KVReport or reports.KVDone.
func (r Report) Decode(v any) error {
	if err := json.Unmarshal(r, v); err != nil {
		return fmt.Errorf("the daemon's answer cannot be read (is it another version?): %w", err)
	}
	return nil
}

// Ask sends an admin question and returns the daemon's JSON as it came. Health, Info, Why, KV, KVDo and Metrics ask and
// decode.
func (c *Client) Ask(ctx context.Context, q Question) (Report, error) {
	switch {
	case q.Kind != wire.KindHealth && q.Kind != wire.KindInfo && q.Kind != wire.KindMetrics && q.Kind != wire.KindWhy &&
		q.Kind != wire.KindKV:
		return nil, fmt.Errorf("kind %q is no admin question", q.Kind)
	case q.KV.Op > wire.KVSave:
		return nil, fmt.Errorf("kv: there is no operation %d", q.KV.Op)
	}
	s, err := c.Start(ctx, "", nil, func(dst []byte, id string) []byte {
		switch q.Kind {
		case wire.KindWhy:
			return frames.AppendWhyQuestion(dst, id, &q.Why)
		case wire.KindKV:
			return frames.AppendKVQuestion(dst, id, &q.KV)
		}
		return frames.AppendAdmin(dst, q.Kind, id)
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", q.Kind, err)
	}
	for {
		ev, err := s.Next()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", q.Kind, err)
		}
		if ev.Kind == wire.EventReport && ev.ReportKind == q.Kind {
			s.finish(io.EOF)
			return ev.Report, nil
		}
	}
}

func ask[T any](ctx context.Context, c *Client, q Question) (*T, error) {
	raw, err := c.Ask(ctx, q)
	if err != nil {
		return nil, err
	}
	v := new(T)
	if err := raw.Decode(v); err != nil {
		return nil, fmt.Errorf("%s: %w", q.Kind, err)
	}
	return v, nil
}

// Health asks for the daemon's state.
func (c *Client) Health(ctx context.Context) (*reports.Health, error) {
	return ask[reports.Health](ctx, c, Question{Kind: wire.KindHealth})
}

// Info asks for the model, the engine, the configuration and the resources in use.
func (c *Client) Info(ctx context.Context) (*reports.Info, error) {
	return ask[reports.Info](ctx, c, Question{Kind: wire.KindInfo})
}

// Metrics asks for a snapshot of every metric, as one JSON object; docs/metrics.md lists its members.
func (c *Client) Metrics(ctx context.Context) (Report, error) {
	return c.Ask(ctx, Question{Kind: wire.KindMetrics})
}

// Why asks for the scheduler's decisions about requests.
func (c *Client) Why(ctx context.Context, q wire.WhyQuestion) (*reports.WhyReport, error) {
	return ask[reports.WhyReport](ctx, c, Question{Kind: wire.KindWhy, Why: q})
}

// KV asks for the contents of the KV cache, with the prefix tree as text if tree is set.
func (c *Client) KV(ctx context.Context, tree bool) (*reports.KVReport, error) {
	return ask[reports.KVReport](ctx, c, Question{Kind: wire.KindKV, KV: wire.KVQuestion{Tree: tree}})
}

// KVDo drops, pins, unpins or saves a cached prefix. target is the name of an entry in the answer to KV, or "all".
func (c *Client) KVDo(ctx context.Context, op wire.KVOp, target string) (*reports.KVDone, error) {
	return ask[reports.KVDone](ctx, c, Question{Kind: wire.KindKV, KV: wire.KVQuestion{Op: op, Target: target}})
}

// WaitReady waits until the daemon answers requests. While the model loads it asks for the daemon's state every 100 ms
// and passes it to loading, unless that is nil.
func (c *Client) WaitReady(ctx context.Context, loading func(*reports.Health)) error {
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
