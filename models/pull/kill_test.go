//go:build unix

package pull

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/models/pull/pulltest"
)

// TestMain lets the test binary be a process that pulls, to be killed.
func TestMain(m *testing.M) {
	if dir := os.Getenv("UMA_PULL_TEST_DIR"); dir != "" {
		if err := pullAndTell(dir); err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// pullAndTell pulls hf.co/owner/name into dir and prints how many bytes are here, with the time in milliseconds.
func pullAndTell(dir string) error {
	p, err := New(Config{Endpoint: os.Getenv("HF_ENDPOINT"), segment: 256 << 10,
		Observer: Observer{Progress: func(p Progress) {
			fmt.Println(time.Now().UnixMilli(), p.Done)
		}}})
	if err != nil {
		return err
	}
	p.cfg.sync = func(*os.File) error { return nil } // the system keeps what a killed process wrote
	_, err = p.Pull(context.Background(), "hf.co/owner/name", dir)
	return err
}

// TestKill9 kills a process that pulls with SIGKILL, three times, each time after it has received some more: less than
// a second's bytes, by the times it tells, are not on the disk, and the file is whole in the end.
func TestKill9(t *testing.T) {
	model := pulltest.GGUF(4<<20, 1)
	handler := oneFile(model)
	handler.Download = ""
	handler.Fault = pulltest.OfFiles(pulltest.Slow(8<<10, 100*time.Millisecond)) // 80 kB/s, eight connections
	server := httptest.NewServer(handler)
	defer server.Close()
	dir := filepath.Join(t.TempDir(), "models")
	path := filepath.Join(dir, oneFilePath)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	type report struct{ ms, done int64 }
	var kept int64
	for round := range 3 {
		cmd := exec.CommandContext(t.Context(), self)
		cmd.Env = []string{"UMA_PULL_TEST_DIR=" + dir, "HF_ENDPOINT=" + server.URL, "GOCOVERDIR=" + t.TempDir()}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		var reports []report
		lines := bufio.NewScanner(out)
		goal := kept + int64(len(model))*3/10
		for lines.Scan() {
			at, done, _ := strings.Cut(lines.Text(), " ")
			ms, err1 := strconv.ParseInt(at, 10, 64)
			n, err2 := strconv.ParseInt(done, 10, 64)
			if err1 != nil || err2 != nil {
				t.Fatal(lines.Text())
			}
			reports = append(reports, report{ms, n})
			if n >= goal {
				break
			}
		}
		cmd.Process.Kill()
		rest, _ := io.ReadAll(out)
		cmd.Wait()
		for line := range strings.Lines(string(rest)) {
			if at, done, ok := strings.Cut(strings.TrimSpace(line), " "); ok && strings.HasSuffix(line, "\n") {
				ms, _ := strconv.ParseInt(at, 10, 64)
				n, _ := strconv.ParseInt(done, 10, 64)
				reports = append(reports, report{ms, n})
			}
		}
		s, err := readState(path+".state", state{Sum: pulltest.Digest(model), Size: int64(len(model))})
		if err != nil {
			t.Fatal(err)
		}
		// While the disk is slow nothing is received: a second's bytes are the most that a second has brought.
		var second int64
		for i, a := range reports {
			for _, b := range reports[i:] {
				if b.ms-a.ms <= 1000 {
					second = max(second, b.done-a.done)
				}
			}
		}
		if lost := reports[len(reports)-1].done - s.Spans.total(); lost >= second {
			t.Errorf("round %d: %d bytes are lost; a second brought at most %d", round, lost, second)
		}
		if s.Spans.total() < kept {
			t.Errorf("round %d: %d bytes are kept, %d were before", round, s.Spans.total(), kept)
		}
		kept = s.Spans.total()
	}
	if kept == 0 {
		t.Error("nothing was kept")
	}
	handler.Change(func() { handler.Fault = nil })
	before := handler.Served()
	p, err := New(Config{Endpoint: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Pull(t.Context(), "hf.co/owner/name", dir); err != nil {
		t.Fatal(err)
	}
	if sent := handler.Served() - before; sent != int64(len(model))-kept {
		t.Errorf("%d bytes were sent, %d were missing", sent, int64(len(model))-kept)
	}
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, model) {
		t.Errorf("the file is not whole: %v", err)
	}
}
