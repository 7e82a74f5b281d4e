package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/uma-serve/uma-serve/internal/testutil/daemonproc"
	"github.com/uma-serve/uma-serve/internal/wireclient"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// sharing: requests with a common prefix, some at a time.
func (cfg *KVConfig) sharing() (rows []KVRow, err error) {
	args := []string{"--ctx-size", "8192", "--parallel", fmt.Sprint(kvAtOnce)}
	err = with(cfg.Start, args, func(p *daemonproc.Proc) error {
		w, err := newWriter(p.Socket)
		if err != nil {
			return err
		}
		var all []sharingRound
		for i := range kvRounds {
			r, err := cfg.shareOnce(p, w, i)
			if err != nil {
				return err
			}
			all = append(all, r)
		}
		each := func(of func(r *sharingRound) float64) (x []float64) {
			for i := range all {
				x = append(x, of(&all[i]))
			}
			return x
		}
		against := fmt.Sprintf("a lone cold request, %.0f ms",
			median(each(func(r *sharingRound) float64 { return r.cold })))
		// Worst of a round, median of the rounds: a lone request and those compared with it are seconds apart, and a
		// shared machine changes its speed by a tenth meanwhile.
		times := func(of func(r *sharingRound) []float64) (text string, ratio float64) {
			worst := each(func(r *sharingRound) float64 { return slices.Max(of(r)) })
			ratios := each(func(r *sharingRound) float64 { return slices.Max(of(r)) / r.cold })
			return fmt.Sprintf("%.0f ms, of %d rounds %.3f … %.3f (median request %.0f)", median(worst), len(all),
				slices.Min(ratios), slices.Max(ratios),
				median(each(func(r *sharingRound) float64 { return median(of(r)) }))), median(ratios)
		}
		var computed, needed float64
		for i := range all {
			computed, needed = computed+all[i].computed, needed+all[i].needed
		}
		n := float64(len(all))
		rows = append(rows, KVRow{"sharing", "prompt tokens computed", fmt.Sprintf("%.0f", computed/n),
			fmt.Sprintf("the prefix once, %.0f", needed/n), computed / needed, "≤ 1.02", computed <= 1.02*needed})
		text, ratio := times(func(r *sharingRound) []float64 { return []float64{r.first} })
		rows = append(rows, KVRow{"sharing", "first request", text, against, ratio, "–", true})
		text, ratio = times(func(r *sharingRound) []float64 { return r.joiners })
		rows = append(rows, atMost("sharing", fmt.Sprintf("the %d beside it, worst", kvAtOnce-1), text, against,
			ratio, 1.2, ""))
		text, ratio = times(func(r *sharingRound) []float64 { return r.later })
		rows = append(rows, atMost("sharing", fmt.Sprintf("the %d later ones, worst", kvRequests-kvAtOnce), text,
			against, ratio, 0.2, ""))
		return nil
	})
	return rows, err
}

// sharingRound is the result for one prefix: times to first tokens in milliseconds, and prompt tokens.
type sharingRound struct {
	cold, first      float64
	joiners, later   []float64
	computed, needed float64
}

// shareOnce asks a lone cold request, and then kvRequests that share a new prefix.
func (cfg *KVConfig) shareOnce(p *daemonproc.Proc, w writer, round int) (out sharingRound, err error) {
	lone, err := askKV(p.Socket, w.text(round, 901, kvPrefix+kvUnique), 8, nil)
	if err != nil {
		return out, err
	}
	out.cold = ms(lone.ttft)
	// The daemon's tokenizer counts the prefix; then it is dropped from the cache.
	shared := w.text(round, 902, kvPrefix)
	alone, err := askKV(p.Socket, shared, 1, nil)
	if err != nil {
		return out, err
	}
	if err := dropAll(p.Socket); err != nil {
		return out, err
	}
	before, err := counters(p)
	if err != nil {
		return out, err
	}
	replies := make([]reply, kvRequests)
	errs := make([]error, kvRequests)
	next := make(chan int, kvRequests)
	for i := range kvRequests {
		next <- i
	}
	close(next)
	var wg sync.WaitGroup
	for k := range kvAtOnce {
		wg.Go(func() {
			time.Sleep(time.Duration(k) * 2 * time.Millisecond) // so that request 0 arrives first
			for i := range next {
				replies[i], errs[i] = askKV(p.Socket, shared+w.text(i, 903, kvUnique), 8, nil)
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return out, err
	}
	after, err := counters(p)
	if err != nil {
		return out, err
	}
	// Where the tokenizer joins the prefix's end with the next text, that token is not shared.
	out.needed = float64(alone.eos.Usage.PromptTokens)
	out.computed = after("prefill_tokens_merged_total") - before("prefill_tokens_merged_total")
	for i, r := range replies {
		out.needed += float64(r.eos.Usage.PromptTokens - alone.eos.Usage.PromptTokens)
		switch {
		case i == 0:
			out.first = ms(r.ttft)
		case i < kvAtOnce:
			out.joiners = append(out.joiners, ms(r.ttft))
		default:
			out.later = append(out.later, ms(r.ttft))
		}
	}
	return out, nil
}

// dropAll takes cached prefixes out of the pool, and their copies out of the tiers below.
func dropAll(socket string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := wireclient.Dial(ctx, socket)
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.KVDo(ctx, wire.KVDrop, "all")
	return err
}
