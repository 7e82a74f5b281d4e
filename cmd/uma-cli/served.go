package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/uma-serve/uma-serve/client"
	"github.com/uma-serve/uma-serve/internal/cli/ui"
	"github.com/uma-serve/uma-serve/ipc/wire/reports"
	"github.com/uma-serve/uma-serve/models/store"
)

// The verbs that change which models the daemon has loaded: load, unload and ps.

const (
	maxAnswerBytes = 16 << 20
	loadPoll       = 100 * time.Millisecond // between two looks at a model that is being loaded
)

// askHTTP sends a request to the daemon, and decodes its answer into v. An error of the daemon is its message.
func askHTTP(ctx context.Context, address, method, path string, body, v any) error {
	socket, err := socketPath(address)
	if err != nil {
		return err
	}
	var text []byte
	if body != nil {
		if text, err = json.Marshal(body); err != nil {
			return err
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://uma-serve"+path, bytes.NewReader(text))
	if err != nil {
		return err
	}
	c := client.HTTP(socket)
	defer c.CloseIdleConnections()
	resp, err := c.Do(req)
	if err != nil {
		if inner := errors.Unwrap(err); inner != nil {
			err = inner // without `Get "http://…"`
		}
		return fmt.Errorf("the daemon cannot be asked: %w; start it with uma-serve", err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswerBytes))
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		var e struct {
			Error struct{ Message string }
		}
		if json.Unmarshal(answer, &e) == nil && e.Error.Message != "" {
			return errors.New(e.Error.Message)
		}
		return fmt.Errorf("the daemon answered %s: %.200s", resp.Status, answer)
	}
	if v == nil {
		return nil
	}
	if err := json.Unmarshal(answer, v); err != nil {
		return fmt.Errorf("the daemon's answer cannot be read (is it another version?): %w", err)
	}
	return nil
}

// servedModels asks for the models that the daemon serves.
func servedModels(ctx context.Context, address string) ([]reports.ServedModel, error) {
	var list reports.ServedModels
	err := askHTTP(ctx, address, http.MethodGet, "/models", nil, &list)
	return list.Data, err
}

func newLoad(address *string) *cobra.Command {
	var noWait bool
	var lora adapterFlags
	cmd := &cobra.Command{
		Use:   "load NAME",
		Short: "Load a model in the daemon, or an adapter",
		Long: `Load a model in the running daemon, and wait until it answers. NAME is one that uma-cli models lists; the
first request for a model loads it as well. The daemon unloads other models when memory is short, and a model that is
not used after --idle-unload.

With --lora FILE, NAME is a LoRA adapter, loaded beside its model until it is unloaded or the daemon ends.

Only root and the daemon's user may load models, or everyone with uma-serve --allow-model-changes.`,
		Example: `  uma-cli load qwen3:8b
  uma-cli load --no-wait qwen3:8b && uma-cli ps
  uma-cli load sql --lora adapters/sql.gguf      # for requests whose model is sql`,
		Args: oneModel,
	}
	open := modelsDir(cmd)
	cmd.ValidArgsFunction = completeNames(open)
	cmd.Flags().BoolVar(&noWait, "no-wait", false, "return when the daemon has begun to load the model")
	lora.ofLoad(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := lora.check(cmd); err != nil {
			return err
		}
		if lora.file != "" {
			return lora.load(cmd.Context(), *address, args[0])
		}
		ctx, began := cmd.Context(), time.Now()
		out := ui.Open(os.Stdout)
		for first := true; ; first = false {
			var answer struct{ Status reports.ServedStatus }
			if err := askHTTP(ctx, *address, http.MethodPost, "/models/load", map[string]string{"model": args[0]},
				&answer); err != nil {
				return err
			}
			switch {
			case answer.Status.Value == "loaded" && first:
				return out.Print(fmt.Sprintf("%s is loaded\n", clean(args[0])))
			case answer.Status.Value == "loaded":
				return out.Print(fmt.Sprintf("loaded %s in %s\n", clean(args[0]), ui.Duration(time.Since(began))))
			case noWait:
				return out.Print(fmt.Sprintf("%s is being loaded\n", clean(args[0])))
			}
			if err := pause(ctx, loadPoll); err != nil {
				return err
			}
		}
	}
	return cmd
}

// pause waits, unless ctx ends first.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func newUnload(address *string) *cobra.Command {
	var lora adapterFlags
	cmd := &cobra.Command{
		Use:     "unload NAME",
		Aliases: []string{"stop"},
		Short:   "Unload a model or an adapter from the daemon's memory, or cancel a download",
		Long: `Unload a model from the memory of the running daemon, when its running answers have ended; the next
request for it loads it again. The name of a download that the daemon runs cancels that; what has arrived is kept for
the next one.

Only root and the daemon's user may unload models, or everyone with uma-serve --allow-model-changes.`,
		Example: "  uma-cli unload qwen3:8b\n  uma-cli unload --lora sql",
		Args:    oneModel,
	}
	lora.ofUnload(cmd)
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, _ string) (names []string,
		_ cobra.ShellCompDirective) {
		ctx, cancel := withTimeout(cmd.Context(), askTimeout)
		defer cancel()
		list, err := servedModels(ctx, *address)
		for _, m := range list {
			if err == nil && len(args) == 0 && m.Status != nil && m.Status.Value != "unloaded" {
				names = append(names, clean(m.ID))
			}
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := lora.check(cmd); err != nil {
			return err
		}
		if lora.unload {
			return lora.remove(cmd.Context(), *address, args[0])
		}
		if err := askHTTP(cmd.Context(), *address, http.MethodPost, "/models/unload",
			map[string]string{"model": args[0]}, nil); err != nil {
			return err
		}
		return ui.Open(os.Stdout).Print(fmt.Sprintf("unloaded %s\n", clean(args[0])))
	}
	return cmd
}

// running is a model of `ps`.
type running struct {
	Name    string                 `json:"name"`
	Status  string                 `json:"status"`
	Bytes   int64                  `json:"size_bytes"` // weights and KV cells; of a download, all files
	Done    int64                  `json:"done_bytes,omitempty"`
	Context int                    `json:"n_ctx,omitempty"`
	Until   *time.Time             `json:"expires_at"` // null: it stays
	Files   reports.ServedDownload `json:"files,omitempty"`
}

func newPS(address *string) *cobra.Command {
	var asJSON, all bool
	cmd := &cobra.Command{
		Use:   "ps",
		Short: "List the models that the daemon has loaded, loads or downloads",
		Long: `List the models that the running daemon has loaded, is loading or downloads.

  STATUS   loaded, loading, downloading, or failed
  SIZE     memory of weights and KV cache; of a download, what has arrived of all files
  CONTEXT  tokens of the KV cache, shared by all requests
  UNTIL    when the model is unloaded without further requests

uma-cli models lists the models on the disk; uma-cli metrics shows what the daemon does.`,
		Example: `  uma-cli ps
  uma-cli ps --all                               # also the models that can be loaded
  uma-cli ps --json | jq -r '.[].name'`,
		Args: noArgs,
	}
	cmd.Flags().BoolVarP(&all, "all", "a", false, "also list the models that are not loaded")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print an array of JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		list, err := runningModels(cmd.Context(), *address, all)
		if err != nil {
			return err
		}
		out := ui.Open(os.Stdout)
		if asJSON {
			return out.JSON(list)
		}
		return out.Print(runningText(out, list, time.Now()))
	}
	return cmd
}

// runningModels joins the daemon's list of models with the expiry of those that are loaded.
func runningModels(ctx context.Context, address string, all bool) ([]running, error) {
	served, err := servedModels(ctx, address)
	if err != nil {
		return nil, err
	}
	var loaded struct {
		Models []struct {
			Name    string
			Size    int64
			Context int       `json:"context_length"`
			Expires time.Time `json:"expires_at"`
		}
	}
	if err := askHTTP(ctx, address, http.MethodGet, "/api/ps", nil, &loaded); err != nil {
		return nil, err
	}
	list := []running{}
	for _, m := range served {
		r := running{Name: m.ID, Status: "loaded", Bytes: m.Meta.Bytes}
		if m.Status != nil { // a daemon of one model has none
			r.Status, r.Files = m.Status.Value, m.Status.Progress
			if m.Status.Failed {
				r.Status = "failed"
			}
		}
		for _, f := range r.Files {
			r.Bytes, r.Done = r.Bytes+f.Total, r.Done+f.Done
		}
		for _, l := range loaded.Models {
			if l.Name != m.ID && l.Name != m.ID+":"+store.Latest { // ollama's API has every name with a tag
				continue
			}
			r.Bytes, r.Context = l.Size, l.Context
			if until := l.Expires; time.Until(until) < 50*365*24*time.Hour { // what never expires has a time far ahead
				r.Until = &until
			}
		}
		if all || r.Status != "unloaded" {
			list = append(list, r)
		}
	}
	return list, nil
}

func runningText(out *ui.Terminal, list []running, now time.Time) string {
	if len(list) == 0 {
		return "No model is loaded. The first request for a model loads it, or uma-cli load NAME.\n"
	}
	cols := []ui.Column{{Head: "NAME"}, {Head: "STATUS", Keep: 5}, {Head: "SIZE", Keep: 4}, {Head: "CONTEXT", Keep: 3},
		{Head: "UNTIL", Keep: 2}}
	var rows [][]string
	for _, r := range list {
		status, size, context, until := r.Status, ui.Bytes(uint64(r.Bytes)), "–", "–"
		switch r.Status {
		case "loaded":
			status, until = out.Green(status), "stays"
		case "failed":
			status = out.Red(status)
		case "downloading":
			size = fmt.Sprintf("%s of %s", ui.Bytes(uint64(r.Done)), size)
		}
		if r.Context > 0 {
			context = ui.Count(int64(r.Context))
		}
		if r.Until != nil {
			until = "in " + ui.Duration(max(r.Until.Sub(now), 0).Round(time.Second))
		}
		rows = append(rows, []string{clean(r.Name), status, size, context, until})
	}
	width, _ := out.Size()
	return ui.FitLines(ui.Columns(cols, rows, width, out.Dim), width)
}

// letGo asks the daemon, if one runs, to unload a model whose files are about to be deleted. What it answers does not
// matter: it may not know the model.
func letGo(ctx context.Context, address, name string) {
	ctx, cancel := withTimeout(ctx, askTimeout)
	defer cancel()
	list, err := servedModels(ctx, address)
	loaded := func(m reports.ServedModel) bool {
		return strings.EqualFold(m.ID, name) && m.Status != nil && m.Status.Value == "loaded"
	}
	if err == nil && slices.ContainsFunc(list, loaded) {
		_ = askHTTP(ctx, address, http.MethodPost, "/models/unload", map[string]string{"model": name}, nil)
	}
}
