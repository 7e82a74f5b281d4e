package front

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/daemon/config"
	"github.com/uma-serve/uma-serve/internal/testutil/waitfor"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// TestFiftyModelsInRoomForFour asks 50 models in turn where memory has room for four.
func TestFiftyModelsInRoomForFour(t *testing.T) {
	var names []string
	for i := range 50 {
		names = append(names, fmt.Sprintf("m%02d", i))
	}
	r := start(t, Options{}, names, nil, "--memory", "400b", "--sandbox=false")
	over := make(chan int64, 1)
	watch := func() {
		r.call(func() {
			n := int64(0)
			for _, m := range r.models {
				if m.proc != nil || m.state == starting {
					n += m.need
				}
			}
			if n > r.limit || n != r.used {
				select {
				case over <- n:
				default:
				}
			}
		})
	}
	c := r.dial()
	for _, n := range names {
		if got, err := wholeOf(c, n); err != nil || got != "I am "+n {
			t.Fatalf("%s: %q, %v", n, got, err)
		}
		watch()
	}
	select {
	case n := <-over:
		t.Errorf("%d bytes are in use of %d", n, r.limit)
	default:
	}
	waitfor.True(t, "loads and unloads are balanced", func() bool {
		loaded, loads, unloads := 0, 0, 0
		r.call(func() {
			for _, m := range r.models {
				if m.proc != nil {
					loaded++
				}
				loads, unloads = loads+m.loads, unloads+m.unloads
				if m.crashed > 0 {
					t.Errorf("%s has crashed", m.name)
				}
			}
		})
		return loaded <= 4 && loads == unloads+loaded && loads >= 50
	})
}

// TestAnsweringAndPinnedModelsStay: a model that answers or is pinned does not leave; the request waits, and why says
// so.
func TestAnsweringAndPinnedModelsStay(t *testing.T) {
	r := start(t, Options{}, []string{"pinned", "slow", "three"}, func(c *config.Config) { c.Models[0].Pinned = true },
		"--memory", "200b")
	r.awaitReady("pinned")
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	long := request("slow", func(q *wire.Request) {
		q.Messages, q.Prompt, q.Stream, q.Sampling.IgnoreEOS, q.MaxTokens = nil, "tell on", true, true, 1000
	})
	st, err := r.dial().Stream(ctx, long)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := st.Next(); err != nil {
		t.Fatal(err)
	}
	answered := make(chan error, 1)
	go func() {
		got, err := wholeOf(r.dial(), "three")
		if err == nil && got != "I am three" {
			err = fmt.Errorf("the answer is %q", got)
		}
		answered <- err
	}()
	waitfor.True(t, "why says that it waits", func() bool {
		_, text := r.http().do("GET", "/why?last=10", "")
		return strings.Contains(text, `"reason":"model_memory"`) && strings.Contains(text, `"model":"three"`)
	})
	tokens := 0
	for {
		ev, err := st.Next()
		if err != nil {
			t.Fatalf("the answer was cut: %v", err)
		}
		if ev.Kind == wire.EventToken {
			tokens++
		}
		if ev.Kind == wire.EventEOS {
			break
		}
	}
	if err := waitfor.Recv(t, "the third model answers", answered); err != nil {
		t.Error(err)
	}
	if tokens < 900 {
		t.Errorf("the answer has %d tokens", tokens)
	}
	r.call(func() {
		if r.find("pinned").unloads != 0 || r.find("slow").unloads != 1 {
			t.Error("the wrong model has left")
		}
	})
}

func TestModelLargerThanMemory(t *testing.T) {
	r := start(t, Options{Estimate: func(c *config.Config) (int64, error) {
		if strings.HasSuffix(c.Model, "big") {
			return 1000, nil
		}
		return 100, nil
	}}, []string{"one", "big"}, nil, "--memory", "500b")
	_, err := wholeOf(r.dial(), "big")
	if code(err) != wire.ModelTooLarge || !strings.Contains(err.Error(), "--memory") {
		t.Errorf("%v", err)
	}
}

func TestIdleModelIsUnloaded(t *testing.T) {
	r := start(t, Options{Tick: 10 * time.Millisecond}, []string{"one", "two"}, nil, "--idle-unload", "200ms")
	c, h := r.dial(), r.http()
	if got, err := wholeOf(c, "two"); err != nil || got != "I am two" {
		t.Fatalf("%q, %v", got, err)
	}
	if status, _ := h.post("/v1/chat/completions", chat("two", "")); status != 200 {
		t.Fatal(status)
	}
	waitfor.True(t, "it is unloaded", func() bool {
		n := 0
		r.call(func() { n = r.find("two").unloads })
		return n > 0
	})
	// The connections have stayed, and their next requests load it again.
	if got, err := wholeOf(c, "two"); err != nil || got != "I am two" {
		t.Errorf("%q, %v", got, err)
	}
	if status, text := h.post("/v1/chat/completions", chat("two", "")); status != 200 {
		t.Errorf("%d %s", status, text)
	}
}
