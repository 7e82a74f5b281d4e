package download

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/internal/testutil/waitfor"
	"github.com/uma-serve/uma-serve/models/pull/pulltest"
)

// TestMain lets the test binary be the process of a download.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == Arg {
		if err := Run(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

const model, file = "hf.co/owner/name", "hf.co/owner/name/name-Q4_K_M.gguf"

// site is a hub with one model, and the manager of downloads from it.
type site struct {
	*Manager
	*pulltest.Server
	t    *testing.T
	dir  string
	data []byte
	url  string
	pids chan int // of the processes that run
}

func newSite(t *testing.T, size int, edit func(*Config)) *site {
	t.Helper()
	s := &site{t: t, dir: filepath.Join(t.TempDir(), "models"), data: pulltest.GGUF(size, 1), pids: make(chan int, 100)}
	s.Server = &pulltest.Server{Repos: map[string]*pulltest.Repo{
		"owner/name": {Files: map[string][]byte{"name-Q4_K_M.gguf": s.data}}}}
	server := httptest.NewServer(s.Server)
	t.Cleanup(server.Close)
	s.url = server.URL
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &Program{Path: exe, Args: []string{Arg}, Started: func(pid int) { s.pids <- pid }}
	cfg := Config{Pull: p.Pull, Job: func(name string) (Job, error) {
		return Job{Name: name, Dir: s.dir, Endpoint: s.url, Sandbox: true}, nil
	}}
	if edit != nil {
		edit(&cfg)
	}
	s.Manager = NewManager(cfg)
	t.Cleanup(s.Close)
	return s
}

// slow slows the files down, so that a download can be looked at.
func (s *site) slow() {
	s.Change(func() { s.Fault = pulltest.OfFiles(pulltest.Slow(4<<10, 20*time.Millisecond)) })
}

func (s *site) fast() { s.Change(func() { s.Fault = nil }) }

func (s *site) start(name string, keep bool) *Ticket {
	s.t.Helper()
	t, err := s.Start(name, name, keep)
	if err != nil {
		s.t.Fatal(err)
	}
	return t
}

// end waits for the end of a download.
func (s *site) end(t *Ticket) State {
	s.t.Helper()
	for {
		st, changed := t.State()
		if !st.Status.Runs() {
			return st
		}
		waitfor.Recv(s.t, "a change of the download", changed)
	}
}

// begun waits until bytes have come.
func (s *site) begun(t *Ticket) {
	s.t.Helper()
	waitfor.True(s.t, "bytes have come", func() bool {
		st, _ := t.State()
		return st.Done() > 0
	})
}

// whole checks that the file is there whole, and nothing beside it.
func (s *site) whole() {
	s.t.Helper()
	if got, err := os.ReadFile(filepath.Join(s.dir, file)); err != nil || !bytes.Equal(got, s.data) {
		s.t.Fatalf("the file is not whole: %d bytes, %v", len(got), err)
	}
	_ = filepath.WalkDir(s.dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() && !strings.HasSuffix(path, ".gguf") && !strings.HasSuffix(path, ".gguf.json") {
			s.t.Errorf("%s is left behind", path)
		}
		return nil
	})
}

// TestDownload: a model is downloaded in a process, with its progress.
func TestDownload(t *testing.T) {
	var arrived *Done
	s := newSite(t, 300_000, func(c *Config) { c.Arrived = func(d *Done) { arrived = d } })
	ticket := s.start(model, true)
	st := s.end(ticket)
	ticket.Release()
	if st.Status != Finished || st.Err != nil || st.Done() != int64(len(s.data)) || st.Total() != st.Done() ||
		st.Choice.Sums[0] != pulltest.Digest(s.data) || st.Ended.IsZero() {
		t.Fatalf("%+v %+v", st, st.Err)
	}
	if arrived == nil || arrived.Files[0] != filepath.Join(s.dir, file) || arrived.Name != model+":Q4_K_M" {
		t.Errorf("%+v", arrived)
	}
	s.whole()
	c := s.Counts()
	if c.Finished != 1 || c.Bytes != int64(len(s.data)) || c.Running+c.Waiting+c.Failed+c.Canceled != 0 {
		t.Errorf("%+v", c)
	}
	if l := s.List(); len(l) != 1 || l[0].ID != st.ID {
		t.Errorf("%+v", l)
	}
}

// TestSharedDownload: several clients that want a model, by whatever spelling, share its download; it is canceled when
// all have left, unless one asked for it to go on.
func TestSharedDownload(t *testing.T) {
	s := newSite(t, 400_000, nil)
	s.slow()
	a := s.start(model, false)
	b := s.start("https://huggingface.co/Owner/Name", false)
	if a.Joined || !b.Joined || len(s.List()) != 1 {
		t.Fatalf("%+v", s.List())
	}
	s.begun(a)
	a.Release()
	if st, _ := b.State(); !st.Status.Runs() {
		t.Fatalf("the download has ended with its first client: %+v", st)
	}
	b.Release()
	if st := s.end(b); st.Status != Canceled || !strings.Contains(st.Err.Text, "kept") {
		t.Fatalf("%+v %+v", st, st.Err)
	}
	c := s.start(model, true)
	c.Release()
	s.fast()
	if st := s.end(c); st.Status != Finished {
		t.Fatalf("%+v", st.Err)
	}
	s.whole()
}

// TestCancel: a download that is canceled keeps what has arrived, and the next one goes on from there.
func TestCancel(t *testing.T) {
	s := newSite(t, 400_000, nil)
	s.slow()
	a := s.start(model, true)
	defer a.Release()
	s.begun(a)
	if !s.Cancel(t.Context(), strings.ToUpper(model[:2])+model[2:]) || s.Cancel(t.Context(), model) ||
		s.Cancel(t.Context(), "../x") {
		t.Error("cancel")
	}
	if st := s.end(a); st.Status != Canceled {
		t.Fatalf("%+v", st)
	}
	if _, err := os.Stat(filepath.Join(s.dir, file+".part")); err != nil {
		t.Error(err)
	}
	s.fast()
	b := s.start(model, true)
	defer b.Release()
	if st := s.end(b); st.Status != Finished {
		t.Fatalf("%+v", st.Err)
	}
	s.whole()
}

// TestKilled kills the process of a download at random moments, and starts it again: the model is never listed half,
// and is whole in the end.
func TestKilled(t *testing.T) {
	s := newSite(t, 600_000, nil)
	s.slow()
	rng := rand.New(rand.NewPCG(1, 2))
	kills := 0
	for range 8 {
		until := rng.Int64N(40_000)
		a := s.start(model, true)
		pid := waitfor.Recv(t, "a process", s.pids)
		st, changed := a.State()
		for from := int64(-1); st.Status.Runs(); st, changed = a.State() {
			if from < 0 && len(st.Files) > 0 {
				from = st.Done()
			}
			if from >= 0 && st.Done() >= from+until {
				break
			}
			waitfor.Recv(t, "a change", changed)
		}
		if p, err := os.FindProcess(pid); err == nil && st.Status.Runs() {
			if p.Kill() == nil {
				kills++
			}
		}
		st = s.end(a)
		a.Release()
		if st.Status == Finished {
			break
		}
		if st.Status != Failed || !strings.Contains(st.Err.Text, "killed") || !strings.Contains(st.Err.Text, "kept") {
			t.Fatalf("%+v %+v", st, st.Err)
		}
		if _, err := os.Stat(filepath.Join(s.dir, file)); err == nil {
			t.Fatal("the file has its name already")
		}
	}
	if kills < 3 {
		t.Errorf("%d kills", kills)
	}
	s.fast()
	a := s.start(model, true)
	defer a.Release()
	if st := s.end(a); st.Status != Finished {
		t.Fatalf("%+v", st.Err)
	}
	s.whole()
}

// TestFailures: names that lead elsewhere are refused, and failures say what to do.
func TestFailures(t *testing.T) {
	s := newSite(t, 100_000, nil)
	for _, c := range []struct {
		name string
		kind Kind
		want string
	}{
		{"hf.co/owner/none", KindNotFound, "owner/none"},
		{"hf.co/owner/name:Q8_0", KindNotFound, "Q8_0"},
		{"../../etc/passwd", KindName, "no name of a model"},
		{"hf.co/owner/name/../../x.gguf", KindName, "no name"},
		{"file:///etc/passwd", KindName, "no source"},
		{"", KindName, "no name"},
		{strings.Repeat("x", 5000), KindName, "no name"},
		{"hf.co/owner/na\nme", KindName, "no name"},
	} {
		a, err := s.Start(c.name, c.name, true)
		if err == nil {
			st := s.end(a)
			a.Release()
			err = st.Err
			if st.Err == nil {
				t.Errorf("%.60q was downloaded", c.name)
				continue
			}
		}
		f, _ := errors.AsType[*Failure](err)
		if f == nil || f.Kind != c.kind || !strings.Contains(f.Text, c.want) {
			t.Errorf("%.60q: %+v", c.name, err)
		}
	}
}

// TestFullDisk: a disk without room fails the download with what to do, and leaves nothing half. The process's limit of
// a file's size stands for the disk.
func TestFullDisk(t *testing.T) {
	s := newSite(t, 3<<20, func(c *Config) {
		exe, _ := os.Executable()
		p := &Program{Path: "/bin/sh", Args: []string{"-c", "ulimit -f 1024; exec \"$0\" " + Arg, exe}}
		c.Pull = p.Pull
	})
	a := s.start(model, true)
	defer a.Release()
	st := s.end(a)
	if st.Status != Failed || st.Err.Kind != KindSpace && st.Err.Kind != KindOther || st.Err.Text == "" {
		t.Fatalf("%+v %+v", st, st.Err)
	}
	t.Log(st.Err.Text)
	if _, err := os.Stat(filepath.Join(s.dir, file)); err == nil {
		t.Error("the file is there")
	}
}

// TestManyDownloads: so many run, so many wait, and more are refused.
func TestManyDownloads(t *testing.T) {
	let := make(chan struct{})
	m := NewManager(Config{Job: func(name string) (Job, error) { return Job{Name: name}, nil },
		Pull: func(ctx context.Context, j Job, tell func(*Event)) (*Done, error) {
			select {
			case <-let:
				return &Done{Name: j.Name, Files: []string{"x"}}, nil
			case <-ctx.Done():
				return nil, failure(KindCanceled, "canceled")
			}
		}})
	defer m.Close()
	var tickets []*Ticket
	for i := range MaxRunning + MaxWaiting {
		ticket, err := m.Start(fmt.Sprintf("model%d", i), "", true)
		if err != nil {
			t.Fatal(i, err)
		}
		tickets = append(tickets, ticket)
	}
	waitfor.True(t, "all run that may", func() bool {
		c := m.Counts()
		return c.Running == MaxRunning && c.Waiting == MaxWaiting
	})
	_, err := m.Start("another", "", true)
	if f, _ := errors.AsType[*Failure](err); f == nil || f.Kind != KindBusy {
		t.Errorf("%v", err)
	}
	if !m.Cancel(t.Context(), "model19") {
		t.Error("one that waits is not canceled")
	}
	close(let)
	waitfor.True(t, "all have ended", func() bool { c := m.Counts(); return c.Running+c.Waiting == 0 })
	for _, ticket := range tickets {
		ticket.Release()
	}
	if c := m.Counts(); c.Finished+c.Canceled != MaxRunning+MaxWaiting {
		t.Errorf("%+v", c)
	}
	for i := range 3 * maxEnded {
		ticket, err := m.Start(fmt.Sprintf("more%d", i), "", true)
		if err != nil {
			t.Fatal(err)
		}
		waitfor.True(t, "it has ended", func() bool { st, _ := ticket.State(); return !st.Status.Runs() })
		ticket.Release()
	}
	if n := len(m.List()); n > maxEnded {
		t.Errorf("%d are remembered", n)
	}
	m.Close()
	if _, err := m.Start("late", "", true); err == nil {
		t.Error("after the end")
	}
}

// TestCloseEndsProcesses: the end of the manager ends the processes, which keep what has arrived.
func TestCloseEndsProcesses(t *testing.T) {
	s := newSite(t, 400_000, nil)
	s.slow()
	a := s.start(model, true)
	s.begun(a)
	s.Close()
	if st := s.end(a); st.Status != Canceled {
		t.Errorf("%+v", st)
	}
	if _, err := os.Stat(filepath.Join(s.dir, file+".state")); err != nil {
		t.Error(err)
	}
}

// TestHostileProcess: a process that writes something else than events fails the download, and is killed.
func TestHostileProcess(t *testing.T) {
	for text, want := range map[string]string{
		"nonsense":                               "what is no event",
		`{"progress":{"done":5,"total":1}}`:      "a progress that cannot be",
		`{"chosen":{"bytes":-1}}`:                "a choice that cannot be",
		`{"done":{"files":[]}}`:                  "a result that cannot be",
		strings.Repeat("x", maxLineBytes+10):     "a line of more than",
		`{"note":"x"}`:                           "without a result",
		`{"failed":{"kind":"space","text":"x"}}`: "x",
	} {
		path := filepath.Join(t.TempDir(), "text")
		if err := os.WriteFile(path, []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		p := &Program{Path: "/bin/sh", Args: []string{"-c", "cat '" + path + "'"}}
		_, err := p.Pull(t.Context(), Job{Name: "x"}, func(*Event) {})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40s: %v", text, err)
		}
	}
	p := &Program{Path: filepath.Join(t.TempDir(), "none")}
	if _, err := p.Pull(t.Context(), Job{}, nil); err == nil || !strings.Contains(err.Error(), "start a download") {
		t.Errorf("%v", err)
	}
}

// TestProcessWithoutItsParent: the process ends when the one that has started it is gone.
func TestProcessWithoutItsParent(t *testing.T) {
	s := newSite(t, 400_000, nil)
	s.slow()
	exe, _ := os.Executable()
	cmd := exec.CommandContext(t.Context(), exe, Arg)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	var out lockedBuffer
	cmd.Stdout = &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(in, `{"name":%q,"dir":%q,"endpoint":%q}`+"\n", model, s.dir, s.url)
	waitfor.True(t, "it downloads", func() bool { return strings.Contains(out.String(), `"progress"`) })
	in.Close()
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if !strings.Contains(out.String(), `"kind":"canceled"`) {
		t.Errorf("%s", out.String())
	}
	for _, text := range []string{"", "nonsense\n", strings.Repeat("x", maxJobBytes+1)} {
		if err := Run(strings.NewReader(text), &out); err == nil {
			t.Errorf("%.20q", text)
		}
	}
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// FuzzEvent: whatever the process writes is an event or an error, and within its limits.
func FuzzEvent(f *testing.F) {
	for _, text := range []string{`{"chosen":{"name":"x","files":["a"],"sums":["s"],"bytes":1}}`,
		`{"progress":{"file":"a","done":1,"total":2}}`, `{"note":"é"}`,
		`{"done":{"name":"x","files":["/a"],"bytes":1}}`,
		`{"failed":{"kind":"space","text":"full"}}`, `{}`, `[`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		e, err := parseEvent(line)
		if err != nil {
			return
		}
		if len(e.Note) > maxText+3 || e.Failed != nil && len(e.Failed.Text) > maxText+3 ||
			e.Progress != nil && e.Progress.Done > e.Progress.Total || e.Done != nil && len(e.Done.Files) == 0 {
			t.Errorf("%+v", e)
		}
	})
}

func TestLinkedFolders(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	if err := os.Symlink(other, filepath.Join(dir, "hf.co")); err != nil {
		t.Fatal(err)
	}
	if got := linked(dir, "hf.co/owner/name"); len(got) != 1 || got[0] != other {
		t.Errorf("%q", got)
	}
	if got := linked(dir, "ollama.com/library/x"); got != nil {
		t.Errorf("%q", got)
	}
}
