package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/uma-serve/uma-serve/bench/masks"
	"github.com/uma-serve/uma-serve/grammar/jsonschema"
	"github.com/uma-serve/uma-serve/internal/enginetree"
	"github.com/uma-serve/uma-serve/internal/gguf"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/runtime/llama"
)

func grammarCommand() *cobra.Command {
	var schemas, vocab, only string
	var asJSON, failures, narrow bool
	cmd := &cobra.Command{
		Use:   "grammar --schemas FILE",
		Short: "compile JSON schemas, check instances against them and time the masks",
		Long: `Compile JSON schemas, check instances against them and time the mask of every token, on one core.

FILE has one case per line and may be compressed with gzip:
  {"name": "…", "schema": {…}, "tests": [{"valid": true, "data": …}, …]}
A schema passes when it compiles, every valid instance is accepted and every invalid one rejected. Instances are written
as Python's json.dumps does. tbm is the time per token, to compute its mask and accept it; ttfm is the time from the
schema's text to the first mask.

--vocab is llama3 (128,256 tokens), which lies in the source tree of llama.cpp, a folder with encoder.json and vocab.bpe
(Llama 3) or tokenizer.model (Gemma 2), or a GGUF file: a model, or a vocabulary alone.`,
		Example: `  uma-bench grammar --schemas maskbench.jsonl.gz --json
  uma-bench grammar --schemas mine.jsonl --failures     # which schemas do not pass, and why`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if schemas == "" {
				return usageError{errors.New("--schemas is needed: a file of schemas with instances")}
			}
			cases, err := masks.Read(schemas)
			if err != nil {
				return err
			}
			if only != "" {
				cases = slices.DeleteFunc(cases, func(c masks.Case) bool { return c.Name != only })
			}
			t, err := grammarVocab(vocab)
			if err != nil {
				return err
			}
			goruntime.GOMAXPROCS(1)
			o := masks.DefaultOptions()
			o.Schema.AnyForm = !narrow
			outcomes := masks.Run(cases, t, o, func(done int, at *masks.Outcome) {
				if failures {
					printFailure(os.Stderr, at)
				}
				if done%100 == 0 || done == len(cases) {
					fmt.Fprintf(os.Stderr, "%d of %d schemas\n", done, len(cases))
				}
			})
			if failures {
				printReasons(os.Stderr, outcomes)
			}
			r := masks.Sum(outcomes)
			if asJSON {
				return json.NewEncoder(os.Stdout).Encode(r)
			}
			printGrammar(os.Stdout, r)
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&schemas, "schemas", "", "`file` of schemas with instances, one JSON object a line; .gz is "+
		"decompressed")
	f.StringVar(&vocab, "vocab", "llama3",
		"llama3, a `folder` with encoder.json and vocab.bpe or with tokenizer.model, or a GGUF file")
	f.StringVar(&only, "name", "", "run the case of this `name` alone")
	f.BoolVar(&narrow, "schema-order", false, "accept members only in the schema's order, as the daemon does, instead "+
		"of in any order")
	f.BoolVar(&failures, "failures", false, "print each schema that does not pass, and why, to stderr")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// grammarVocab opens the vocabulary that --vocab names.
func grammarVocab(name string) (*masks.Tokenizer, error) {
	if name == "llama3" {
		tree, err := enginetree.Find()
		if err != nil {
			return nil, fmt.Errorf("--vocab %s: %w; run it in the repository, or name a GGUF file or a folder with "+
				"encoder.json and vocab.bpe, or with tokenizer.model", name, err)
		}
		name = enginetree.VocabularyIn(tree, "llama-bpe")
	}
	if _, err := os.Stat(filepath.Join(name, "tokenizer.model")); err == nil {
		return masks.SentencePiece(name)
	}
	if !strings.HasSuffix(name, ".gguf") {
		return masks.Llama3(name)
	}
	if info, err := gguf.Brief(name); err == nil && info.Tensors == 0 {
		return masks.GGUF(name)
	}
	e, err := llama.Open(runtime.Options{ModelPath: name, ContextTokens: 64, Sequences: 1})
	if err != nil {
		return nil, err
	}
	return masks.OfVocab(e.Vocab()), nil
}

func printGrammar(w io.Writer, r masks.Report) {
	fmt.Fprintf(w, "schemas             %8d\n", r.Schemas)
	share := func(n int) float64 { return 100 * float64(n) / float64(max(r.Schemas, 1)) }
	for _, row := range []struct {
		name string
		n    int
	}{{"passing", r.Passing}, {"compile error", r.Compile}, {"validation error", r.Validation},
		{"invalidation error", r.Invalidation}} {
		fmt.Fprintf(w, "%-20s%8d  %5.1f %%\n", row.name, row.n, share(row.n))
	}
	fmt.Fprintf(w, "\n%-20s%10s%10s%10s%10s%10s\n", "microseconds", "avg", "p50", "p99", "p99.9", "max")
	for _, row := range []struct {
		name string
		s    masks.Spread
	}{{fmt.Sprintf("mask (%d)", r.Tokens), r.TBM}, {"first mask", r.TTFM}} {
		fmt.Fprintf(w, "%-20s%10.1f%10.1f%10.1f%10.1f%10.1f\n", row.name, row.s.Avg, row.s.P50, row.s.P99, row.s.P999,
			row.s.Max)
	}
}

// failure is one way in which a case does not pass.
type failure struct {
	kind string
	err  error
}

func failuresOf(o *masks.Outcome) []failure {
	all := []failure{{"compile", o.Compile}, {"validation", o.Validation}, {"invalidation", o.Invalidation}}
	return slices.DeleteFunc(all, func(f failure) bool { return f.err == nil })
}

// printFailure prints why a case does not pass.
func printFailure(w io.Writer, o *masks.Outcome) {
	for _, f := range failuresOf(o) {
		fmt.Fprintf(w, "%s: %s: %v\n", o.Name, f.kind, f.err)
	}
}

// printReasons prints how often each reason not to pass came.
func printReasons(w io.Writer, outcomes []masks.Outcome) {
	reasons := map[string]int{}
	for i := range outcomes {
		for _, f := range failuresOf(&outcomes[i]) {
			if _, ok := errors.AsType[*jsonschema.Error](f.err); ok {
				reasons[masks.Reason(f.err)]++
			} else {
				reasons[f.kind]++
			}
		}
	}
	keys := slices.SortedFunc(maps.Keys(reasons), func(a, b string) int {
		return cmp.Or(cmp.Compare(reasons[b], reasons[a]), strings.Compare(a, b))
	})
	for _, k := range keys {
		fmt.Fprintf(w, "%6d  %s\n", reasons[k], k)
	}
}
