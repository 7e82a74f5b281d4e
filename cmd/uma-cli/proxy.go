package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/uma-serve/uma-serve/client"
	"github.com/uma-serve/uma-serve/internal/cli/clierr"
	"github.com/uma-serve/uma-serve/internal/portproxy"
	"github.com/uma-serve/uma-serve/ipc/tcpaddr"
)

// Exit statuses of a command that cannot be started, as a shell reports them.
const (
	exitNotExecutable = 126
	exitNotFound      = 127
)

func newProxy(dial dialer) *cobra.Command {
	var listen string
	cmd := &cobra.Command{
		Use:   "proxy [flags] [-- COMMAND [ARGUMENT]...]",
		Short: "Forward a loopback TCP port to the daemon, for programs that cannot open a Unix socket",
		Long: `Forward a loopback TCP port to the daemon, for programs that cannot open a Unix socket.

The proxy listens on a loopback port and forwards HTTP to the daemon's Unix socket. Only processes of your user may use
the port: on Linux the kernel identifies the user of a connection; on other systems requests need the key that the proxy
puts into OPENAI_API_KEY, ANTHROPIC_API_KEY and GEMINI_API_KEY. Web pages of other origins are refused.

With a COMMAND the proxy runs it with these environment variables, passes signals on to it, and ends when it ends:

  OPENAI_BASE_URL, OPENAI_API_BASE   http://127.0.0.1:PORT/v1
  ANTHROPIC_BASE_URL                 http://127.0.0.1:PORT
  GOOGLE_GEMINI_BASE_URL             http://127.0.0.1:PORT
  OLLAMA_HOST, UMA_URL               http://127.0.0.1:PORT
  OPENAI_API_KEY, ANTHROPIC_API_KEY, GEMINI_API_KEY
                                     a placeholder, or the key where one is needed

Without a COMMAND it prints the port's URL on standard output and runs until Ctrl-C or SIGTERM.

Exit status: the command's; 128 + N when signal N ended it; 126 or 127 when it cannot be started; 3 no daemon.`,
		Example: `  uma-cli proxy -- opencode                       # an agent that reads OPENAI_BASE_URL
  uma-cli proxy -- python3 my_openai_script.py
  uma-cli proxy -- sh -c 'curl -s $UMA_URL/v1/models'
  uma-cli proxy --listen 11434 -- ollama list     # the port where ollama's clients look by default
  uma-cli proxy --listen 8080                     # a port until Ctrl-C`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 && cmd.ArgsLenAtDash() != 0 {
				return usagef("put -- before the command: uma-cli proxy -- %s", strings.Join(args, " "))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return proxy(cmd, dial, listen, args) },
	}
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:0", "loopback `ADDRESS:PORT` or port to listen on; port 0 = "+
		"any free port")
	return cmd
}

// proxy serves a port until the command in args, or the user, ends it.
func proxy(cmd *cobra.Command, dial dialer, listen string, args []string) error {
	p, served, closeAll, err := forward(cmd.Context(), dial, listen)
	if err != nil {
		return err
	}
	defer closeAll()
	if len(args) == 0 {
		if isTerminal(os.Stderr) || p.NeedsKey() {
			for _, v := range p.Env() {
				fmt.Fprintln(os.Stderr, "  "+v)
			}
		}
		return awaitEnd(cmd.Context(), p.URL(), served)
	}
	return runBeside("proxy", args, append(os.Environ(), p.Env()...))
}

// forward serves the port of --listen until closeAll. served has the error when the port fails.
func forward(ctx context.Context, dial dialer, listen string) (p *portproxy.Proxy, served <-chan error, closeAll func(),
	err error) {
	addr, err := tcpaddr.Parse(listen)
	if err != nil {
		return nil, nil, nil, usagef("--listen %w", err)
	}
	if !addr.Addr().IsLoopback() {
		return nil, nil, nil, usagef("--listen %s is no loopback address; other machines reach the daemon by its own "+
			"option --listen", addr)
	}
	c, err := dial(ctx) // a daemon that does not answer is reported before a program fails in its own words
	if err != nil {
		return nil, nil, nil, err
	}
	web := client.HTTP(c.Socket())
	c.Close()
	p, err = portproxy.Listen(addr, web.Transport)
	if err != nil {
		if errors.Is(err, syscall.EADDRINUSE) {
			err = errors.New("another program listens there; choose another port, or 0 for any")
		}
		return nil, nil, nil, fmt.Errorf("--listen %s: %w", addr, err)
	}
	ended := make(chan error, 1)
	go func() { ended <- p.Serve() }()
	return p, ended, func() {
		web.CloseIdleConnections()
		p.Close()
	}, nil
}

// awaitEnd prints the address of a proxy and waits for a signal.
func awaitEnd(ctx context.Context, url string, served <-chan error) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	if _, err := fmt.Println(url); err != nil {
		return err
	}
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
		return nil
	}
}

// runBeside runs a command for a verb of uma-cli and returns its exit status. Signals are passed on to it, except those
// that a terminal sends to both.
func runBeside(verb string, args, env []string) error {
	child := exec.Command(args[0], args[1:]...)
	child.Env = env
	child.Stdin, child.Stdout, child.Stderr = os.Stdin, os.Stdout, os.Stderr
	signals := make(chan os.Signal, 8)
	notify(signals, passedSignals)
	defer signal.Stop(signals)
	if err := child.Start(); err != nil {
		status := exitStatus(exitNotExecutable)
		if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
			status = exitNotFound
		}
		fmt.Fprintf(os.Stderr, "uma-cli: %s: %s\n", verb, clierr.Text(err))
		return status
	}
	ended := make(chan error, 1)
	go func() { ended <- child.Wait() }()
	terminal := isTerminal(os.Stdin)
	for {
		select {
		case s := <-signals:
			if terminal && (s == os.Interrupt || s == syscall.SIGQUIT) {
				continue
			}
			_ = child.Process.Signal(s) // it may have ended
		case err := <-ended:
			exit, ok := errors.AsType[*exec.ExitError](err)
			switch {
			case err == nil:
				return nil
			case !ok:
				return err
			}
			if w, ok := exit.Sys().(syscall.WaitStatus); ok && w.Signaled() {
				return exitStatus(128 + int(w.Signal()))
			}
			return exitStatus(exit.ExitCode())
		}
	}
}
