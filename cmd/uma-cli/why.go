package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/uma-serve/uma-serve/client"
	"github.com/uma-serve/uma-serve/internal/insideview"
	"github.com/uma-serve/uma-serve/internal/ui"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

func newWhy(dial dialer) *cobra.Command {
	var asJSON bool
	last := 1
	cmd := &cobra.Command{
		Use:   "why [ID]",
		Short: "The reasons behind a request's life",
		Long: `The reasons behind a request's life: why it waited, why its prompt went in pieces of that size, why its
thinking was ended, why a part of its prompt had to be computed again.

ID is the request's own, as its client named it (all that the daemon remembers of that name are shown), the id of the
answer to an HTTP client (chatcmpl-…, cmpl-…), or #N, the daemon's number for it. Without ID: the newest request, or the newest N of --last, running ones included. Times on the
left count from the request's arrival. A user sees only requests of its own; root and the daemon's user see all.`,
		Example: `  uma-cli why                    # the newest request
  uma-cli why --last 10
  uma-cli why chat-42
  uma-cli why '#1807' --json | jq '.requests[0].decisions'`,
		ValidArgsFunction: completeRequests(dial),
		RunE: func(cmd *cobra.Command, args []string) error {
			q := wire.WhyQuestion{Last: last}
			switch {
			case len(args) > 1:
				return usagef("why takes one ID, not %d", len(args))
			case len(args) == 1 && cmd.Flags().Changed("last"):
				return usagef("why takes an ID or --last, not both")
			case len(args) == 1 && (args[0] == "" || len(args[0]) > wire.MaxIDBytes):
				return usagef("the ID has %d bytes; it must have 1…%d", len(args[0]), wire.MaxIDBytes)
			case len(args) == 1:
				q = wire.WhyQuestion{Request: args[0]}
			case last < 1 || last > wire.MaxLast:
				return usagef("--last is %d; it must be 1…%d", last, wire.MaxLast)
			}
			return query(cmd, dial, asJSON, client.Question{Kind: wire.KindWhy, Why: q},
				func(out *ui.Terminal, report *wire.WhyReport) (string, error) {
					if q.Request != "" && len(report.Requests) == 0 {
						return "", fmt.Errorf("nothing is remembered of a request %q of yours; the daemon remembers those that "+
							"run and the %d that ended last", q.Request, wire.MaxLast)
					}
					return insideview.Why(out, report), nil
				})
		},
	}
	cmd.Flags().IntVar(&last, "last", last, "the newest `N` requests (1…64)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the daemon's answer as one line of JSON")
	cmd.Flags().SortFlags = false
	return cmd
}
