package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/uma-serve/uma-serve/cmd/uma-cli/internal/chat"
	"github.com/uma-serve/uma-serve/internal/cli/ui"
	"github.com/uma-serve/uma-serve/internal/wireclient"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// embedding has the flags of embed: those of the request, and those of the output.
type embedding struct {
	files      []string
	lines      bool
	json       bool
	verbose    bool
	dimensions int
	normalize  int
	truncate   bool
	background bool
	timeout    time.Duration
}

func newEmbed(dial dialer) *cobra.Command {
	var q embedding
	cmd := &cobra.Command{
		Use:   "embed [TEXT]…",
		Short: "Print the embeddings of texts",
		Long: `Print the embeddings of texts: one line of numbers for each text, in the order of the arguments, then of
the files. Each argument is a text; each --file is a text, or with --lines each of its lines is one. Without arguments
and files, standard input is read as a file.

With --json a line is {"index":…,"tokens":…,"embedding":[…]}, with "truncated":true if the text was cut to so many
tokens. If the model's pooling is "none", each token has a line, whose "row" is the token's number.

Exit status: 0 done · 1 refused or failed · 2 wrong usage · 3 no daemon · 130 interrupted.`,
		Example: `  uma-cli embed "a text" "another text"
  uma-cli embed --file notes.txt --json
  uma-cli embed --lines --file sentences.txt >vectors.txt
  uma-cli embed --priority background --truncate --lines --file corpus.txt --json >vectors.jsonl`,
		RunE: func(cmd *cobra.Command, args []string) error { return q.run(cmd.Context(), dial, args) },
	}
	fs := cmd.Flags()
	fs.StringArrayVarP(&q.files, "file", "f", nil, "embed the text of `FILE`; repeatable")
	fs.BoolVar(&q.lines, "lines", false, "each line of a file, or of standard input, is a text; empty lines are left "+
		"out")
	fs.BoolVar(&q.json, "json", false, "print one JSON object a line")
	fs.IntVar(&q.dimensions, "dimensions", 0, "shorten embeddings to `N` values, where the model was trained for it; "+
		"0 = all")
	fs.IntVar(&q.normalize, "normalize", wire.NormalizeL2,
		"scale to a `P`-norm of 1; 0 = to a largest value of 32760, -1 = not at all")
	fs.BoolVar(&q.truncate, "truncate", false, "cut texts that are too long for the model, instead of refusing them")
	priority := fs.String("priority", "interactive", "interactive or background (answers and other texts go first)")
	fs.BoolVarP(&q.verbose, "verbose", "v", false, "print token counts and times on standard error")
	fs.DurationVar(&q.timeout, "timeout", 0, "cancel the request after this time, such as 90s; 0 = never")
	fs.SortFlags = false
	completeWords(cmd, "priority", "interactive", "background")
	cmd.PreRunE = func(*cobra.Command, []string) error {
		switch *priority {
		case "interactive", "background":
			q.background = *priority == "background"
			return nil
		}
		return usagef("--priority is %q; it must be interactive or background", *priority)
	}
	return cmd
}

// texts returns the texts to embed: the arguments and the files, or standard input if there are neither.
func (q *embedding) texts(args []string, stdin io.Reader) ([]string, error) {
	list := append([]string(nil), args...)
	read := func(name string, r io.Reader) error {
		b, err := io.ReadAll(io.LimitReader(r, wire.MaxFrameBytes+1))
		switch {
		case err != nil:
			return fmt.Errorf("read %s: %w", name, err)
		case len(b) > wire.MaxFrameBytes:
			return usagef("%s has more than %d MiB of text, the most a request can hold", name, wire.MaxFrameBytes>>20+
				1)
		case bytes.IndexByte(b, 0) >= 0 || !utf8.Valid(b):
			return usagef("%s is not UTF-8 text", name)
		case len(bytes.TrimSpace(b)) == 0:
			return usagef("%s has no text", name)
		case !q.lines:
			list = append(list, strings.TrimRight(string(b), "\r\n"))
			return nil
		}
		for line := range strings.Lines(string(b)) {
			if strings.TrimSpace(line) != "" {
				list = append(list, strings.TrimRight(line, "\r\n"))
			}
		}
		return nil
	}
	for _, name := range q.files {
		f, err := os.Open(chat.ExpandHome(name))
		if err != nil {
			return nil, fmt.Errorf("--file: %w", err)
		}
		err = read(name, f)
		f.Close()
		if err != nil {
			return nil, err
		}
	}
	if len(args) == 0 && len(q.files) == 0 && stdin != nil {
		if err := read("standard input", stdin); err != nil {
			return nil, err
		}
	}
	switch {
	case len(list) == 0:
		return nil, usagef(`there is no text: uma-cli embed "a text", --file FILE, or text on standard input`)
	case len(list) > wire.MaxEmbedInputs:
		return nil, usagef("%d texts; one request has at most %d", len(list), wire.MaxEmbedInputs)
	}
	return list, nil
}

func (q *embedding) run(ctx context.Context, dial dialer, args []string) error {
	var stdin io.Reader
	if !isTerminal(os.Stdin) {
		stdin = os.Stdin
	}
	texts, err := q.texts(args, stdin)
	switch {
	case err != nil:
		return err
	case q.dimensions < 0 || q.dimensions > wire.MaxDimensions:
		return usagef("--dimensions is %d; it must be 0 (all) … %d", q.dimensions, wire.MaxDimensions)
	case q.normalize < wire.NormalizeNone || q.normalize > wire.MaxNormalize:
		return usagef("--normalize is %d; it must be %d…%d", q.normalize, wire.NormalizeNone, wire.MaxNormalize)
	case q.timeout < 0:
		return usagef("--timeout is %v; it must be 0 (none) or more", q.timeout)
	}
	signalled, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx = signalled
	if q.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, q.timeout,
			fmt.Errorf("not done within %v (--timeout); the request was cancelled", q.timeout))
		defer cancel()
	}
	if err = q.embed(ctx, dial, texts); err != nil && signalled.Err() != nil {
		return chat.ErrInterrupt
	}
	return err
}

// embed asks for the embeddings of texts and prints them.
func (q *embedding) embed(ctx context.Context, dial dialer, texts []string) error {
	c, err := dial(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	req := wireclient.EmbedTexts(texts...)
	req.Dimensions, req.Normalize, req.Truncate = q.dimensions, q.normalize, q.truncate
	if q.background {
		req.Priority = wire.PriorityBackground
	}
	found, err := c.Embed(ctx, req)
	if err != nil {
		return err
	}
	if err := q.print(ui.Open(os.Stdout), found); err != nil {
		return err
	}
	if q.verbose {
		t := &found.Timings
		aside := ui.Open(os.Stderr)
		aside.Println(aside.Dim(fmt.Sprintf("%d texts, %s tokens; waited %s, then %s", len(texts),
			ui.Count(found.Usage.PromptTokens), ui.Duration(t.Queue), ui.Duration(t.Prefill+t.Decode))))
	}
	return nil
}

// shownEmbedding is a line of --json.
type shownEmbedding struct {
	Index     int       `json:"index"`
	Row       *int      `json:"row,omitempty"`
	Tokens    int       `json:"tokens"`
	Truncated bool      `json:"truncated,omitempty"`
	Embedding []float32 `json:"embedding"`
}

func (q *embedding) print(out *ui.Terminal, found *wireclient.Embeddings) error {
	var line []byte
	for i, rows := range found.Rows {
		for k, v := range rows {
			line = line[:0]
			if q.json {
				shown := shownEmbedding{Index: i, Tokens: found.Tokens[i], Truncated: found.Truncated[i], Embedding: v}
				if len(rows) > 1 {
					shown.Row = &k
				}
				b, err := json.Marshal(&shown)
				if err != nil {
					return err
				}
				line = append(line, b...)
			} else {
				for j, x := range v {
					if j > 0 {
						line = append(line, ' ')
					}
					line = strconv.AppendFloat(line, float64(x), 'g', -1, 32)
				}
			}
			if err := out.Println(string(line)); err != nil {
				return err
			}
		}
	}
	return nil
}
