package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/uma-serve/uma-serve/internal/cli/ui"
	"github.com/uma-serve/uma-serve/internal/wireclient"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/reports"
	"github.com/uma-serve/uma-serve/runtime"
)

// adminTimeout bounds a question that the daemon answers without waiting for anything.
const adminTimeout = 10 * time.Second

func withTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, d, fmt.Errorf("the daemon did not answer within %v", d))
}

// query sends the daemon one question and prints the answer: the JSON unchanged, or the text that show returns.
func query[T any](
	cmd *cobra.Command, dial dialer, asJSON bool, q wireclient.Question, show func(*ui.Terminal, *T) (string, error),
) error {
	limit := adminTimeout
	if q.KV.Op != wire.KVShow {
		limit = kvTimeout
	}
	ctx, cancel := withTimeout(cmd.Context(), limit)
	defer cancel()
	c, err := dial(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	raw, err := c.Ask(ctx, q)
	if err != nil {
		return err
	}
	out := ui.Open(os.Stdout)
	if asJSON {
		return out.Println(string(raw))
	}
	answer := new(T)
	if err := raw.Decode(answer); err != nil {
		return fmt.Errorf("%s: %w", q.Kind, err)
	}
	text, err := show(out, answer)
	if err != nil {
		return err
	}
	return out.Print(text)
}

func newInfo(dial dialer) *cobra.Command {
	var asJSON, costModel bool
	cmd := &cobra.Command{
		Use:   "info",
		Short: "Show the model, the engine, the configuration and resource use",
		Example: `  uma-cli info
  uma-cli info --json | jq .model.path
  uma-cli info --cost-model >cost.json           # step times of this machine, for uma-sim
  uma-sim run --set cost_model=cost.json --set batch_formation=uma`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if asJSON && costModel {
				return usagef("--json and --cost-model exclude each other")
			}
			return query(cmd, dial, asJSON, wireclient.Question{Kind: wire.KindInfo},
				func(out *ui.Terminal, info *reports.Info) (string, error) {
					if costModel {
						return costModelJSON(info)
					}
					return infoTable(info).String(out.Dim), nil
				})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the daemon's answer as one line of JSON")
	cmd.Flags().BoolVar(&costModel, "cost-model", false, "print the cost model of a step, {a, b, c, d, e} in ms, for "+
		"uma-sim's key cost_model")
	return cmd
}

// costModelJSON returns the coefficients as JSON and reports their accuracy on standard error.
func costModelJSON(in *reports.Info) (string, error) {
	m := in.CostModel
	switch {
	case in.Status == "loading":
		return "", errors.New("the model is still loading; nothing is measured yet")
	case m == nil:
		return "", errors.New("this daemon reports no cost model; its version may differ from uma-cli's")
	case m.Samples == 0:
		return "", errors.New("the daemon has not measured a step yet; send it a request, then try again")
	}
	b, err := json.MarshalIndent(struct {
		A float64 `json:"a"`
		B float64 `json:"b"`
		C float64 `json:"c"`
		D float64 `json:"d"`
		E float64 `json:"e"`
	}{m.A, m.B, m.C, m.D, m.E}, "", "  ")
	if err != nil {
		return "", err
	}
	fmt.Fprintf(os.Stderr, "learned from %s steps; its predictions are off by %.1f %% on average\n",
		ui.Count(m.Samples), 100*m.Error)
	return string(b) + "\n", nil
}

func infoTable(in *reports.Info) *ui.Table {
	var t ui.Table
	t.Row("daemon", "%s, %s, pid %d, up %s", clean(in.Version), clean(in.Status), in.PID, ui.Duration(ms(in.UptimeMs)))
	t.Row("socket", "%s", clean(in.Socket))
	for _, ln := range in.Listeners {
		if ln.Network == "tcp" {
			scheme := "http"
			if ln.TLS {
				scheme = "https"
			}
			t.Row("listens on", "%s://%s, clients by %s", scheme, clean(ln.Address), clean(ln.Users))
		}
	}
	t.Row("engine", "%s", clean(in.Engine))
	t.Gap()
	if m := in.Model; m != nil {
		t.Row("model", "%s", clean(m.Name))
		t.Row("", "%s", clean(m.Description))
		t.Row("file", "%s", clean(m.Path))
		t.Row("parameters", "%s in %s", ui.Large(m.Parameters), ui.Bytes(m.Bytes))
		chat := "with the model's own template"
		if m.TemplateSource != "" {
			chat = "template: " + clean(m.TemplateSource)
		}
		if !m.ChatTemplate {
			if chat = "no"; m.NoChat != "" {
				chat += ": " + clean(m.NoChat)
			}
		} else if m.Thinks {
			chat += ", thinking is told apart"
		}
		t.Row("chat", "%s", chat)
		if m.ThinkMarkers != "" {
			think := "markers of the family " + clean(m.ThinkMarkers)
			if len(m.ThinkSwitch) > 0 {
				think += ", switched with " + clean(strings.Join(m.ThinkSwitch, ", "))
			}
			if len(m.ThinkPast) > 0 {
				think += ", earlier thoughts kept with " + clean(strings.Join(m.ThinkPast, ", "))
			}
			t.Row("thinking", "%s", think)
		}
		if e := m.Embeddings; e != nil {
			pooling := clean(string(e.Pooling))
			if e.Assumed {
				pooling += " (the file names none)"
			}
			t.Row("embeddings", "%s values, pooling %s, texts of up to %s tokens", ui.Count(e.Values), pooling,
				ui.Count(e.Longest))
		} else if m.NoEmbeddings != "" {
			t.Row("embeddings", "no: %s", clean(m.NoEmbeddings))
		}
		if r := m.Ranking; r != nil {
			t.Row("ranking", "pairs of a query and a document of up to %s tokens", ui.Count(r.Longest))
		}
		for _, a := range m.Adapters {
			when := "for the model " + clean(a.Name)
			if a.Scale != 0 {
				when = fmt.Sprintf("for every request, scale %v", a.Scale)
			}
			t.Row("adapter", "%s, %s, %s", clean(a.Name), ui.Bytes(uint64(a.Bytes)), when)
		}
		var c runtime.Capabilities
		if in.Capabilities != nil {
			c = *in.Capabilities
		}
		context := ui.Count(c.ContextTokens) + " tokens"
		if m.TrainContext > 0 {
			context += " (trained on " + ui.Count(m.TrainContext) + ")"
		}
		if in.Config.Context != "" {
			context += "; " + clean(in.Config.Context)
		}
		t.Row("context", "%s", context)
		if m.Encoder {
			t.Row("KV cache", "none: the model reads each text whole")
		} else {
			t.Row("KV cache", "%s/%s, %s a token", clean(m.KVTypeK), clean(m.KVTypeV),
				ui.Bytes(uint64(max(m.KVBytesPerToken, 0))))
			t.Row("", "%d sequences, of running requests and of cached prefixes", c.MaxSequences)
		}
		t.Row("device", "%s (%s), %s", clean(c.DeviceName), clean(string(c.Device)), threadsText(c.Threads, in.Threads))
		for _, d := range in.Devices {
			t.Row("", "%s", deviceText(&d))
		}
		if p := in.Power; p != nil && (p.Quiet || p.OnBattery || p.JoulesPerToken != nil) {
			t.Row("power", "%s", powerText(p))
		}
		if c.Kernels != "" {
			t.Row("kernels", "%s", kernelsText(clean(c.Kernels)))
		}
		if len(c.Ours) > 0 {
			t.Row("ours", "%s", clean(strings.Join(c.Ours, ", ")))
		}
		if len(c.LeftOut) > 0 {
			t.Row("left out", "%s: ggml computes this (docs/engines.md)", clean(strings.Join(c.LeftOut, ", ")))
		}
		t.Row("policy", "%s", clean(in.Config.Policy)+policyOptions(in.Config.PolicyOptions))
		t.Row("", "batches of %s tokens at most", ui.Count(c.MaxBatch))
		switch {
		case in.Config.NoSpeculation != "":
			t.Row("speculation", "none: %s", clean(in.Config.NoSpeculation))
		case in.Config.Speculate > 0:
			t.Row("speculation", "up to %s drafted tokens in a step of a request", ui.Count(in.Config.Speculate))
		}
		if d := in.Draft; d != nil {
			failed := ""
			if d.Failed {
				failed = ", which has failed and is not used any more"
			}
			what, name := "draft model", clean(d.Name)+" ("+clean(d.Description)+")"
			switch d.Kind {
			case "head":
				what, name = "head", "a layer of the model's file (MTP) drafts"
			case "eagle3", "dflash":
				what = "head (" + d.Kind + ")"
			}
			cells := fmt.Sprintf("%s cells for %s requests at once", ui.Count(d.ContextTokens), ui.Count(d.Sequences))
			if d.Kind == "gemma4-assistant" {
				what, cells = "head (assistant)", "reads the model's cells"
			}
			t.Row(what, "%s, %s, %s%s", name, cells, ui.Bytes(uint64(max(d.Bytes, 0))), failed)
		}
		if why := in.Config.NoHead; why != "" {
			t.Row("head", "a layer of the model's file, makes no drafts: %s", clean(why))
		}
		if m := in.CostModel; m != nil && m.Samples > 0 {
			t.Row("step cost", "%s + %s a prompt token + %s an answer + per 1,000 cells %s to read them and %s for "+
				"each token that looks at them", cost(m.A), cost(m.B), cost(m.C), cost(1000*m.E), cost(1000*m.D))
			t.Row("", "learned from %s steps, off by %.1f %% on average", ui.Count(m.Samples), 100*m.Error)
		}
		for _, p := range in.Prices {
			use := ""
			if !p.Used {
				use = ": computed, not restored"
			}
			t.Row(clean(p.Tier.String())+" cells", "%s tokens in %s, computing them takes %s%s", ui.Count(p.Tokens),
				cost(p.RestoreMs), cost(p.ComputeMs), use)
		}
		t.Gap()
	}
	size := func(n int64) string { return ui.Bytes(uint64(max(n, 0))) }
	repacked := ""
	if in.Memory.Repacked > 0 {
		repacked = ", repacked " + size(in.Memory.Repacked)
	}
	draft := ""
	if in.Memory.Draft > 0 {
		draft = ", drafts " + size(in.Memory.Draft)
	}
	t.Row("memory", "weights %s%s, KV %s%s, heap %s", size(in.Memory.Weights), repacked, size(in.Memory.KV), draft,
		size(in.Memory.GoHeap))
	if in.Memory.RSS > 0 {
		t.Row("", "resident %s", size(in.Memory.RSS))
	}
	if l := in.Lease; l != nil {
		t.Row("turns", "%s steps on %s, %s of them waited for other models, %s in all", ui.Count(l.Grants),
			clean(strings.Join(l.Devices, ", ")), ui.Count(l.Contended), cost(l.WaitedMs))
		if l.Without > 0 {
			t.Row("", "%s steps without the lease, because another model did not pass it on", ui.Count(l.Without))
		}
	}
	t.Row("requests", "%d of at most %d running, %d waiting", in.Live.Sequences, in.Config.Parallel,
		max(in.Live.Requests-int64(in.Live.Sequences), 0))
	t.Row("in use", "%s of %s KV cells by running requests", ui.Count(in.Live.LiveCells),
		ui.Count(in.Live.LiveCells+in.Live.FreeCells))
	t.Row("", "%d connections, %d goroutines, %d descriptors", in.Live.Sessions, in.Live.Goroutines,
		in.Live.Descriptors)
	return &t
}

// deviceText returns what the model has in the memory of a device.
func deviceText(d *reports.InfoDevice) string {
	text := clean(d.Name)
	if d.Weights+d.KV+d.Compute+d.Projector+d.Draft > 0 {
		text += fmt.Sprintf(": weights %s, KV %s, compute %s", ui.Bytes(d.Weights), ui.Bytes(d.KV), ui.Bytes(d.Compute))
		if d.Projector > 0 {
			text += ", projector " + ui.Bytes(d.Projector)
		}
		if d.Draft > 0 {
			text += ", draft model " + ui.Bytes(d.Draft)
		}
	} else {
		text += ": nothing of the model"
	}
	if d.Total > 0 {
		text += fmt.Sprintf("; %s of %s were free", ui.Bytes(d.Free), ui.Bytes(d.Total))
	}
	return text
}

// threadsText returns the number of compute threads that steps use, and the reason if it is less than all.
func threadsText(all int, in *reports.InfoThreads) string {
	if in == nil || in.Now == all {
		return fmt.Sprintf("%d threads", all)
	}
	why := map[string]string{"taken": "other processes take processors", "waiting": "they waited for processors",
		"throttled": "a quota stopped them"}[in.Reason]
	if why == "" {
		why = "--power"
	}
	return fmt.Sprintf("%d of %d threads: %s", in.Now, all, why)
}

// powerText returns the effect of --power, and the energy of a token.
func powerText(p *reports.InfoPower) string {
	text := clean(p.Mode)
	if p.Quiet {
		text += ", fewer threads"
	}
	if p.OnBattery {
		text += ", on battery"
	}
	if p.JoulesPerToken != nil {
		text += fmt.Sprintf(", %.2f J a token", *p.JoulesPerToken)
	}
	return text
}

// kernelsText names the CPU kernels for matrix products and attention: ggml's or our own.
func kernelsText(name string) string {
	if name == "ggml" {
		return "ggml's"
	}
	return "uma-serve's, " + name
}

// policyOptions lists the options of the policy with their values, times with a unit.
func policyOptions(options []reports.PolicyOption) string {
	var b strings.Builder
	for i, o := range options {
		sep := ", "
		if i == 0 {
			sep = ": "
		}
		name, value := o.Name, strconv.FormatFloat(o.Value, 'g', -1, 64)
		if short, ok := strings.CutSuffix(name, "-ms"); ok {
			name, value = short, ui.Duration(time.Duration(o.Value*float64(time.Millisecond)))
			if o.Value == 0 {
				value = "off"
			}
		}
		b.WriteString(sep + clean(name) + " " + value)
	}
	return b.String()
}

func cost(v float64) string { return ui.Duration(time.Duration(v * float64(time.Millisecond))) }

// clean makes text from outside safe for a terminal.
func clean(s string) string { return ui.Sanitize(s) }
