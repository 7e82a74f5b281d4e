package download

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

// Program starts the processes of downloads.
type Program struct {
	Path   string
	Args   []string // before which nothing stands: Arg is among them
	Stderr *os.File // nil: this process's
	// Started is told the id of each process; nil = not.
	Started func(pid int)
}

const (
	maxLineBytes = 1 << 20          // of an event: the names of a split model's files
	maxFiles     = 20_000           // of a model
	stopGrace    = 10 * time.Second // for a canceled process to write down what it has
)

// Pull runs the process of a download, and calls tell with its events from one goroutine. Every error is a *Failure.
// When ctx ends, the process is asked to end, and killed if it does not.
func (p *Program) Pull(ctx context.Context, job Job, tell func(*Event)) (*Done, error) {
	cmd := exec.Command(p.Path, p.Args...)
	cmd.Env, cmd.Stderr = environment(os.Environ()), os.Stderr
	if p.Stderr != nil {
		cmd.Stderr = p.Stderr
	}
	cmd.SysProcAttr = ownGroup()
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, failure(KindOther, "start a download: %v", err)
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		in.Close()
		return nil, failure(KindOther, "start a download: %v", err)
	}
	if p.Started != nil {
		p.Started(cmd.Process.Pid)
	}
	hangUp := sync.OnceFunc(func() { in.Close() })
	ended := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		select {
		case <-ended:
			return
		case <-ctx.Done():
		}
		hangUp()
		t := time.NewTimer(stopGrace)
		defer t.Stop()
		select {
		case <-ended:
		case <-t.C:
			_ = cmd.Process.Kill() // fails when it has ended
		}
	})
	line, _ := json.Marshal(job)            // of strings and numbers
	_, werr := in.Write(append(line, '\n')) // fails when it has ended, which reading its output tells
	done, failed, err := read(out, tell)
	if err != nil || werr != nil {
		_ = cmd.Process.Kill()
	}
	hangUp()
	waited := cmd.Wait()
	close(ended)
	watching.Wait()
	switch {
	case done != nil:
		return done, nil
	case ctx.Err() != nil:
		return nil, failure(KindCanceled, "the download of %s was canceled; what has arrived is kept for the next one",
			job.Name)
	case failed != nil:
		return nil, failed
	case err != nil:
		return nil, failure(KindOther, "the download of %s: %v", job.Name, err)
	}
	return nil, failure(KindOther, "the process that downloads %s has ended (%s); ask again: what has arrived is kept",
		job.Name, how(waited))
}

// how says in words how a process has ended.
func how(err error) string {
	if err == nil {
		return "without a result"
	}
	return err.Error()
}

// read reads the events of a process to the last one. The error is one of the process's: what it has written is no
// event.
func read(out io.Reader, tell func(*Event)) (done *Done, failed *Failure, err error) {
	lines := bufio.NewScanner(out)
	lines.Buffer(make([]byte, 4096), maxLineBytes)
	for lines.Scan() {
		e, err := parseEvent(lines.Bytes())
		switch {
		case err != nil:
			return nil, nil, err
		case e.Done != nil:
			done = e.Done
		case e.Failed != nil:
			failed = e.Failed
		default:
			tell(e)
		}
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		return nil, nil, fmt.Errorf("its process has written a line of more than %d bytes", maxLineBytes)
	}
	return done, failed, nil
}

// parseEvent reads an event. A download's process parses what servers of strangers send: its words are checked as
// theirs.
func parseEvent(line []byte) (*Event, error) {
	var e Event
	if err := json.Unmarshal(line, &e); err != nil {
		return nil, errors.New("its process has written what is no event")
	}
	bad := func(what string) (*Event, error) { return nil, fmt.Errorf("its process has written %s", what) }
	if c := e.Chosen; c != nil && (len(c.Files) > maxFiles || len(c.Sums) > len(c.Files) || c.Bytes < 0) {
		return bad("a choice that cannot be")
	}
	if p := e.Progress; p != nil && (p.Done < 0 || p.Total < 0 || p.Done > p.Total) {
		return bad("a progress that cannot be")
	}
	if d := e.Done; d != nil && (len(d.Files) == 0 || len(d.Files) > maxFiles || d.Bytes < 0) {
		return bad("a result that cannot be")
	}
	if f := e.Failed; f != nil {
		f.Text = cut(f.Text)
	}
	e.Note = cut(e.Note)
	return &e, nil
}

// maxText bounds a sentence of a download's process, in bytes.
const maxText = 4 << 10

func cut(text string) string {
	if len(text) <= maxText {
		return text
	}
	n := maxText
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n] + "…"
}

// environment returns the variables that a download needs: those of proxies and certificates. Tokens are in the Job.
func environment(environ []string) (out []string) {
	for _, kv := range environ {
		name, _, _ := strings.Cut(kv, "=")
		switch upper := strings.ToUpper(name); upper {
		case "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR", "PATH", "HOME",
			"TMPDIR", "LANG", "TZ", "GODEBUG", "GOCOVERDIR", "LD_LIBRARY_PATH", "UMA_BACKEND_DIR":
			out = append(out, kv)
		default:
			if strings.HasPrefix(upper, "LC_") {
				out = append(out, kv)
			}
		}
	}
	return out
}
