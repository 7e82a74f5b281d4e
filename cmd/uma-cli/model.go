package main

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/uma-serve/uma-serve/internal/cli/ui"
	"github.com/uma-serve/uma-serve/internal/host/hostmem"
	"github.com/uma-serve/uma-serve/model/gguf"
	"github.com/uma-serve/uma-serve/runtime"
)

func newModel() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "model",
		Short: "Inspect model files",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef("unknown command %q; uma-cli model has inspect FILE.gguf", "model "+args[0])
			}
			return cmd.Help()
		},
	}
	cmd.AddCommand(newModelInspect())
	return cmd
}

// inspection is the output of `model inspect --json`: the file's facts, the sizes of a KV cache for it, and this
// machine's memory.
type inspection struct {
	gguf.Info
	KV     *kvFacts       `json:"kv"` // null when the types do not fit the model
	Repack gguf.Repacking `json:"repack"`
	Draft  *draftFacts    `json:"draft_model,omitempty"` // with --draft-model
	Memory hostmem.Memory `json:"memory"`
}

// draftFacts is the memory that a draft model adds, and its agreement with the model.
type draftFacts struct {
	Path       string `json:"path"`
	Name       string `json:"name"`
	Tokens     int64  `json:"n_ctx"`
	TotalBytes int64  `json:"total_bytes"` // weights, their repacked copy, KV cells; part of the contexts' totals
	// Differs is the difference between its vocabulary and the model's; "" = size, tokenizer and special tokens agree.
	Differs string `json:"differs,omitempty"`
}

// kvFacts are sizes of the KV cache.
type kvFacts struct {
	TypeK         string      `json:"type_k"`
	TypeV         string      `json:"type_v"`
	BytesPerToken int64       `json:"bytes_per_token"`
	Contexts      []kvContext `json:"contexts"`
}

// kvContext is the memory a model needs with a context of Tokens.
type kvContext struct {
	Tokens     int64 `json:"n_ctx"`
	KVBytes    int64 `json:"kv_bytes"`
	TotalBytes int64 `json:"total_bytes"` // with the weights and their repacked copy
	// ResidentBytes is the part of TotalBytes that must stay in memory: the file's pages of weights that were repacked
	// are not read again.
	ResidentBytes int64 `json:"resident_bytes"`
	Fits          *bool `json:"fits"` // null when this system does not say how much memory it has
}

func newModelInspect() *cobra.Command {
	var asJSON, noRepack bool
	var typeK, typeV, draft string
	cmd := &cobra.Command{
		Use:   "inspect FILE.gguf",
		Short: "Show what a model file holds and whether it fits this machine, without loading it",
		Example: `  uma-cli model inspect model.gguf
  uma-cli model inspect -ctk q8_0 -ctv q8_0 model.gguf    # with a smaller KV cache
  uma-cli model inspect --json model.gguf | jq .kv.contexts`,
		ValidArgsFunction: cobra.FixedCompletions([]string{"gguf"}, cobra.ShellCompDirectiveFilterFileExt),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usagef("name one file: uma-cli model inspect FILE.gguf")
			}
			info, err := gguf.Inspect(args[0])
			if err != nil {
				return err
			}
			in := inspection{Info: info, Memory: hostmem.Read()}
			if !noRepack {
				in.Repack = info.Repacked(gguf.ThisProcessor())
			}
			extra := gguf.Need{}
			if draft != "" {
				if in.Draft, extra, err = inspectDraft(&info, draft, gguf.DraftContext, !noRepack); err != nil {
					return err
				}
			}
			if in.KV, err = kvSizes(&info, in.Repack, typeK, typeV, extra, in.Memory.Total); err != nil {
				return usageError{err}
			}
			out := ui.Open(os.Stdout)
			if asJSON {
				return out.JSON(in)
			}
			return out.Print(inspectionText(out, &in))
		},
	}
	cmd.Flags().StringVar(&typeK, "cache-type-k", "f16", "data type of the K cache: f32, f16, bf16, q8_0, q4_0, … "+
		"(-ctk)")
	cmd.Flags().StringVar(&typeV, "cache-type-v", "f16", "data type of the V cache (-ctv)")
	completeWords(cmd, "cache-type-k", gguf.CacheTypes()...)
	completeWords(cmd, "cache-type-v", gguf.CacheTypes()...)
	cmd.Flags().BoolVar(&noRepack, "no-repack", false, "sizes for uma-serve --no-repack (without a repacked copy of "+
		"the weights)")
	cmd.Flags().StringVar(&draft, "draft-model", "", "add the memory of this draft model, a GGUF `FILE`, and compare "+
		"its vocabulary (-md)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print everything, with the chat template, as one line of JSON")
	return cmd
}

// inspectDraft returns the facts and the memory of the draft model in a file, with a cache of so many tokens, and
// checks whether it fits the model.
func inspectDraft(model *gguf.Info, path string, tokens int64, repack bool) (*draftFacts, gguf.Need, error) {
	info, err := gguf.Inspect(path)
	if err != nil {
		return nil, gguf.Need{}, fmt.Errorf("--draft-model: %w", err)
	}
	var r gguf.Repacking
	if repack {
		r = info.Repacked(gguf.ThisProcessor())
	}
	if info.TrainContext >= gguf.MinContext && info.HeadFile == nil {
		tokens = min(tokens, info.TrainContext)
	}
	need, err := info.Need(tokens, "f16", "f16", r)
	d := &draftFacts{Path: path, Name: info.Name, Tokens: tokens, TotalBytes: int64(need.Total())}
	var fits error
	if info.HeadFile != nil {
		fits = info.DraftsFor(model)
	}
	switch diff := int64(info.VocabSize) - int64(model.VocabSize); {
	case fits != nil:
		d.Differs = fits.Error()
	case max(diff, -diff) > runtime.VocabSlack:
		d.Differs = fmt.Sprintf("it has %s tokens, the model %s", ui.Count(info.VocabSize), ui.Count(model.VocabSize))
	case info.Tokenizer != model.Tokenizer:
		d.Differs = fmt.Sprintf("its tokenizer is %s, the model's %s", info.Tokenizer, model.Tokenizer)
	case !slices.Equal(info.Special, model.Special):
		d.Differs = "its special tokens are others"
	}
	return d, need, err
}

// kvSizes returns the memory for contexts of several sizes, up to the one the model was trained with. extra is added to
// each.
func kvSizes(info *gguf.Info, repack gguf.Repacking, typeK, typeV string, extra gguf.Need,
	total uint64) (*kvFacts, error) {
	perToken, err := info.KVBytesPerToken(typeK, typeV)
	if err != nil {
		return nil, err
	}
	kv := &kvFacts{TypeK: typeK, TypeV: typeV, BytesPerToken: perToken}
	sizes := []int64{4096, 16384, 65536, 131072}
	if n := info.TrainContext; n > 0 {
		sizes = append(slices.DeleteFunc(sizes, func(s int64) bool { return s >= n }), n)
	}
	for _, n := range sizes {
		need, err := info.Need(n, typeK, typeV, repack)
		if err != nil {
			return nil, err
		}
		c := kvContext{Tokens: n, KVBytes: int64(need.KV), TotalBytes: int64(need.Total() + extra.Total()),
			ResidentBytes: int64(need.Resident() + extra.Resident())}
		if total > 0 {
			fits := need.Fits(total - min(extra.Resident(), total))
			c.Fits = &fits
		}
		kv.Contexts = append(kv.Contexts, c)
	}
	return kv, nil
}

func inspectionText(out *ui.Terminal, in *inspection) string {
	var t ui.Table
	t.Row("model", "%s", out.Bold(clean(in.Name)))
	t.Row("file", "%s, %s, GGUF %d", clean(in.Path), ui.Bytes(uint64(in.FileBytes)), in.Version)
	if in.Split > 1 {
		t.Row("", "the first of %d files", in.Split)
	}
	t.Row("architecture", "%s", clean(in.Architecture)+architectureNotes(&in.Info))
	t.Row("parameters", "%s in %s tensors, %s", ui.Large(in.Parameters), ui.Count(in.Tensors), ui.Bytes(in.TensorBytes))
	var types []string
	for _, q := range in.Quantisation {
		types = append(types, fmt.Sprintf("%s %s", q.Type, ui.Bytes(q.Bytes)))
	}
	t.Row("quantisation", "%s", strings.Join(types, ", "))
	if in.Repack.Copy > 0 {
		t.Row("repacked", "a copy of %s for this processor's kernels (none with --no-repack)", ui.Bytes(in.Repack.Copy))
		t.Row("", "it cannot be paged out; the file's pages it was made of can")
	}
	t.Row("layers", "%s", layerText(&in.Info))
	if in.TrainContext > 0 {
		t.Row("context", "trained on %s tokens", ui.Count(in.TrainContext))
	}
	if in.SlidingWindow > 0 {
		t.Row("", "sliding window of %s tokens", ui.Count(in.SlidingWindow))
	}
	t.Row("vocabulary", "%s tokens, %s", ui.Count(in.VocabSize), clean(in.Tokenizer))
	var special []string
	for _, s := range in.Special {
		special = append(special, fmt.Sprintf("%s %s", clean(s.Role), clean(s.Text)))
	}
	t.Row("", "%s", strings.Join(special, ", "))
	if d := in.Draft; d != nil {
		t.Row("draft model", "%s, %s with %s tokens", clean(d.Name), ui.Bytes(uint64(d.TotalBytes)), ui.Count(d.Tokens))
		if d.Differs != "" {
			t.Row("", "it cannot draft for this model: %s", clean(d.Differs))
		}
	}
	t.Gap()
	chatRows(&t, &in.Info)

	var b strings.Builder
	b.WriteString(t.String(out.Dim))
	if kv := in.KV; kv != nil {
		fmt.Fprintf(&b, "\n%s %s a token in %s/%s\n", out.Dim("KV cache"), ui.Bytes(uint64(kv.BytesPerToken)),
			kv.TypeK, kv.TypeV)
		fmt.Fprintf(&b, "%s\n", out.Dim(fmt.Sprintf("%12s %12s %14s", "context", "KV cache", "with weights")))
		for _, c := range kv.Contexts {
			fits := ""
			switch {
			case c.Fits != nil && *c.Fits:
				fits = out.Green("fits")
			case c.Fits != nil:
				fits = out.Red("does not fit")
			}
			fmt.Fprintf(&b, "%12s %12s %14s  %s\n", ui.Count(c.Tokens), ui.Bytes(uint64(c.KVBytes)),
				ui.Bytes(uint64(c.TotalBytes)), fits)
		}
	}
	if m := in.Memory; m.Total > 0 {
		line := "This machine has " + ui.Bytes(m.Total) + " of memory"
		if m.Available > 0 {
			line += ", " + ui.Bytes(m.Available) + " of it available now"
		}
		fmt.Fprintf(&b, "%s\n", out.Dim(line+"."))
	}
	return b.String()
}

func architectureNotes(in *gguf.Info) string {
	var notes string
	if in.Experts > 0 {
		notes += fmt.Sprintf(", %d experts, %d used for a token", in.Experts, in.ExpertsUsed)
	}
	if in.HeadLayers > 0 {
		notes += ", a head: its last layer drafts"
	}
	if e := in.HeadFile; e != nil {
		notes += fmt.Sprintf(", a head (%s) for models with an embedding of %d (--spec-type %s)", e.Kind, e.Width,
			e.SpecType)
	}
	if in.Recurrent {
		notes += ", recurrent: parts of its memory cannot be shared or dropped"
	}
	if in.Encoder {
		notes += ", an encoder: it reads texts of up to " + ui.Count(in.TrainContext) + " tokens whole"
	}
	switch in.Pooling {
	case "":
	case "rank":
		notes += ", it ranks documents"
	default:
		notes += ", embeddings with pooling " + in.Pooling
	}
	return notes
}

func layerText(in *gguf.Info) string {
	return fmt.Sprintf("%d of width %s, attention heads %s, KV heads %s", in.Layers, ui.Count(in.Embedding),
		spread(in.Heads), spread(in.KVHeads))
}

// spread returns a number, or the range of numbers that differ by layer, as text.
func spread(list []int64) string {
	if len(list) == 0 {
		return "–"
	}
	lo, hi := slices.Min(list), slices.Max(list)
	if lo == hi {
		return ui.Count(lo)
	}
	return fmt.Sprintf("%d…%d", lo, hi)
}

func chatRows(t *ui.Table, in *gguf.Info) {
	if in.Encoder {
		t.Row("chat template", "none: the model makes embeddings and generates no text")
		return
	}
	switch {
	case in.ChatTemplate == "":
		t.Row("chat template", "none; uma-serve uses its built-in %s", clean(in.DefaultTemplate))
	case in.TemplateError != "":
		t.Row("chat template", "cannot be used: %s", clean(in.TemplateError))
	default:
		t.Row("chat template", "works, %s characters", ui.Count(len(in.ChatTemplate)))
	}
	if r := in.Template; r != nil && in.TemplateError == "" {
		var facts []string
		if !r.System {
			facts = append(facts, "takes no system message")
		}
		if !r.PrefixStable {
			facts = append(facts, "rewrites earlier turns, whose KV cells are then computed again")
		}
		if r.DropsThinking {
			facts = append(facts, "leaves earlier thinking out of the next prompt")
		}
		if r.OpensThinking {
			facts = append(facts, "begins every answer with thinking")
		}
		if r.ThinkingSwitch != "" {
			facts = append(facts, "switches thinking with "+clean(r.ThinkingSwitch))
		}
		for _, f := range facts {
			t.Row("", "%s", f)
		}
	}
	var tags []string
	for _, tag := range in.Think {
		s := clean(tag.Open) + " " + clean(tag.Close)
		if !tag.SingleToken {
			s += " (recognised by their text)"
		}
		tags = append(tags, s)
	}
	if len(tags) == 0 {
		tags = []string{"none"}
	}
	t.Row("think tags", "%s", strings.Join(tags, ", "))
}
