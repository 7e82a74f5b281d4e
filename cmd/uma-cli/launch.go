package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/uma-serve/uma-serve/client"
	"github.com/uma-serve/uma-serve/cmd/uma-cli/internal/chat"
	"github.com/uma-serve/uma-serve/cmd/uma-cli/internal/launch"
	"github.com/uma-serve/uma-serve/internal/portproxy"
	"github.com/uma-serve/uma-serve/internal/wireclient"
	"github.com/uma-serve/uma-serve/ipc/tcpaddr"
	"github.com/uma-serve/uma-serve/ipc/wire/reports"
)

// launching has the flags of "launch".
type launching struct {
	model  string
	listen string
	print  bool
	yes    bool
}

func newLaunch(dial dialer, address *string) *cobra.Command {
	l := &launching{}
	cmd := &cobra.Command{
		Use:   "launch [flags] PROGRAM [ARGUMENT]...",
		Short: "Start a coding agent or a chat program that uses the daemon",
		Long: `Start a coding agent or a chat program that uses the daemon, with the settings that it needs: address,
model, size of the context and of an answer.

Programs: ` + programNames() + `

A daemon that does not run is started, and ends with the program. The program reaches it on a loopback port, as with
uma-cli proxy. Settings are environment variables, arguments and files of this launch, which end with it. Three programs
read none of these (openclaw, crush, cline): for them a member is set in the user's settings file, after a question, and
taken out again when the program ends. The file before is kept beside it as FILE.uma-launch-backup meanwhile; the next
launch restores it if this one was killed.

Flags come before PROGRAM; what follows it are its arguments.

Exit status: the program's; 128 + N when signal N ended it; 126 or 127 when it cannot be started; 3 no daemon.`,
		Example: `  uma-cli launch claude
  uma-cli launch --model qwen3:8b codex exec "Fix the test"
  uma-cli launch --print opencode               # what would be set; nothing is started`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usagef("name a program: %s", strings.Join(launch.Names(), ", "))
			}
			return nil
		},
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveDefault
			}
			return launch.Names(), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error { return l.run(cmd.Context(), dial, *address, args) },
	}
	cmd.Flags().StringVar(&l.model, "model", "", "`NAME` of a served model (default: the daemon's)")
	cmd.Flags().BoolVar(&l.print, "print", false, "print what would be set, and start nothing")
	cmd.Flags().BoolVarP(&l.yes, "yes", "y", false, "change a settings file without asking")
	cmd.Flags().StringVar(&l.listen, "listen", "127.0.0.1:0", "loopback `ADDRESS:PORT` or port; "+
		"port 0 = any free port")
	cmd.Flags().SortFlags = false
	cmd.Flags().SetInterspersed(false)
	return cmd
}

// programNames returns the names of the programs, on lines as long as those of the help.
func programNames() string {
	var b strings.Builder
	length := len("Programs: ")
	for i, name := range launch.Names() {
		switch {
		case i > 0 && length+len(name) > 100:
			b.WriteString(",\n")
			length = 0
		case i > 0:
			b.WriteString(", ")
		}
		b.WriteString(name)
		length += len(name) + len(", ")
	}
	return b.String()
}

func (l *launching) run(ctx context.Context, dial dialer, address string, args []string) (err error) {
	p, ok := launch.Find(args[0])
	if !ok {
		return usagef("there is no program %q to launch; those that there are: %s (any other that reads "+
			"OPENAI_BASE_URL: uma-cli proxy -- %s)", args[0], strings.Join(launch.Names(), ", "), args[0])
	}
	addr, err := tcpaddr.Parse(l.listen)
	if err != nil {
		return usagef("--listen %w", err)
	}
	if !addr.Addr().IsLoopback() {
		return usagef("--listen %s is no loopback address", addr)
	}
	if _, err := exec.LookPath(p.Binary); err != nil && !l.print {
		return fmt.Errorf("%s is not installed: %s", p.Binary, p.Install)
	}
	t := &launch.Target{}
	if err := places(t); err != nil {
		return err
	}
	remove, err := launch.MakeDir(t, os.Getenv("XDG_RUNTIME_DIR"))
	if err != nil {
		return err
	}
	defer remove()
	defer func() {
		if errors.Is(err, context.Canceled) {
			err = chat.ErrInterrupt
		}
	}()
	// Until the program runs, a signal ends this, and not the process: a daemon that was started ends with it. It is
	// held back while files are restored.
	ctx, release := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	socket, stop, err := l.daemon(ctx, dial, address, t.Dir)
	if err != nil {
		release()
		return err
	}
	defer stop()
	defer release()
	web := client.HTTP(socket)
	if err := l.choose(ctx, web, t); err != nil {
		return err
	}
	forward := web.Transport
	port, err := portproxy.Listen(addr, forward)
	if err != nil {
		return fmt.Errorf("--listen %s: %w", addr, err)
	}
	defer port.Close()
	t.URL, t.Key = port.URL(), port.ClientKey()
	plan := p.Plan(t, args[1:])
	if l.print {
		_, err := fmt.Print(plan.String())
		return err
	}
	for _, f := range plan.Own {
		if err := os.WriteFile(f.Path, []byte(f.Text), 0o600); err != nil {
			return err
		}
	}
	for _, f := range plan.Merge {
		if err := l.consent(ctx, f); err != nil {
			return err
		}
		s, changeErr := launch.Change(f)
		if errors.Is(changeErr, launch.ErrNotJSON) {
			return fmt.Errorf("%w, so that it is not changed here; add this to it, and start %s yourself behind "+
				"uma-cli proxy --listen PORT:\n%s", changeErr, p.Name, f.Text)
		}
		if changeErr != nil {
			return changeErr
		}
		defer func() { err = errors.Join(err, s.Restore()) }()
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	go port.Serve()
	return runBeside("launch", plan.Command, environ(plan.Env, plan.Unset))
}

// environ returns the environment of a program: this one's with other values, and without the variables of unset.
func environ(env, unset []string) []string {
	own := slices.DeleteFunc(os.Environ(), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return slices.Contains(unset, name)
	})
	return append(own, env...)
}

// places finds the user's folders.
func places(t *launch.Target) (err error) {
	if t.Home, err = os.UserHomeDir(); err != nil {
		return err
	}
	if t.Config = os.Getenv("XDG_CONFIG_HOME"); !filepath.IsAbs(t.Config) {
		t.Config = filepath.Join(t.Home, ".config")
	}
	return nil
}

// consent asks the user whether a settings file may be changed.
func (l *launching) consent(ctx context.Context, f launch.File) error {
	if l.yes {
		return nil
	}
	if !isTerminal(os.Stdin) || !isTerminal(os.Stderr) {
		return usagef("%s would be changed while the program runs: --yes allows it, --print shows what is set", f.Path)
	}
	fmt.Fprintf(os.Stderr, "%s\nis set in %s while the program runs, and taken out again when it ends. Go on? [y/N] ",
		strings.TrimSpace(f.Text), f.Path)
	answers := make(chan string, 1)
	go func() {
		answer, _ := bufio.NewReader(os.Stdin).ReadString('\n')
		answers <- answer
	}()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case answer := <-answers:
		if answer == "" {
			return errors.New("no answer; nothing was changed")
		}
		if a := strings.ToLower(strings.TrimSpace(answer)); a != "y" && a != "yes" {
			return errors.New("nothing was changed")
		}
		return nil
	}
}

// daemon returns the socket of a daemon that answers, one that is started if there is none. stop ends that one.
func (l *launching) daemon(ctx context.Context, dial dialer, address, dir string) (string, func(), error) {
	c, err := dial(ctx)
	if err == nil {
		defer c.Close()
		return c.Socket(), func() {}, nil
	}
	if !errors.Is(err, wireclient.ErrNoDaemon) || l.print {
		return "", nil, err
	}
	socket, bad := socketPath(address)
	if bad != nil {
		return "", nil, bad
	}
	program := "uma-serve"
	if self, err := os.Executable(); err == nil {
		if beside := filepath.Join(filepath.Dir(self), program); isProgram(beside) {
			program = beside
		}
	}
	if _, err := exec.LookPath(program); err != nil {
		return "", nil, fmt.Errorf("no daemon answers on %s, and uma-serve is not installed beside uma-cli: %w", socket,
			wireclient.ErrNoDaemon)
	}
	args := []string{"--socket", socket}
	if l.model != "" {
		args = append(args, "-m", l.model)
	}
	stop, err := startDaemon(ctx, dial, filepath.Join(dir, "uma-serve.log"), program, args)
	return socket, stop, err
}

func isProgram(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// startDaemon starts a daemon and waits until it answers.
func startDaemon(ctx context.Context, dial dialer, logPath, program string, args []string) (func(), error) {
	log, err := os.OpenFile(logPath, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	child := exec.Command(program, args...)
	child.Stdout, child.Stderr = log, log
	child.SysProcAttr = apart() // Ctrl-C is for the program
	fmt.Fprintf(os.Stderr, "uma-cli: launch: no daemon answers: starting %s %s\n", program, strings.Join(args, " "))
	if err := child.Start(); err != nil {
		return nil, err
	}
	ended := make(chan error, 1)
	go func() { ended <- child.Wait() }()
	stop := func() {
		if child.Process.Signal(syscall.SIGTERM) == nil {
			<-ended
		}
	}
	for {
		c, err := dial(ctx)
		if err == nil {
			c.Close()
			return stop, nil
		}
		select {
		case <-ended:
			text, _ := os.ReadFile(logPath) // its end says why
			return nil, fmt.Errorf("the daemon has ended: %s", lastLine(string(text)))
		case <-ctx.Done():
			_ = child.Process.Signal(syscall.SIGTERM) // it may have ended
			return nil, ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// lastLine returns the last line of a log.
func lastLine(text string) string {
	text = strings.TrimSpace(text)
	text = text[strings.LastIndexByte(text, '\n')+1:]
	if text == "" {
		return "it has said nothing"
	}
	return text[:min(len(text), 1000)]
}

// maxFacts is the longest answer about models, in bytes.
const maxFacts = 16 << 20

// fetch reads JSON of the daemon.
func fetch(ctx context.Context, web *http.Client, method, path, body string, into any) error {
	req, err := http.NewRequestWithContext(ctx, method, "http://uma"+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := web.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: the daemon answers with status %d", path, resp.StatusCode)
	}
	return json.NewDecoder(io.LimitReader(resp.Body, maxFacts)).Decode(into)
}

// choose picks the model, and finds the size of its context.
func (l *launching) choose(ctx context.Context, web *http.Client, t *launch.Target) error {
	var list reports.ServedModels
	for { // a daemon lists no model while it loads its only one
		if err := fetch(ctx, web, http.MethodGet, "/v1/models", "", &list); err != nil {
			return err
		}
		if len(list.Data) > 0 {
			break
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
	i := 0
	if l.model != "" {
		i = slices.IndexFunc(list.Data, func(m reports.ServedModel) bool {
			return m.ID == l.model || slices.Contains(m.Aliases, l.model)
		})
	}
	if i < 0 {
		var names []string
		for _, m := range list.Data {
			names = append(names, m.ID)
		}
		return usagef("--model %q is not served; those that are: %s", l.model, strings.Join(names, ", "))
	}
	m := &list.Data[i]
	t.Model, t.Context = m.ID, m.Meta.Context
	if t.Context == 0 {
		t.Context = m.Meta.TrainContext
	}
	var show struct{ Capabilities []string }
	if fetch(ctx, web, http.MethodPost, "/api/show", `{"model":`+quoted(m.ID)+`}`, &show) == nil {
		t.Thinks = slices.Contains(show.Capabilities, "thinking")
		if !slices.Contains(show.Capabilities, "tools") {
			fmt.Fprintf(os.Stderr, "uma-cli: launch: the chat template of %s has no tools: agents may not work with "+
				"it\n", m.ID)
		}
	}
	return nil
}

func quoted(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic("uma-cli: launch: " + err.Error()) // a string
	}
	return string(b)
}
