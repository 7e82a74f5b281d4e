package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/uma-serve/uma-serve/cmd/uma-cli/internal/chat"
	"github.com/uma-serve/uma-serve/cmd/uma-cli/internal/lineedit"
	"github.com/uma-serve/uma-serve/internal/cli/ui"
)

func newChat(dial dialer) *cobra.Command {
	settings := chat.DefaultSettings()
	cmd := &cobra.Command{
		Use:   "chat",
		Short: "Chat with the model (the default command)",
		Long: `Chat with the model. /? in the chat lists its commands.

Ctrl-C cancels the running answer. Ctrl-\ ends its thinking, so that the answer begins. Ctrl-Z suspends the chat; fg
resumes it. A pasted text of several lines is one message. Alt-Enter inserts a line break.

The history is saved in $XDG_STATE_HOME/uma-serve/history; UMA_NOHISTORY=1 turns it off.`,
		Example: `  uma-cli chat --system "Answer in one sentence."
  uma-cli chat --temp 0 --hide-thinking
  uma-cli chat --think on --think-budget 512     # limit thinking to 512 tokens
  uma-cli chat --early-exit eat                  # end thinking when the answer has converged`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return converse(cmd.Context(), dial, &settings) },
	}
	addSampling(cmd, &settings)
	addHideThinking(cmd, &settings)
	cmd.Flags().SortFlags = false
	return cmd
}

func addHideThinking(cmd *cobra.Command, settings *chat.Settings) {
	cmd.Flags().BoolVar(&settings.HideThinking, "hide-thinking", false, "show a token counter instead of the model's "+
		"thinking")
}

// converse is a chat on the process's terminal.
func converse(ctx context.Context, dial dialer, settings *chat.Settings) error {
	if err := checkSettings(settings); err != nil {
		return err
	}
	out := ui.Open(os.Stdout)
	c := chat.Config{Dial: dial, Out: out, Settings: *settings}
	var editor *lineedit.Editor
	if isTerminal(os.Stdin) && out.IsTTY() && ui.Capable(os.Getenv) {
		var err error
		editor, err = chat.NewEditor(chat.OpenHistory(chat.HistoryPath(os.Getenv)), chat.Complete)
		if err != nil && !errors.Is(err, errors.ErrUnsupported) { // as on Windows
			return err
		}
	}
	if editor != nil {
		defer editor.Close()
		c.In = editor
		c.Quiet = func() func() {
			return ui.Quiet(os.Stdin, editor.Close, func() { os.Stdout.WriteString(lineedit.PasteOn) })
		}
		restoreOnEnd(editor.Close)
	} else {
		c.In = chat.NewPlainReader(os.Stdin, os.Stdout)
		c.Quiet = func() func() { return ui.Quiet(os.Stdin, nil, nil) }
		restoreOnEnd(func() {})
	}
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, os.Interrupt)
	defer signal.Stop(interrupts)
	endThink := make(chan os.Signal, 1)
	signal.Notify(endThink, syscall.SIGQUIT)
	defer signal.Stop(endThink)
	c.Interrupts, c.EndThink = interrupts, endThink
	return chat.New(c).Run(ctx)
}

// restoreOnEnd puts the terminal back when the process is sent a signal that ends it: a shell whose terminal was left
// in raw mode seems dead.
func restoreOnEnd(leave func()) {
	state, err := term.GetState(int(os.Stdin.Fd()))
	if err != nil {
		return
	}
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM, syscall.SIGHUP)
	go func() {
		s := (<-ended).(syscall.Signal)
		leave()
		term.Restore(int(os.Stdin.Fd()), state)
		os.Exit(128 + int(s))
	}()
}
