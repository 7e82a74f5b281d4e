package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/uma-serve/uma-serve/internal/cli/configfile"
	"github.com/uma-serve/uma-serve/internal/cli/ui"
	"github.com/uma-serve/uma-serve/internal/host/hostmem"
	"github.com/uma-serve/uma-serve/ipc/wire/reports"
	"github.com/uma-serve/uma-serve/model/gguf"
	"github.com/uma-serve/uma-serve/models/store"
)

// modelsDir adds the flag of the own models directory to a command and returns the function that opens the store.
func modelsDir(cmd *cobra.Command) (open func() *store.Store) {
	var dir string
	cmd.Flags().StringVar(&dir, "models-dir", "",
		"uma-serve's models `DIR` (default: $UMA_MODELS_DIR, else that of uma-serve's configuration)")
	must(cmd.MarkFlagDirname("models-dir"))
	return func() *store.Store {
		of := cmp.Or(dir, os.Getenv("UMA_MODELS_DIR"))
		if of == "" {
			of, _ = configfile.Option(os.Environ(), "models-dir") // the daemon reports errors in its file
		}
		return store.New(of, os.Getenv)
	}
}

// catalog is the output of `models --json`: the models on this machine.
type catalog struct {
	Models   []store.Entry   `json:"models"`
	Problems []store.Problem `json:"problems"`
	Dir      string          `json:"models_dir"`
	Memory   hostmem.Memory  `json:"memory"`
}

func newModels(address *string) *cobra.Command {
	var asJSON bool
	var terms store.Terms
	cmd := &cobra.Command{
		Use:     "models",
		Aliases: []string{"list", "ls"},
		Short:   "List the models on this machine",
		Long: `List the models on this machine by the names that uma-serve -m and requests accept. The models are those
of uma-serve's models directory, Hugging Face's hub cache, llama.cpp's cache, LM Studio and ollama. No daemon is needed.

  FITS     whether weights, KV cache and repacked weights fit into the memory that is available now; where a daemon
           runs, what it says: it knows the memory of devices, and which models are pinned
  CONTEXT  the model's training context, in tokens
  FROM     the program whose folder holds the model; if several models have the same name, uma-serve serves the first

A model that shares its name with another one, or has no valid name, can be served by path: uma-serve -m FILE.gguf.`,
		Example: `  uma-cli models
  uma-cli models -c 32768                        # FITS for a context of 32,768 tokens
  uma-cli models --json | jq -r '.models[].name'`,
		Args: noArgs,
	}
	open := modelsDir(cmd)
	cmd.Flags().Int64VarP(&terms.Context, "ctx-size", "c", 0,
		"context in `tokens` for FITS; 0 = uma-serve's default")
	cmd.Flags().StringVar(&terms.TypeK, "cache-type-k", "f16",
		"data type of the K cache for FITS: f32, f16, bf16, q8_0, q4_0, … (-ctk)")
	cmd.Flags().StringVar(&terms.TypeV, "cache-type-v", "f16", "data type of the V cache for FITS (-ctv)")
	completeWords(cmd, "cache-type-k", gguf.CacheTypes()...)
	completeWords(cmd, "cache-type-v", gguf.CacheTypes()...)
	cmd.Flags().BoolVar(&terms.NoRepack, "no-repack", false, "compute FITS for uma-serve --no-repack")
	cmd.Flags().BoolVar(&asJSON, "json", false,
		"print everything, with files, memory and problems, as one line of JSON")
	cmd.Flags().SortFlags = false
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if terms.Context < 0 || terms.Context > 1<<27 {
			return usagef("--ctx-size is %d; it must be 0…%d", terms.Context, 1<<27)
		}
		s := open()
		found, err := s.Scan(cmd.Context())
		if err != nil {
			return err
		}
		c := catalog{Problems: found.Problems, Dir: s.Dir(), Memory: hostmem.Read()}
		terms.Free = c.Memory.Available
		if c.Models, err = found.List(cmd.Context(), terms); err != nil {
			return err
		}
		if given := cmd.Flags().Changed; !given("ctx-size") && !given("cache-type-k") && !given("cache-type-v") &&
			!given("no-repack") {
			askFits(cmd.Context(), *address, c.Models)
		}
		out := ui.Open(os.Stdout)
		if asJSON {
			if c.Problems == nil {
				c.Problems = []store.Problem{}
			}
			return out.JSON(c)
		}
		return out.Print(modelsText(out, &c))
	}
	return cmd
}

// askFits replaces what was computed of the memory of this machine by what a daemon says that serves these models. None
// need run.
func askFits(ctx context.Context, address string, list []store.Entry) {
	ctx, cancel := withTimeout(ctx, askTimeout)
	defer cancel()
	served, err := servedModels(ctx, address)
	if err != nil {
		return
	}
	fits := map[string]*reports.ServedFit{}
	for i := range served {
		if st := served[i].Status; st != nil && st.Fit != nil {
			fits[served[i].ID] = st.Fit
		}
	}
	for i := range list {
		if fit := fits[list[i].Name]; fit != nil && !list[i].Hidden {
			list[i].Fits, list[i].FitsText = &fit.Fits, fit.Text
		}
	}
}

// fewProblems is the most problems that the list shows.
const fewProblems = 3

func modelsText(out *ui.Terminal, c *catalog) string {
	width, _ := out.Size()
	var b strings.Builder
	if len(c.Models) == 0 {
		b.WriteString("There are no models on this machine. uma-cli pull NAME downloads one; " +
			"uma-serve -m FILE.gguf serves a file.\n")
	} else {
		cols := []ui.Column{{Head: "NAME"}, {Head: "FAMILY", Keep: 3}, {Head: "PARAMETERS", Keep: 4}, {Head: "QUANT",
			Keep: 5},
			{Head: "SIZE", Keep: 7}, {Head: "CONTEXT", Keep: 2}, {Head: "FITS", Keep: 6}, {Head: "FROM", Keep: 1}}
		var rows [][]string
		for i := range c.Models {
			rows = append(rows, modelRow(out, &c.Models[i]))
		}
		b.WriteString(ui.Columns(cols, rows, width, out.Dim))
	}
	for i := range c.Models {
		if e := &c.Models[i]; e.FitsText != "" && e.Fits != nil && !*e.Fits {
			fmt.Fprintf(&b, "%s does not fit: %s\n", clean(e.Name), clean(e.FitsText))
		}
	}
	for i, p := range c.Problems {
		if i == fewProblems {
			fmt.Fprintf(&b, "%s\n", out.Dim(fmt.Sprintf("%d more problems: uma-cli models --json", len(c.Problems)-i)))
			break
		}
		line := p.Why
		if p.Path != "" {
			line = p.Path + ": " + line
		}
		fmt.Fprintf(&b, "%s %s\n", out.Yellow("not listed:"), clean(line))
	}
	return ui.FitLines(b.String(), width)
}

// modelRow returns a model's row in the list; for one that cannot be served, its name and the reason.
func modelRow(out *ui.Terminal, e *store.Entry) []string {
	name := clean(e.Name)
	if len(e.Aliases) > 0 {
		name += out.Dim(" = " + clean(strings.Join(e.Aliases, ", ")))
	}
	from := clean(string(e.From))
	if e.Hidden {
		from += ", hidden by the one above"
	}
	if e.Problem != "" {
		return []string{name, out.Yellow(clean(e.Problem)), from}
	}
	context, fits := "–", "–"
	if e.TrainContext > 0 {
		context = ui.Count(e.TrainContext)
	}
	switch {
	case e.Fits != nil && *e.Fits:
		fits = out.Green("yes")
	case e.Fits != nil:
		fits = out.Red("no")
	}
	return []string{name, clean(e.Family), ui.Large(e.Parameters), clean(e.Quantisation), ui.Bytes(uint64(e.Bytes)),
		context, fits, from}
}

// completeNames completes the names of models.
func completeNames(open func() *store.Store) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := withTimeout(cmd.Context(), askTimeout)
		defer cancel()
		c, err := open().Scan(ctx)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var words []string
		for _, name := range c.Names() {
			words = append(words, clean(name))
		}
		return words, cobra.ShellCompDirectiveNoFileComp
	}
}
