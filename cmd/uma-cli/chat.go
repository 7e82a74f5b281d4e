package main

import (
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/uma-serve/uma-serve/internal/chat"
	"github.com/uma-serve/uma-serve/internal/ui"
)

func newChat(dial dialer) *cobra.Command {
	settings := chat.DefaultSettings()
	cmd := &cobra.Command{
		Use:   "chat",
		Short: "Converse with the model (what uma-cli does without a command)",
		Long: `Converse with the model. /? in the chat lists its commands.

Ctrl-C cancels the answer that is running; Ctrl-\ ends its thinking, and the answer comes.

Lines are kept in $XDG_STATE_HOME/uma-serve/history (UMA_NOHISTORY=1: nowhere).`,
		Example: `  uma-cli chat --system "Answer in one sentence."
  uma-cli chat --temp 0 --hide-thinking
  uma-cli chat --think on --think-budget 512     # think, but not for ever
  uma-cli chat --early-exit eat                  # stop thinking when the answer has settled`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkSettings(&settings); err != nil {
				return err
			}
			out := ui.Open(os.Stdout)
			var in chat.LineReader
			if isTerminal(os.Stdin) && out.IsTTY() && os.Getenv("TERM") != "dumb" {
				in = chat.NewEditor(chat.OpenHistory(chat.HistoryPath(os.Getenv)), chat.Complete)
			} else {
				in = chat.NewPlainReader(os.Stdin, os.Stdout)
			}
			interrupts := make(chan os.Signal, 1)
			signal.Notify(interrupts, os.Interrupt)
			defer signal.Stop(interrupts)
			endThink := make(chan os.Signal, 1)
			signal.Notify(endThink, syscall.SIGQUIT)
			defer signal.Stop(endThink)
			restoreOnEnd()
			return chat.New(chat.Config{
				Dial: dial, In: in, Out: out, Interrupts: interrupts, EndThink: endThink, Settings: settings,
				Quiet: func() func() { return ui.Quiet(os.Stdin) },
			}).Run(cmd.Context())
		},
	}
	addSampling(cmd.Flags(), &settings)
	cmd.Flags().BoolVar(&settings.HideThinking, "hide-thinking", false, "show a counter instead of the model's thinking")
	cmd.Flags().SortFlags = false
	return cmd
}

// restoreOnEnd puts the terminal back when somebody else ends the process: a shell whose terminal was left in raw
// mode seems dead.
func restoreOnEnd() {
	state, err := term.GetState(int(os.Stdin.Fd()))
	if err != nil {
		return
	}
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM, syscall.SIGHUP)
	go func() {
		s := (<-ended).(syscall.Signal)
		term.Restore(int(os.Stdin.Fd()), state)
		os.Exit(128 + int(s))
	}()
}
