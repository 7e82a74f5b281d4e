package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/uma-serve/uma-serve/client"
	"github.com/uma-serve/uma-serve/internal/insideview"
	"github.com/uma-serve/uma-serve/internal/ui"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

func newKV(dial dialer) *cobra.Command {
	var asJSON, tree, all bool
	cmd := &cobra.Command{
		Use:   "kv",
		Short: "What the KV cache holds, for whom, where and why",
		Long: `What the KV cache holds: every running sequence and every cached prefix, with its tokens and bytes, the tier it is
in (device, host, disk, fabric), its owner, its age, and why it is there.

  CLASS  what memory is taken from first: think_complete, then think_active, then output_critical;
         prefix is what nobody runs with, which goes before all of them
  OWN    of TOKENS, those that nobody shares: what dropping it would free
  IN     tokens restored from a tier; OUT: stored there

In a window only what fits is shown: names of prefixes are cut to 8 digits, and columns and rows are left out. --all, a
pipe and --json have everything. With --tree in a window the tree follows the summary at once.

NAME is what drop, pin, unpin and save take. A user sees only what is its own; root and the daemon's user see all.`,
		Example: `  uma-cli kv
  uma-cli kv --tree              # who shares what with whom
  uma-cli kv pin 12              # keep prefix 12 whatever comes
  uma-cli kv drop all
  uma-cli kv --json | jq '.tiers'`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef("there is no %q; uma-cli kv has drop, pin, unpin and save", args[0])
			}
			return query(cmd, dial, asJSON, client.Question{Kind: wire.KindKV, KV: wire.KVQuestion{Tree: tree}},
				func(out *ui.Terminal, r *wire.KVReport) (string, error) { return insideview.KV(out, r, all), nil })
		},
	}
	cmd.Flags().BoolVar(&tree, "tree", false, "the prefix tree too: one line for each run of cells, below the run it continues")
	cmd.Flags().BoolVarP(&all, "all", "a", false, "everything, even if it does not fit into the window")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the daemon's answer as one line of JSON")
	cmd.Flags().SortFlags = false
	const target = `

TARGET is a NAME that uma-cli kv shows, the beginning of a hash (4 digits or more, if only one begins so), or all.`
	cmd.AddCommand(
		newKVDo(dial, wire.KVDrop, "Forget a cached prefix and its copies in memory, on disk and on the fabric", "Forget a cached prefix and its copies in memory, on disk and on the --fabric: a prompt that begins so is computed anew. What\nanother prefix begins with too stays with that one. The command returns when the copies are gone, or says which are left."+target),
		newKVDo(dial, wire.KVPin, "Keep a cached prefix until it is unpinned", "Keep a cached prefix whatever comes, until it is unpinned or dropped: a long system prompt, for example. What is\npinned is missing elsewhere: cells that hold it can be given to nobody."+target),
		newKVDo(dial, wire.KVUnpin, "Let a pinned prefix be evicted again", "Let a pinned prefix be evicted again when its cells are needed."+target),
		newKVDo(dial, wire.KVSave, "Write a cached prefix to the slowest tier there is", "Write a cached prefix to the slowest tier there is (--cache-dir, --fabric), so that it outlives the daemon. Without\neither it is copied to memory (--cache-ram) only."+target),
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
			q := client.Question{Kind: wire.KindKV, KV: wire.KVQuestion{Op: op, Target: args[0]}}
			return query(cmd, dial, asJSON, q,
				func(_ *ui.Terminal, done *wire.KVDone) (string, error) { return clean(done.Text) + "\n", nil })
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the daemon's answer as one line of JSON")
	return cmd
}
