package agent

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/uma-serve/uma-serve/meridian/fabric/nixl"
)

// Arg is the first argument of a program that is an agent; the fabric's URL is the second.
const Arg = "nixl-agent"

const (
	readyLine = "ready"
	// startLimit is the longest wait for the first agent: loading NIXL and its plugins takes about a second.
	startLimit = 20 * time.Second
	// minRestart and maxRestart bound the pause before an agent that has ended is started again.
	minRestart = 100 * time.Millisecond
	maxRestart = 10 * time.Second
	// goodLife is the age from which on an agent's end does not count as a failure to start.
	goodLife = 2 * time.Second
)

// Main is the agent's program. It ends when stdin does: the process that started it has ended.
func Main(url string, stdin io.Reader, stdout io.Writer, log *slog.Logger) error {
	c, err := nixl.ParseURL(url)
	if err != nil {
		return fmt.Errorf("fabric URL: %w", err)
	}
	if c.Socket == "" {
		return errors.New("fabric URL: option socket is missing")
	}
	// A terminal and systemd signal the whole group, and the daemon still has values to push.
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, stdin)
		cancel()
	}()
	return Run(ctx, c, log, func() { fmt.Fprintln(stdout, readyLine) })
}

// Program starts agents.
type Program struct {
	Path string
	Args []string // before the URL
	URL  string
	Log  *slog.Logger
}

// Start runs an agent until ctx ends, and another one when it ends before. It returns once the first one listens, or
// with the reason why it does not.
func Start(ctx context.Context, p Program) (stopped <-chan struct{}, err error) {
	c, err := nixl.ParseURL(p.URL)
	if err != nil {
		return nil, fmt.Errorf("fabric URL: %w", err)
	}
	ready := make(chan struct{}, 1)
	done, first := make(chan struct{}), make(chan error, 1)
	go func() {
		defer close(done)
		pause := minRestart
		for began := false; ; {
			up := time.Now()
			err := p.once(ctx, c, func() {
				began = true
				select {
				case ready <- struct{}{}:
				default:
				}
			})
			if ctx.Err() != nil {
				return
			}
			if !began {
				first <- err
				return
			}
			if time.Since(up) > goodLife {
				pause = minRestart
			}
			p.Log.Warn("the NIXL agent has ended; its values are lost, and another one starts", "error", err,
				"pause", pause)
			select {
			case <-time.After(pause):
			case <-ctx.Done():
				return
			}
			pause = min(2*pause, maxRestart)
		}
	}()
	select {
	case <-ready:
		return done, nil
	case err := <-first:
		return nil, err
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(startLimit):
		return nil, fmt.Errorf("the NIXL agent does not listen after %v", startLimit)
	}
}

// once runs one agent.
func (p *Program) once(ctx context.Context, c nixl.Config, ready func()) error {
	cmd := exec.Command(p.Path, append(append([]string{}, p.Args...), p.URL)...)
	cmd.Env = environment(c, os.Environ())
	var last tail
	cmd.Stderr = &last
	life, err := cmd.StdinPipe() // the agent ends when this process does
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() {
		life.Close()
		time.AfterFunc(endLimit, func() { _ = cmd.Process.Kill() })
	})()
	for s := bufio.NewScanner(out); s.Scan(); {
		if s.Text() == readyLine {
			ready()
		}
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("%w: %s", err, last.text())
	}
	return errors.New("it ended")
}

// environment adds to an environment what NIXL and UCX need, unless it is set. NIXL finds its plugins beside the
// library. UCX listens on every network interface by default; where peers are on this machine, the loopback interface
// is enough. LD_LIBRARY_PATH begins with the library's folder and loses the folders that have a libibverbs: with
// Debian's, which Mooncake Store needs, NIXL crashes.
func environment(c nixl.Config, env []string) []string {
	add := func(name, value string) {
		if !slices.ContainsFunc(env, func(e string) bool { return strings.HasPrefix(e, name+"=") }) {
			env = append(env, name+"="+value)
		}
	}
	plugins := filepath.Join(filepath.Dir(c.Library), "plugins")
	if _, err := os.Stat(plugins); err == nil {
		add("NIXL_PLUGIN_DIR", plugins)
	}
	if filepath.IsAbs(c.Library) {
		env = withLibraries(filepath.Dir(c.Library), env)
	}
	host, _, _ := net.SplitHostPort(c.Listen)
	if ip := net.ParseIP(host); ip.IsLoopback() {
		add("UCX_NET_DEVICES", "lo")
	}
	return env
}

// withLibraries returns env with folder as the first of LD_LIBRARY_PATH, and without those that have a libibverbs.
func withLibraries(folder string, env []string) []string {
	const name = "LD_LIBRARY_PATH="
	path := []string{folder}
	env = slices.DeleteFunc(slices.Clone(env), func(e string) bool {
		list, ok := strings.CutPrefix(e, name)
		for _, dir := range filepath.SplitList(list) {
			if found, _ := filepath.Glob(filepath.Join(dir, "libibverbs.so*")); ok && len(found) == 0 && dir != "" {
				path = append(path, dir)
			}
		}
		return ok
	})
	return append(env, name+strings.Join(path, string(filepath.ListSeparator)))
}

// endLimit is the time that an agent has for its end.
const endLimit = time.Second

// tail passes what an agent writes on to stderr and keeps the end of it for the error.
type tail struct{ b []byte }

func (t *tail) Write(b []byte) (int, error) {
	const most = 1 << 10
	t.b = append(t.b, b...)
	t.b = t.b[max(0, len(t.b)-most):]
	return os.Stderr.Write(b)
}

func (t *tail) text() string {
	lines := strings.Split(strings.TrimSpace(string(t.b)), "\n")
	return lines[len(lines)-1]
}
