package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/uma-serve/uma-serve/cmd/uma-cli/internal/inspect"
	"github.com/uma-serve/uma-serve/internal/cli/ui"
	"github.com/uma-serve/uma-serve/internal/wireclient"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/reports"
)

func newWhy(dial dialer) *cobra.Command {
	var asJSON bool
	last := 1
	cmd := &cobra.Command{
		Use:   "why [ID]",
		Short: "Explain the daemon's decisions about a request",
		Long: `Explain the daemon's decisions about a request: why it waited, why its prompt was computed in chunks of
that size, why its thinking ended, why a part of its prompt was computed again.

ID is the id that the client gave the request (every remembered request with that id is shown), the id of an HTTP answer
(chatcmpl-…, cmpl-…), or #N, the daemon's number of the request. Without ID: the newest request, or the newest N of
--last, including running ones. The times on the left count from the request's arrival. Users see only their own
requests; root and the daemon's user see all.`,
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
				return usagef("why takes either an ID or --last")
			case len(args) == 1 && (args[0] == "" || len(args[0]) > wire.MaxIDBytes):
				return usagef("the ID has %d bytes; it must have 1…%d", len(args[0]), wire.MaxIDBytes)
			case len(args) == 1:
				q = wire.WhyQuestion{Request: args[0]}
			case last < 1 || last > wire.MaxLast:
				return usagef("--last is %d; it must be 1…%d", last, wire.MaxLast)
			}
			return query(cmd, dial, asJSON, wireclient.Question{Kind: wire.KindWhy, Why: q},
				func(out *ui.Terminal, report *reports.WhyReport) (string, error) {
					if q.Request != "" && len(report.Requests) == 0 {
						return "", fmt.Errorf("no request %q of yours is remembered; the daemon remembers running "+
							"requests "+
							"and the %d that ended last", q.Request, wire.MaxLast)
					}
					return inspect.Why(out, report), nil
				})
		},
	}
	cmd.Flags().IntVar(&last, "last", last, "show the newest `N` requests (1…64)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the daemon's answer as one line of JSON")
	cmd.Flags().SortFlags = false
	return cmd
}
