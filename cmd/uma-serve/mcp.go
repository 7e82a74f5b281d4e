package main

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/uma-serve/uma-serve/internal/cli/clierr"
	"github.com/uma-serve/uma-serve/ipc/tcpaddr"
	"github.com/uma-serve/uma-serve/mcp"
)

// newMCP returns the command that serves MCP.
func newMCP() *cobra.Command {
	var socket, listen, model string
	var verbose bool
	cmd := &cobra.Command{
		Use:   "mcp [options]",
		Short: "Serve the running daemon to agents over MCP (stdio or HTTP)",
		Long: `Serve the running daemon to agents over the Model Context Protocol.

The tools chat and complete ask the model; why, kv and models report on the daemon, so that an agent can ask its own
engine why it was slow. The resources uma://info, uma://models, uma://why, uma://why/REQUEST and uma://kv hold the same
reports.

Without --listen the client is on standard input and output, as agents start a local server. With --listen the server
is on a loopback port at the path /mcp. Only processes of your user may use the port: on Linux the kernel identifies the
user of a connection; on other systems requests need the key that is printed on standard error.

The command is a client of the daemon: it starts none, and each call connects anew, so the daemon may be restarted.`,
		Example: `  uma-serve mcp                                   # stdio, for an agent's configuration
  uma-serve mcp --socket /run/uma-serve/uma.sock
  uma-serve mcp --listen 8790                     # http://127.0.0.1:8790/mcp
  claude mcp add uma -- uma-serve mcp`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usageError{fmt.Errorf("unexpected argument %q; uma-serve mcp has options only", args[0])}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			s := mcp.Server{Socket: socket, Model: model}
			if verbose {
				s.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			if listen == "" {
				return mcp.NewServer(s).ServeStdio(ctx, os.Stdin, os.Stdout)
			}
			addr, err := tcpaddr.Parse(listen)
			if err != nil {
				return usageError{fmt.Errorf("--listen %w", err)}
			}
			if !addr.Addr().IsLoopback() {
				return usageError{fmt.Errorf("--listen %s is no loopback address; the MCP server is for this "+
					"machine's user alone", addr)}
			}
			h, err := mcp.NewServer(s).ListenHTTP(addr)
			if err != nil {
				return err
			}
			defer h.Close()
			if h.Key() != "" {
				fmt.Fprintln(os.Stderr, "Authorization: Bearer "+h.Key())
			}
			if _, err := fmt.Fprintln(cmd.OutOrStdout(), h.URL()); err != nil {
				return err
			}
			return h.Serve(ctx)
		},
		SilenceUsage: true, SilenceErrors: true,
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&socket, "socket", "", "the daemon's `PATH`; default: $UMA_HOST, $UMA_SOCKET, else the default socket")
	f.StringVarP(&model, "model", "m", "", "the model's `NAME` for calls that name none; default: the daemon's")
	f.StringVar(&listen, "listen", "", "serve HTTP on a loopback `ADDRESS:PORT` or port; port 0 = any free port")
	f.BoolVarP(&verbose, "verbose", "v", false, "log messages of the protocol's library on standard error")
	f.BoolP("help", "h", false, "print this help")
	cmd.SetFlagErrorFunc(func(c *cobra.Command, err error) error { return usageError{clierr.Flag(c.Flags(), err)} })
	cmd.SetHelpFunc(func(c *cobra.Command, _ []string) {
		io.WriteString(c.OutOrStdout(), c.Long+"\n\nUsage:\n  uma-serve "+c.Use+"\n\nOptions:\n"+
			c.Flags().FlagUsagesWrapped(100)+"\nExamples:\n"+c.Example+"\n")
	})
	return cmd
}
