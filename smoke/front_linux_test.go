//go:build cgo && (llama_engine || llama_system)

package smoke

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/internal/testutil/daemonproc"
	"github.com/uma-serve/uma-serve/internal/testutil/waitfor"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/reports"
	"github.com/uma-serve/uma-serve/models/store/storetest"
	"github.com/uma-serve/uma-serve/runtime/ggufgen"
)

var sample = regexp.MustCompile(`(?m)^(\w+)(?:\{[^}]*\})? (\S+)$`)

// samples are the sums of the metrics of a scrape, by name.
func (s *server) samples() map[string]float64 {
	s.t.Helper()
	sums := map[string]float64{}
	for _, m := range sample.FindAllStringSubmatch(get(s.t, s, "/metrics", "*/*"), -1) {
		v, err := strconv.ParseFloat(m[2], 64)
		if err != nil {
			s.t.Fatal(err)
		}
		sums[m[1]] += v
	}
	return sums
}

// TestFiftyModelsInMemoryForFour asks 50 models by their names, in turn, under a limit for four: never over the limit,
// no refusal, loads and unloads balanced, and the front's memory does not grow.
func TestFiftyModelsInMemoryForFour(t *testing.T) {
	dir := t.TempDir()
	tiny := ggufgen.Cached(t, ggufgen.Tiny())
	const count, limit = 50, 640 << 20 // a model counts with 128 MiB and its cells
	for i := range count {
		storetest.Copy(t, filepath.Join(dir, fmt.Sprintf("m%02d.gguf", i)), tiny)
	}
	p, err := daemonproc.Start(filepath.Join(bin, "uma-serve"), waitfor.Limit, nil, "-m", "m00", "--models-dir", dir,
		"--single=false", "--memory", strconv.Itoa(limit)+"b", "--cache-ram", "0", "-c", "256", "-t", "1")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{Proc: p, t: t}
	t.Cleanup(func() {
		if err := p.Stop(waitfor.Limit); err != nil || t.Failed() {
			t.Errorf("%v\n%s", err, p.Log())
		}
	})
	c := s.dial()
	defer c.Close()
	most, early, rounds := 0, int64(0), 2
	if testing.Short() {
		rounds = 1
	}
	for round := range rounds {
		for i := range count {
			id := fmt.Sprintf("%d/%d", round, i)
			c.request(fmt.Sprintf(`{"id":%q,"model":"m%02d","prompt":"a","max_tokens":2,"ignore_eos":true}`, id, i))
			c.mustEnd(id, wire.Length)
			pids, err := s.Processes()
			if err != nil {
				t.Skip(err) // a kernel without CONFIG_PROC_CHILDREN
			}
			most = max(most, len(pids)-1)
			if rss, err := s.RSS(); err != nil || rss > limit {
				t.Errorf("%d MiB are resident, of %d, %v", rss>>20, limit>>20, err)
			}
			if m := s.samples(); m["uma_front_memory_used_bytes"] > limit {
				t.Errorf("%v bytes are counted, of %d", m["uma_front_memory_used_bytes"], limit)
			}
			if round == 0 && i == 10 {
				if early, err = daemonproc.RSSOf(pids[0]); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	if most < 4 || most > 5 { // one may be ending
		t.Errorf("at most %d engine processes at a time", most)
	}
	s.settle(func(reports.Info) error {
		pids, err := s.Processes()
		if err != nil {
			return err
		}
		engines, m := len(pids)-1, s.samples()
		loads, unloads := m["uma_front_model_loads_total"], m["uma_front_model_unloads_total"]
		if crashes := m["uma_front_model_crashes_total"]; loads < float64(count+(rounds-1)*(count-4)) ||
			loads != unloads+float64(engines) || crashes != 0 {
			return fmt.Errorf("%v loads, %v unloads, %d processes, %v crashes", loads, unloads, engines, crashes)
		}
		return nil
	})
	late, err := daemonproc.RSSOf(s.Cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	const slack = 8 << 20 // Go's heap between two collections
	if late > early+slack {
		t.Errorf("the front has %d KiB after 10 models and %d KiB after %d", early>>10, late>>10, rounds*count)
	}
	t.Logf("front: %d KiB after 10 loads, %d KiB after %d; at most %d engine processes", early>>10, late>>10,
		rounds*count, most)
}

// TestProgramReplacedWhileItRuns: an upgrade puts another program in the place of the one that runs; its front starts
// engine processes as before.
func TestProgramReplacedWhileItRuns(t *testing.T) {
	exe := filepath.Join(t.TempDir(), "uma-serve")
	storetest.Copy(t, exe, filepath.Join(bin, "uma-serve"))
	if err := os.Chmod(exe, 0o700); err != nil {
		t.Fatal(err)
	}
	s := startBinary(t, exe, ggufgen.Cached(t, ggufgen.Tiny()))
	if err := os.Remove(exe); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(exe, []byte("#!/bin/sh\nexit 1\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	first := s.info().Models[0].PID
	if err := syscall.Kill(first, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	waitfor.True(t, "it has ended", func() bool { return s.info().Models[0].PID != first })
	c := s.dial()
	defer c.Close()
	c.request(`{"id":"a","prompt":"hello","max_tokens":3,"ignore_eos":true}`)
	c.mustEnd("a", wire.Length)
	cmdline, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", s.info().Models[0].PID))
	if !strings.HasPrefix(string(cmdline), exe+"\x00engine-process\x00") {
		t.Errorf("ps shows %q, %v", cmdline, err)
	}
}

// TestActivatedFront: a front serves the socket that systemd passes, ends at SIGTERM and leaves the socket to the next
// one, which answers the client that has connected in between.
func TestActivatedFront(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "uma.sock")
	ln, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	file, err := ln.(*net.UnixListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	serve := func() *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), "sh", "-c", `LISTEN_PID=$$ exec "$0" "$@"`,
			filepath.Join(bin, "uma-serve"), "-m", ggufgen.Cached(t, ggufgen.Tiny()), "-t", "1", "--single=false")
		cmd.Env = append(os.Environ(), "LISTEN_FDS=1", "XDG_CACHE_HOME="+dir, "UMA_CONFIG=")
		cmd.ExtraFiles = []*os.File{file}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return cmd
	}
	s := &server{Proc: &daemonproc.Proc{Socket: path}, t: t}
	ask := func(c *client) {
		t.Helper()
		c.request(`{"id":"a","prompt":"hello","max_tokens":3,"ignore_eos":true}`)
		c.mustEnd("a", wire.Length)
	}
	first := serve()
	ask(s.dial())
	if err := first.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := first.Wait(); err != nil {
		t.Error(err)
	}
	waiting := s.dial()
	second := serve()
	ask(waiting)
	if err := second.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := second.Wait(); err != nil {
		t.Error(err)
	}
}

// TestPassedConnectionMakesWay: this user's connections are all at an engine process; a client of another user is
// served, and one of them is told why it ends. It needs the right to run a program as another user.
func TestPassedConnectionMakesWay(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can run a client as another user")
	}
	const sessions = 6
	s := startBinary(t, filepath.Join(bin, "uma-serve"), ggufgen.Cached(t, ggufgen.Tiny()), "--single=false",
		"--socket-mode", "0666", "--max-sessions", fmt.Sprint(sessions))
	for _, dir := range []string{filepath.Dir(s.Socket), bin} {
		if err := os.Chmod(dir, 0o711); err != nil {
			t.Fatal(err)
		}
	}
	var conns []*client
	for range sessions {
		c := s.dial()
		defer c.Close()
		c.request(`{"id":"a","prompt":"hello","max_tokens":1}`)
		if _, err := c.end("a"); err != nil {
			t.Fatal(err)
		}
		conns = append(conns, c)
	}
	cmd := exec.Command(filepath.Join(bin, "uma-cli"), "health", "--socket", s.Socket)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 4711, Gid: 4711}}
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "ok") {
		t.Fatalf("the other user's client: %v, %s", err, out)
	}
	told := 0
	for _, c := range conns {
		c.SetDeadline(time.Now().Add(waitfor.Limit))
		c.Write(wire.AppendFrame(nil, []byte(`{"id":"b","prompt":"hello","max_tokens":1}`))) // fails where it has ended
		switch ev, err := c.next(); {
		case err == nil && ev.Kind == wire.EventError && ev.Error.Code == wire.SessionLimit:
			told++
		case err != nil:
			t.Errorf("a connection ended without a word: %v", err)
		}
	}
	if told != 1 {
		t.Errorf("%d connections were told that they make way, want 1", told)
	}
}
