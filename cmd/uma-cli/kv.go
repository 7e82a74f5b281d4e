package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/uma-serve/uma-serve/cmd/uma-cli/internal/inspect"
	"github.com/uma-serve/uma-serve/internal/cli/ui"
	"github.com/uma-serve/uma-serve/internal/wireclient"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/reports"
)

func newKV(dial dialer) *cobra.Command {
	var asJSON, tree, all bool
	cmd := &cobra.Command{
		Use:   "kv",
		Short: "Show the KV cache: its entries, owners and tiers",
		Long: `Show the KV cache: every running sequence and every cached prefix, with its tokens and bytes, its tier
(device, host, disk, fabric), its owner, its age, and the reason it is cached.

  CLASS  eviction order: prefix (cached and idle; evicted first), think_complete, think_active, output_critical
  OWN    the TOKENS that no other entry shares; drop frees these
  IN     tokens restored from a tier; OUT: tokens stored to it

On a terminal the table is cut to the window: prefix names to 8 digits, and columns and rows that do not fit are left
out. --all, a pipe and --json show everything. On a terminal --tree prints the tree directly below the summary.

drop, pin, unpin and save take a NAME. Users see only their own entries; root and the daemon's user see all.`,
		Example: `  uma-cli kv
  uma-cli kv --tree              # with the prefix tree: who shares which cells
  uma-cli kv pin 12              # protect prefix 12 from eviction
  uma-cli kv drop all
  uma-cli kv --json | jq '.tiers'`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef("unknown command %q; uma-cli kv has drop, pin, unpin and save", args[0])
			}
			return query(cmd, dial, asJSON, wireclient.Question{Kind: wire.KindKV, KV: wire.KVQuestion{Tree: tree}},
				func(out *ui.Terminal, r *reports.KVReport) (string, error) { return inspect.KV(out, r, all), nil })
		},
	}
	cmd.Flags().BoolVar(&tree, "tree", false, "also print the prefix tree: one line per run of cells, below the run "+
		"it continues")
	cmd.Flags().BoolVarP(&all, "all", "a", false, "show everything, even if it does not fit the window")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the daemon's answer as one line of JSON")
	cmd.Flags().SortFlags = false
	const target = `

TARGET is a NAME from uma-cli kv, a unique prefix of a hash (4 digits or more), or all.`
	cmd.AddCommand(
		newKVDo(dial, wire.KVDrop, "Remove a cached prefix and its copies in memory, on disk and in the fabric",
			"Remove a cached prefix and its copies in memory, on disk and in the --fabric; with all also the files of "+
				"other\nmodels in --cache-dir, and thoughts in memory. The next prompt that begins with it is "+
				"computed again. Cells that\nanother prefix shares stay. The command returns when the copies are "+
				"removed, or lists the rest."+target),
		newKVDo(dial, wire.KVPin, "Protect a cached prefix from eviction", "Protect a cached prefix, such as a long "+
			"system prompt, from eviction until it is unpinned or dropped. Pinned cells are\nunavailable to other "+
			"requests."+target),
		newKVDo(dial, wire.KVUnpin, "Make a pinned prefix evictable again", "Make a pinned prefix evictable again."+
			target),
		newKVDo(dial, wire.KVSave, "Write a cached prefix to disk or fabric", "Write a cached prefix to the slowest "+
			"configured tier (--cache-dir, --fabric), so that it survives a restart. Without\neither it is copied to "+
			"host memory (--cache-ram) only."+target),
	)
	return cmd
}

// kvTimeout bounds a command that may wait for a disk and a fabric; the daemon waits a minute for them.
const kvTimeout = 75 * time.Second

func newKVDo(dial dialer, op wire.KVOp, short, long string) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: op.String() + " TARGET", Short: short, Long: long,
		Example:           "  uma-cli kv " + op.String() + " 12\n  uma-cli kv " + op.String() + " all",
		ValidArgsFunction: completeTargets(dial),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) != 1:
				return usagef("kv %s takes one TARGET, not %d; uma-cli kv shows the names", op, len(args))
			case args[0] == "" || len(args[0]) > wire.MaxTargetBytes:
				return usagef("the TARGET has %d bytes; it must have 1…%d", len(args[0]), wire.MaxTargetBytes)
			}
			q := wireclient.Question{Kind: wire.KindKV, KV: wire.KVQuestion{Op: op, Target: args[0]}}
			return query(cmd, dial, asJSON, q,
				func(_ *ui.Terminal, done *reports.KVDone) (string, error) { return clean(done.Text) + "\n", nil })
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the daemon's answer as one line of JSON")
	return cmd
}
