package front

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/daemon/config"
	"github.com/uma-serve/uma-serve/internal/testutil/waitfor"
)

// TestModelOfTheCommandLineThatCannotBeLoaded ends the front, as it ends a daemon of one process; one of a table does
// not, as the others can be asked.
func TestModelOfTheCommandLineThatCannotBeLoaded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "broken.gguf")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r := start(t, Options{}, nil, func(c *config.Config) { c.Model = path })
	r.ends = true
	if err := r.end(); err == nil || !strings.Contains(err.Error(), "the file is damaged") ||
		strings.Contains(r.log.String(), "level=ERROR") {
		t.Errorf("%v\n%s", err, r.log)
	}

	r = start(t, Options{}, []string{"broken", "two"}, nil)
	if got, err := wholeOf(r.dial(), "two"); err != nil || got != "I am two" {
		t.Errorf("%q, %v", got, err)
	}
	waitfor.True(t, "health says that the default model is down", func() bool {
		status, text := r.http().do("GET", "/health", "")
		return status == http.StatusServiceUnavailable && strings.Contains(text, `"broken":"down"`)
	})
	r.call(func() {
		if !r.told {
			t.Error("systemd waits for ever")
		}
	})
}

// TestHealthAfterAFailedLoad: health is not "ok" between the news that the default model cannot be loaded and the end
// of its process.
func TestHealthAfterAFailedLoad(t *testing.T) {
	r := start(t, Options{}, []string{"gated"}, func(c *config.Config) { c.Models[0].Pinned = true })
	waitfor.True(t, "the model loads", func() (yes bool) {
		r.call(func() { h := r.health(); yes = h.Status == "loading" && h.Progress > 0 })
		return yes
	})
	pid := 0
	r.call(func() {
		m := r.find("gated")
		pid = m.proc.pid()
		r.hearStatus(m, m.proc, []byte(`{"state":"failed","error":"the file is damaged"}`))
		if h := r.health(); m.proc == nil || h.Status != "down" || h.Progress != 0 {
			t.Errorf("%q, progress %v", h.Status, h.Progress)
		}
	})
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	waitfor.True(t, "the process has ended", func() bool { return r.pid("gated") != pid })
	r.call(func() {
		if h := r.health(); h.Status != "down" {
			t.Errorf("then %q", h.Status)
		}
	})
}

// TestLiveViewKeepsNoModel: an open view does not keep an idle model loaded, and asking for one does not load it.
func TestLiveViewKeepsNoModel(t *testing.T) {
	t.Parallel() // it waits for most of its time
	r := start(t, Options{Tick: 10 * time.Millisecond}, []string{"one"}, nil, "--idle-unload", "3s")
	r.awaitReady("one")
	view := r.http()
	view.send("GET", "/live", "")
	if resp := view.receive(); resp.StatusCode != http.StatusOK {
		t.Fatalf("live: %d", resp.StatusCode)
	}
	waitfor.True(t, "the model is unloaded", func() bool {
		gone := false
		r.call(func() { gone = r.find("one").state == unloaded })
		return gone
	})
	if status, text := r.http().do("GET", "/live", ""); status != http.StatusServiceUnavailable ||
		!strings.Contains(text, "E_MODEL_LOADING") {
		t.Errorf("live: %d %s", status, text)
	}
	r.call(func() {
		if m := r.find("one"); m.loads != 1 {
			t.Errorf("%d loads", m.loads)
		}
	})
}
