package chat

import (
	"context"
	"fmt"
	"os"
	"sync"

	"github.com/uma-serve/uma-serve/internal/cli/ui"
	"github.com/uma-serve/uma-serve/internal/wireclient"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/reports"
)

// Stream runs one request and hands its events to event, the end event last. The first signal on interrupts cancels the
// request on the daemon, whose end event then has the reason "cancelled"; the second one stops waiting for it:
// ErrInterrupt. A signal on endThink ends the request's thinking. An error of event cancels the request and is
// returned.
func Stream(ctx context.Context, c *wireclient.Client, req *wire.Request, interrupts, endThink <-chan os.Signal,
	event func(*wire.Event) error) error {
	var (
		mu     sync.Mutex
		stream *wireclient.Stream
		asked  bool
	)
	select {
	case <-endThink: // meant for an answer that is over
	default:
	}
	ctx, done := interruptible(ctx, interrupts, func() bool {
		mu.Lock()
		defer mu.Unlock()
		if asked {
			return false
		}
		asked = true
		return stream == nil || stream.Cancel() == nil
	})
	defer done()
	s, err := c.Stream(ctx, req)
	if err != nil {
		return err
	}
	mu.Lock()
	stream = s
	if asked {
		s.Cancel()
	}
	mu.Unlock()
	if endThink != nil {
		over := make(chan struct{})
		var hand sync.WaitGroup
		hand.Go(func() {
			for {
				select {
				case <-over:
					return
				case <-endThink:
					_ = s.EndThink() // a broken connection is told by Next
				}
			}
		})
		defer hand.Wait()
		defer close(over)
	}
	for {
		ev, err := s.Next()
		if err != nil {
			return err
		}
		if err := event(ev); err != nil {
			s.Cancel()
			return err
		}
		if ev.Kind == wire.EventEOS {
			return nil
		}
	}
}

// interruptible returns a context that ends with ErrInterrupt when a signal comes and gently, called for each signal,
// is nil or returns false. The returned function stops listening and must be called.
func interruptible(ctx context.Context, signals <-chan os.Signal, gently func() bool) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-ctx.Done():
				return
			case <-signals:
			}
			if gently == nil || !gently() {
				cancel(ErrInterrupt)
			}
		}
	}()
	return ctx, func() {
		cancel(nil)
		<-stopped
	}
}

// WaitReady returns when the daemon answers requests, showing meanwhile how much of the model is loaded. A signal
// ends the wait with ErrInterrupt.
func WaitReady(ctx context.Context, c *wireclient.Client, interrupts <-chan os.Signal, out *ui.Terminal) error {
	ctx, done := interruptible(ctx, interrupts, nil)
	defer done()
	defer out.ClearStatus()
	return c.WaitReady(ctx, func(h *reports.Health) {
		out.Status(fmt.Sprintf("the model is loading… %.0f %%", 100*h.Progress))
	})
}
