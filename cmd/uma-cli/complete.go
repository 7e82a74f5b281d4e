package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/uma-serve/uma-serve/ipc/wire"
)

// completeWords lets the shell complete a flag's value from words.
func completeWords(cmd *cobra.Command, flag string, words ...string) {
	must(cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)))
}

// completeDefaults keeps the shell from offering files where none are meant, in cmd and all below it.
func completeDefaults(cmd *cobra.Command) {
	if cmd.ValidArgsFunction == nil && len(cmd.ValidArgs) == 0 {
		cmd.ValidArgsFunction = cobra.NoFileCompletions
	}
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if _, ok := cmd.GetFlagCompletionFunc(f.Name); !ok && f.Name != "socket" && f.Name != "file" &&
			f.Value.Type() != "bool" {
			must(cmd.RegisterFlagCompletionFunc(f.Name, cobra.NoFileCompletions))
		}
	})
	for _, sub := range cmd.Commands() {
		completeDefaults(sub)
	}
}

// must panics on errors that only a mistake in this program can cause.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

// askTimeout is the longest time for which completion and the version command wait for the daemon. Tests raise it.
var askTimeout = time.Second

// completeTargets completes the names that kv's commands take, with those of the daemon.
func completeTargets(dial dialer) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		words := []string{cobra.CompletionWithDesc("all", "all cached prefixes")}
		ctx, cancel := withTimeout(cmd.Context(), askTimeout)
		defer cancel()
		c, err := dial(ctx)
		if err != nil {
			return words, cobra.ShellCompDirectiveNoFileComp
		}
		defer c.Close()
		report, err := c.KV(ctx, false)
		if err != nil {
			return words, cobra.ShellCompDirectiveNoFileComp
		}
		for i := range report.Entries {
			e := &report.Entries[i]
			words = append(words,
				cobra.CompletionWithDesc(clean(e.Name), clean(e.Kind+", "+e.Tier.String()+": "+e.Why)))
		}
		return words, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeRequests completes the ids that why takes, with those of the daemon.
func completeRequests(dial dialer) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := withTimeout(cmd.Context(), askTimeout)
		defer cancel()
		c, err := dial(ctx)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		defer c.Close()
		report, err := c.Why(ctx, wire.WhyQuestion{Last: wire.MaxLast})
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var words []string
		for i := range report.Requests {
			r := &report.Requests[i]
			words = append(words, cobra.CompletionWithDesc(fmt.Sprintf("#%d", r.Number), clean(r.Request+" "+r.State)))
		}
		return words, cobra.ShellCompDirectiveNoFileComp
	}
}
