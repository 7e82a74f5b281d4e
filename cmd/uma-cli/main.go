// Command uma-cli talks to a uma-serve daemon: a chat, single questions for scripts, metrics, health, and facts
// about the daemon and about model files. One verb a file; larger parts are packages below cmd/uma-cli/internal.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/uma-serve/uma-serve/cmd/uma-cli/internal/chat"
	"github.com/uma-serve/uma-serve/internal/cli/clierr"
	"github.com/uma-serve/uma-serve/internal/cli/ui"
	"github.com/uma-serve/uma-serve/internal/wireclient"
)

// Exit statuses.
const (
	exitOK          = 0
	exitError       = 1   // the daemon refused or failed, or something else went wrong
	exitUsage       = 2   // a mistake on the command line or in the environment
	exitNoDaemon    = 3   // nothing answers on the socket
	exitInterrupted = 130 // Ctrl-C, as a shell reports it
)

// usageError is a mistake of the caller.
type usageError struct{ error }

func usagef(format string, a ...any) error { return usageError{fmt.Errorf(format, a...)} }

// exitStatus is an exit status without a message: what there is to say is said.
type exitStatus int

func (e exitStatus) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

func main() {
	os.Exit(report(execute(os.Args[1:]), ui.Open(os.Stderr)))
}

func execute(args []string) error {
	root := newRoot()
	if len(args) > 0 && elsewhere[args[0]] != "" {
		return unknownCommand(root, args[:1]) // before its flags, which are unknown as well
	}
	root.SetArgs(normalizeArgs(args))
	return root.ExecuteContext(context.Background())
}

// report prints the error and a remedy, and returns the exit status.
func report(err error, errOut *ui.Terminal) int {
	var status exitStatus
	var usage usageError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &status):
		return int(status)
	case errors.Is(err, chat.ErrInterrupt):
		return exitInterrupted
	}
	errOut.FreshLine()
	errOut.Println(errOut.Red("uma-cli: ") + ui.Sanitize(clierr.Text(err)))
	if hint := chat.Hint(err, false); hint != "" {
		errOut.Println(hint)
	}
	switch {
	case errors.As(err, &usage):
		errOut.Println("uma-cli --help shows the commands, uma-cli COMMAND --help its flags.")
		return exitUsage
	case errors.Is(err, wireclient.ErrNoDaemon):
		return exitNoDaemon
	}
	return exitError
}

// longNames are llama.cpp's single-dash names of several letters, which pflag would read as a row of one-letter flags.
var longNames = map[string]string{"-ctk": "--cache-type-k", "-ctv": "--cache-type-v", "-sys": "--system",
	"-md": "--draft-model"}

// normalizeArgs rewrites longNames in a command line.
func normalizeArgs(args []string) []string {
	out := make([]string, 0, len(args))
	for i, a := range args {
		if a == "--" {
			return append(out, args[i:]...)
		}
		name, value, hasValue := strings.Cut(a, "=")
		if long, ok := longNames[name]; ok {
			if a = long; hasValue {
				a += "=" + value
			}
		}
		out = append(out, a)
	}
	return out
}
