//go:build cgo && (llama_engine || llama_system)

package smoke

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/internal/testutil/mooncaketest"
	"github.com/uma-serve/uma-serve/internal/testutil/nixltest"
	"github.com/uma-serve/uma-serve/internal/testutil/waitfor"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// hang is the longest wait for a fabric that has died: a request must not lose more time than that.
const hang = 2 * time.Second

// essay is a prompt of some 400 tokens, which differs from others from its first token on.
func essay(n int) string {
	first := []string{"North", "South", "East", "West"}[n]
	return strings.Repeat(first+" of the town are rivers, hills, roads and fields. ", 32)
}

// told is a daemon's report about one request.
type told struct {
	text           string
	prompt, cached int
	ttft           time.Duration
}

// tell asks for eight tokens after a prompt. sent, if not nil, is called once the request is sent.
func tell(s *server, prompt string, sent func()) told {
	s.t.Helper()
	return tellWithin(s, prompt, waitfor.Limit, sent)
}

// tellWithin is tell with a limit on the wait for the answer.
func tellWithin(s *server, prompt string, limit time.Duration, sent func()) told {
	s.t.Helper()
	c := s.dial()
	defer c.Close()
	c.SetDeadline(time.Now().Add(limit))
	c.request(fmt.Sprintf(`{"id":"a","prompt":%q,"max_tokens":8,"temperature":0,"ignore_eos":true,"stream":true}`,
		prompt))
	if sent != nil {
		sent()
	}
	end := c.mustEnd("a", wire.Length)
	return told{c.text["a"].String(), end.Usage.PromptTokens, end.Usage.CachedTokens, end.Timings.TTFT}
}

// fabricDaemon starts a daemon with a fabric and a new folder for its snapshots.
func fabricDaemon(t *testing.T, model, url string) *server {
	t.Helper()
	return startModelBare(t, model, "-c", "8192", "--cache-ram", "256MiB", "--cache-dir",
		filepath.Join(t.TempDir(), "snapshots"), "--fabric", url)
}

// stored waits until blocks of 16 tokens and no less have reached the fabric and nothing is queued.
func (s *server) stored(blocks int) {
	s.t.Helper()
	waitfor.True(s.t, fmt.Sprintf("%d blocks are on the fabric", blocks), func() bool {
		m := s.samples()
		return m["meridian_disagg_blocks_offloaded_total"] >= float64(blocks) && m["uma_disagg_queued"] == 0
	})
}

// TestMooncakeBetweenDaemons: daemons share prompts through a real Mooncake Store, whose node dies.
func TestMooncakeBetweenDaemons(t *testing.T) {
	store := mooncaketest.Start(t, "1 GB")
	url := store.URL()
	betweenDaemons(t, url, url, func(*server) *os.Process { return store.Node() })
}

// TestNIXLBetweenDaemons: daemons read each other's prompts by the real NIXL; the agent of the one that has them dies.
func TestNIXLBetweenDaemons(t *testing.T) {
	urls := nixltest.Peers(t, 2, nixltest.Library(t), "")
	betweenDaemons(t, urls[0], urls[1], func(a *server) *os.Process { return a.child("nixl-agent") })
}

// child returns the daemon's process whose first argument is arg.
func (s *server) child(arg string) *os.Process {
	s.t.Helper()
	pids, err := s.Processes()
	if err != nil {
		s.t.Fatal(err)
	}
	for _, pid := range pids {
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if words := strings.Split(string(line), "\x00"); err == nil && len(words) > 1 && words[1] == arg {
			p, err := os.FindProcess(pid)
			if err != nil {
				s.t.Fatal(err)
			}
			return p
		}
	}
	s.t.Fatalf("none of the processes %v is %s", pids, arg)
	return nil
}

// betweenDaemons: one daemon computes prompts, another one restores them and gives the same answers. Then the process
// that has the values is stopped and killed while a prompt comes from it: the answers stay the same, and no request
// waits longer than hang.
func betweenDaemons(t *testing.T, one, two string, holder func(*server) *os.Process) {
	model := published(t, "smollm2-135m")
	a := fabricDaemon(t, model, one)
	const piece = 32 // tokens of a value
	var want []told
	blocks := 0
	for i := range 4 {
		want = append(want, tell(a, essay(i), nil))
		if want[i].cached > 0 {
			t.Fatalf("prompt %d: %d tokens were cached before", i, want[i].cached)
		}
		blocks += want[i].prompt / piece * piece / 16
	}
	a.stored(blocks)

	b := fabricDaemon(t, model, two)
	same := func(what string, i int, sent func()) told {
		got := tell(b, essay(i), sent)
		if got.text != want[i].text {
			t.Errorf("%s: the answer is %q, of the daemon that computed it %q", what, got.text, want[i].text)
		}
		// Computing everything on a machine that has become slower, and the longest wait on top of it.
		if most := 3*want[i].ttft + hang; got.ttft > most {
			t.Errorf("%s: the first token came after %v, computing takes %v", what, got.ttft, want[i].ttft)
		}
		t.Logf("%s: %d of %d tokens cached, first token after %v; computed in %v", what, got.cached, got.prompt,
			got.ttft.Round(time.Millisecond), want[i].ttft.Round(time.Millisecond))
		return got
	}
	if got := same("restored", 0, nil); got.cached < got.prompt-2*piece {
		t.Errorf("%d of %d tokens were cached", got.cached, got.prompt)
	}
	p := holder(a)
	signal := func(sig syscall.Signal) func() {
		return func() {
			if err := p.Signal(sig); err != nil {
				t.Error(err)
			}
		}
	}
	same("stopped", 1, signal(syscall.SIGSTOP))
	signal(syscall.SIGCONT)()
	same("killed", 2, signal(syscall.SIGKILL))
	same("gone", 3, nil)
}
