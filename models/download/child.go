package download

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"

	"github.com/uma-serve/uma-serve/internal/cli/clierr"
	"github.com/uma-serve/uma-serve/internal/host/sandbox"
	"github.com/uma-serve/uma-serve/models/pull"
)

// Arg is the argument with which a program runs as the process of a download.
const Arg = "download-process"

// maxJobBytes bounds the line with a Job.
const maxJobBytes = 64 << 10

// Run is the process of a download: it reads a Job from in, downloads the model and writes Events to out. The end of in
// ends the download; what has arrived is kept. Failures are written to out and are no error.
func Run(in io.Reader, out io.Writer) error {
	r := bufio.NewReaderSize(in, maxJobBytes)
	line, err := r.ReadSlice('\n')
	if err != nil {
		return fmt.Errorf("%s is started by uma-serve itself, with a line that says what to download: %w", Arg, err)
	}
	var job Job
	if err := json.Unmarshal(line, &job); err != nil {
		return fmt.Errorf("read what to download: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, r) // until the process that started this one has ended, or closes the pipe
		cancel()
	}()
	t := &teller{out: out, cancel: cancel}
	m, err := job.run(ctx, t)
	if err != nil {
		return t.tell(&Event{Failed: failureOf(err)})
	}
	return t.tell(&Event{Done: &Done{Name: m.Name, Files: m.Files, Bytes: m.Bytes}})
}

// teller writes events. When nothing reads them, it cancels the download.
type teller struct {
	mu     sync.Mutex
	out    io.Writer
	cancel func()
}

func (t *teller) tell(e *Event) error {
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, err = t.out.Write(append(line, '\n')); err != nil {
		t.cancel()
	}
	return err
}

// run confines the process and downloads.
func (j *Job) run(ctx context.Context, t *teller) (pull.Model, error) {
	if j.Sandbox {
		missing, err := Confine(j.Name, j.Dir)
		if err != nil {
			return pull.Model{}, err
		}
		for _, m := range missing {
			_ = t.tell(&Event{Note: "not confined: " + m})
		}
	}
	p, err := pull.New(pull.Config{Endpoint: j.Endpoint, Token: j.Token, AllowHosts: j.Hosts, Memory: j.Memory,
		Agent: j.Agent, Observer: pull.Observer{
			Chosen: func(c pull.Choice) {
				_ = t.tell(&Event{Chosen: &Choice{Name: c.Name, Files: c.Files, Sums: c.Sums, Bytes: c.Bytes,
					Why: c.Why}})
			},
			Progress: func(p pull.Progress) {
				_ = t.tell(&Event{Progress: &Progress{File: p.File, Done: p.Done, Total: p.Total}})
			},
			Note: func(text string) { _ = t.tell(&Event{Note: text}) },
		}})
	if err != nil {
		return pull.Model{}, err
	}
	return p.Pull(ctx, j.Name, j.Dir)
}

// failureOf converts the error of a pull.
func failureOf(err error) *Failure {
	for _, k := range kinds {
		if errors.Is(err, k.err) {
			return &Failure{k.kind, clierr.Text(err)}
		}
	}
	return &Failure{KindOther, clierr.Text(err)}
}

// netFiles are the files that name servers and trusted certificates are read from, and the libraries that read them.
var netFiles = []string{"/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf", "/etc/gai.conf", "/etc/services",
	"/etc/host.conf", "/etc/ssl", "/etc/pki", "/etc/ca-certificates", "/usr/share/ca-certificates",
	"/usr/local/share/ca-certificates", "/etc/localtime", "/usr/share/zoneinfo", "/dev/urandom", "/proc/self",
	"/proc/meminfo", "/proc/sys/net", "/sys/fs/cgroup", "/run/systemd/resolve", "/lib", "/lib64", "/usr/lib",
	"/usr/lib64"}

// Confine confines this process for the download of a model into dir, which it makes if it is missing: from now on the
// process writes below dir alone, starts no program and reaches no other process. It returns the confinements that the
// kernel lacks.
func Confine(name, dir string) (missing []string, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, &pull.Error{Kind: pull.ErrFile, What: "the models folder cannot be made", Err: err,
			Do: "choose another one with --models-dir, or correct the permissions"}
	}
	p := sandbox.Policy{Read: append([]string{}, netFiles...), Write: []string{dir, "/dev/null"}, Network: true}
	for _, variable := range []string{"SSL_CERT_FILE", "SSL_CERT_DIR"} {
		if path := os.Getenv(variable); path != "" {
			p.Read = append(p.Read, filepath.SplitList(path)...)
		}
	}
	if ref, err := pull.Parse(name); err == nil {
		p.Write = append(p.Write, linked(dir, ref.Folder())...)
	}
	held, err := sandbox.Enter(p)
	if err != nil {
		return nil, err
	}
	for _, m := range held.Missing {
		if m != networkAllowed {
			missing = append(missing, m)
		}
	}
	return missing, nil
}

// networkAllowed is the report of package sandbox on Policy.Network, which a download is about.
const networkAllowed = "network: connections are allowed, as the configuration needs them"

// linked returns the folders outside dir to which links within it lead, on the way to the folder rel (with slashes): a
// person may keep the models of a host on another disk.
func linked(dir, rel string) (out []string) {
	at := dir
	for rel != "" {
		var part string
		part, rel = cutFirst(rel)
		at = filepath.Join(at, part)
		st, err := os.Lstat(at)
		if err != nil {
			return out
		}
		if st.Mode()&os.ModeSymlink == 0 {
			continue
		}
		real, err := filepath.EvalSymlinks(at)
		if err != nil {
			return out
		}
		out, at = append(out, real), real
	}
	return out
}

func cutFirst(rel string) (part, rest string) {
	for i := range len(rel) {
		if rel[i] == '/' {
			return rel[:i], rel[i+1:]
		}
	}
	return rel, ""
}
