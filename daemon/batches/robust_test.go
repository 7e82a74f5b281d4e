package batches

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/uma-serve/uma-serve/ipc/wire"
)

// TestForms: files of other systems and editors, and the number of a wrong line.
func TestForms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, echo)
		defer w.r.Close()
		line := func(id string) string {
			return `{"custom_id":"` + id + `","method":"POST","url":"/v1/chat/completions","body":{"x":"<&>"}}`
		}
		_, b := w.do("POST", Path, w.input("\ufeff"+line("a")+"\r\n\r\n"+line("b")+"\r\n"+line("c")))
		synctest.Wait()
		_, b = w.do("GET", Path+"/"+b["id"].(string), "")
		if out := w.file(b, "output_file_id"); b["status"] != "completed" || strings.Count(out, "\n") != 3 ||
			!strings.Contains(out, `"<&>"`) {
			t.Errorf("%v: %s", b, out)
		}
		_, b = w.do("POST", Path, w.input(line("a")+"\n\n\n"+line("a")+"\n"))
		if got := fmt.Sprint(b["errors"]); b["status"] != "failed" || !strings.Contains(got, "line:4") {
			t.Errorf("a custom_id that comes twice: %v", b)
		}
	})
}

// TestLongLines: a request of the greatest length is one, whatever its characters.
func TestLongLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(context.Context, uint32, string, http.Header, []byte) (*http.Response, error) {
			return reply(http.StatusOK, `{"text":"`+strings.Repeat("<", 12<<20)+`"}`), nil
		})
		defer w.r.Close()
		b := w.batch(`{"x":"` + strings.Repeat("<", 15<<20) + `"}`)
		synctest.Wait()
		if _, b = w.do("GET", Path+"/"+b["id"].(string), ""); b["status"] != "completed" {
			t.Errorf("%v", b)
		}
	})
}

// TestNoRoomForResults: a batch whose results cannot be kept waits until they can, and fails when it expires.
func TestNoRoomForResults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, echo)
		defer w.r.Close()
		w.full.Store(&wire.RequestError{Code: wire.QueueLimit, Message: "delete some"})
		b := w.batch(`{"x":1}`, `{"bad":1}`)
		path := Path + "/" + b["id"].(string)
		time.Sleep(time.Minute)
		if _, b = w.do("GET", path, ""); b["status"] != "in_progress" {
			t.Fatalf("%v", b)
		}
		w.full.Store(nil)
		time.Sleep(10 * time.Minute)
		if _, b = w.do("GET", path, ""); b["status"] != "completed" || w.asked.Load() != 2 ||
			len(w.files.List(1)) != 3 {
			t.Errorf("%v after %d requests, %d files", b, w.asked.Load(), len(w.files.List(1)))
		}
		w.full.Store(&wire.RequestError{Code: wire.QueueLimit, Message: "delete some"})
		b = w.batch(`{"x":1}`)
		time.Sleep(Window + time.Hour)
		if _, b = w.do("GET", Path+"/"+b["id"].(string), ""); b["status"] != "failed" || b["failed_at"] == nil ||
			!strings.Contains(fmt.Sprint(b["errors"]), "delete some") {
			t.Errorf("%v", b)
		}
	})
}

// TestWaitingHasNoSlot: requests that are refused for a while do not keep those of other batches from running.
func TestWaitingHasNoSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(ctx context.Context, o uint32, p string, h http.Header, body []byte) (*http.Response,
			error) {
			if bytes.Contains(body, []byte("poor")) {
				return reply(http.StatusTooManyRequests, "{}", "Retry-After", "30"), nil
			}
			return echo(ctx, o, p, h, body)
		})
		defer w.r.Close()
		var poor []string
		for range 2 * Slots {
			poor = append(poor, `{"poor":1}`)
		}
		first := w.batch(poor...)
		synctest.Wait()
		b := w.batch(`{"x":1}`, `{"x":2}`)
		synctest.Wait()
		if _, b = w.do("GET", Path+"/"+b["id"].(string), ""); b["status"] != "completed" {
			t.Errorf("%v", b)
		}
		if n := w.asked.Load(); n != Slots+2 {
			t.Errorf("%d requests were made", n)
		}
		w.do("POST", Path+"/"+first["id"].(string)+"/cancel", "")
		synctest.Wait()
		if _, b = w.do("GET", Path+"/"+first["id"].(string), ""); b["status"] != "cancelled" {
			t.Errorf("%v", b)
		}
	})
}

// TestLostProcesses: a request that ends each process that gets it is given up, and those after it are answered.
func TestLostProcesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(ctx context.Context, o uint32, p string, h http.Header, body []byte) (*http.Response,
			error) {
			if bytes.Contains(body, []byte("poison")) {
				return nil, fmt.Errorf("%w: EOF", ErrLost)
			}
			return echo(ctx, o, p, h, body)
		})
		defer w.r.Close()
		b := w.batch(`{"poison":1}`, `{"x":1}`)
		time.Sleep(time.Minute)
		_, b = w.do("GET", Path+"/"+b["id"].(string), "")
		if got := w.file(b, "error_file_id"); b["status"] != "completed" || w.asked.Load() != maxLost+1 ||
			!strings.Contains(got, "processes of the model ended") {
			t.Errorf("%v after %d requests: %s", b, w.asked.Load(), got)
		}
	})
}

// TestMostBytes: batches that are over make place for new ones; those that run do not.
func TestMostBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, hang)
		defer w.r.Close()
		w.r.batches["old"] = &running{b: Batch{ID: "old", Owner: 1, Status: Completed,
			Bytes: MaxOwnerBytes + 1}}
		b := w.batch(`{}`)
		if _, ok := w.r.Get(1, "old"); ok || b["status"] != "in_progress" {
			t.Errorf("the batch that is over is there: %v; %v", ok, b)
		}
		synctest.Wait()
		run := w.r.batches[b["id"].(string)]
		run.mu.Lock()
		run.b.Bytes = MaxOwnerBytes + 1
		run.mu.Unlock()
		if _, got := w.do("POST", Path, w.input("{}")); !strings.Contains(fmt.Sprint(got), "the maximum is") {
			t.Errorf("%v", got)
		}
	})
}

// TestUnreadState: a state that cannot be read, for whatever reason, costs no results.
func TestUnreadState(t *testing.T) {
	dir := t.TempDir()
	id := "msgbatch_0123456789abcdef01234567"
	for kind, text := range map[string]string{"json": "{half", "results": "{}\n"} {
		if err := os.WriteFile(filepath.Join(dir, id+"."+kind), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r, err := Open(Options{Dir: dir, Log: slog.New(slog.DiscardHandler), Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if left, _ := filepath.Glob(filepath.Join(dir, "*")); len(left) != 2 {
		t.Errorf("%q is left", left)
	}
}
