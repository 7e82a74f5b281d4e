package daemon

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/daemon/config"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/runtime/fake"
)

// pageAnswer is Markdown of every kind, and what a hostile model might write.
const pageAnswer = "## Result\n\nThe answer is **42**, *surely*.\n\n- one\n- two\n  - deep\n\n1. first\n2. second\n\n" +
	"| a | b |\n|---|--:|\n| x | 1 |\n\n" +
	"```go\nfunc main() {}\n```\n\n> quoted\n\nSee [docs](https://example.com/a) and [bad](javascript:alert(1)) " +
	"![pic](https://example.com/p.png) " +
	"<img src=x onerror=alert(1)> <script>alert(2)</script> `code`.\n"

// TestPageServer is a daemon for scripts/page-check.sh, not a test: an engine that thinks long and slowly, so that a
// browser can stop it or end its thinking. It serves on the socket that UMA_PAGE_SOCKET names until SIGTERM.
func TestPageServer(t *testing.T) {
	socket := os.Getenv("UMA_PAGE_SOCKET")
	if socket == "" {
		t.Skip("UMA_PAGE_SOCKET is not set: scripts/page-check.sh sets it")
	}
	fs, c, _ := config.NewFlagSet()
	if err := fs.Parse([]string{"--model", "fake", "--socket", socket, "-c", "524288",
		"--speculate", "off", "--parallel", "8"}); err != nil {
		t.Fatal(err)
	}
	if err := c.Load(nil); err != nil {
		t.Fatal(err)
	}
	s, err := New(c, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	pace := make(chan time.Time)
	go func() {
		for ctx.Err() == nil { // a step takes what a timer says
			pace <- <-time.After(8 * time.Millisecond)
		}
		close(pace)
	}()
	const user = "<|im_end|>\n<|im_start|>assistant\n"
	const lasting = 2000 // times a sentence is said: minutes, for a browser on a slow machine
	if err := s.Serve(ctx, func(o runtime.Options) (runtime.Engine, error) {
		return fake.New(fake.Config{Options: o, Advance: func(time.Duration) { <-pace }, Scripts: []fake.Script{
			{After: "</think>", Emit: pageAnswer},
			{After: "long" + user, Emit: "<think>" + strings.Repeat("Let me think about this. Or not.\n", lasting) +
				"</think>"},
			{After: "plain" + user, Emit: strings.Repeat("A long answer goes on and on. ", lasting)},
			{Emit: "<think>A short thought of two lines.\nIt ends here.</think>"},
		}}), nil
	}); err != nil {
		t.Fatal(err)
	}
}
