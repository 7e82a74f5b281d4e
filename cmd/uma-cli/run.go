package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/uma-serve/uma-serve/cmd/uma-cli/internal/ask"
	"github.com/uma-serve/uma-serve/cmd/uma-cli/internal/chat"
	"github.com/uma-serve/uma-serve/internal/cli/ui"
)

func newRun(dial dialer) *cobra.Command {
	q := question{Options: ask.Options{Settings: chat.DefaultSettings()}}
	cmd := &cobra.Command{
		Use:   "run [PROMPT]",
		Short: "Send one prompt and print the answer",
		Long: `Send one prompt and print the answer as plain text on standard output.

The prompt is the arguments, then --file contents, then standard input. Thinking is printed dim on standard error if
that is a terminal, and left out otherwise. Ctrl-C cancels the answer. Ctrl-\ ends the thinking, so that the answer
begins.

Exit status: 0 answered · 1 refused or failed · 2 wrong usage · 3 no daemon · 130 interrupted.`,
		Example: `  uma-cli run "Why is the sky blue?"
  cat report.txt | uma-cli run "Summarise in three points"
  uma-cli run --file main.go --file util.go "Find the bug"
  uma-cli run --raw -n 50 "Once upon a time"       # continue a text, without the chat template
  uma-cli run --think low -v "17 * 23?"            # think little; -v prints token counts
  uma-cli run --json --logprobs 3 "Yes or no?"     # one JSON event per line
  uma-cli run --priority background --timeout 10m --file book.txt "Summarise" >summary.txt`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if q.show && q.Settings.HideThinking {
				return usagef("--show-thinking and --hide-thinking contradict each other")
			}
			return q.ask(cmd.Context(), dial, args)
		},
	}
	fs := cmd.Flags()
	fs.StringArrayVarP(&q.Files, "file", "f", nil, "append the text of `FILE` to the prompt; repeatable")
	fs.BoolVar(&q.Raw, "raw", false, "send the text without the model's chat template")
	fs.BoolVar(&q.JSON, "json", false, "print every event as one line of JSON")
	fs.BoolVar(&q.noStream, "no-stream", false, "print the answer only when it is complete")
	fs.BoolVar(&q.show, "show-thinking", false, "print the model's thinking on standard error")
	addHideThinking(cmd, &q.Settings)
	fs.BoolVarP(&q.Verbose, "verbose", "v", false, "print token counts and speed on standard error")
	fs.DurationVar(&q.Timeout, "timeout", 0, "cancel the request after this time, such as 90s; 0 = never")
	addSampling(cmd, &q.Settings)
	fs.IntVar(&q.Settings.Sampling.Logprobs, "logprobs", 0, "with --json: report the log-probabilities of the `N` "+
		"most probable tokens")
	fs.SortFlags = false
	return cmd
}

// question has the flags of run: those of the request, and those of the output.
type question struct {
	ask.Options
	show, noStream bool
}

// ask sends words, and the text on standard input if that is no terminal, and prints the answer.
func (q *question) ask(ctx context.Context, dial dialer, words []string) error {
	o := &q.Options
	o.Words, o.Stream = words, !q.noStream
	if err := checkSettings(&o.Settings); err != nil {
		return err
	}
	if o.Timeout < 0 {
		return usagef("--timeout is %v; it must be 0 (none) or more", o.Timeout)
	}
	out, aside := ui.Open(os.Stdout), ui.Open(os.Stderr)
	if out.IsTTY() && aside.IsTTY() {
		aside = out // one screen, one cursor
	}
	o.ShowThinking = q.show || aside.IsTTY() && !o.Settings.HideThinking
	o.Out, o.Aside = out, aside
	if !isTerminal(os.Stdin) {
		o.Stdin = os.Stdin
	}
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(interrupts)
	o.Interrupts = interrupts
	endThink := make(chan os.Signal, 1)
	signal.Notify(endThink, syscall.SIGQUIT)
	defer signal.Stop(endThink)
	o.EndThink = endThink
	err := ask.Run(ctx, dial, o)
	if usage, ok := err.(ask.UsageError); ok {
		return usageError{usage.Err}
	}
	return err
}
