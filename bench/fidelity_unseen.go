package bench

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/uma-serve/uma-serve/internal/testutil/daemonproc"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// UnseenWorkloads are three more: agent-chain (3 agents of 6 turns; each turn adds a tool result to the prompt),
// two-app (an editor's short completions, Poisson arrivals, beside 2 clients of background work with long prompts) and
// long-context (prompts of about 1,650 tokens and twice, four and eight times as many, one at a time). scale shortens
// them for tests: 1 is the whole.
func UnseenWorkloads(scale float64) []FidelityWorkload {
	n := func(whole int) int { return max(1, int(float64(whole)*scale)) }
	return []FidelityWorkload{
		{"agent-chain", func(p *daemonproc.Proc, log func(Served)) error {
			return agentChain(p, 500, 3, n(6), n(400), n(64), log)
		}},
		{"two-app", func(p *daemonproc.Proc, log func(Served)) error {
			return twoApp(p, 600, 2, n(40), n(1500), time.Duration(n(1000))*time.Millisecond, log)
		}},
		{"long-context", func(p *daemonproc.Proc, log func(Served)) error {
			return longContext(p, 700, 3, min(1024, n(8192)), n(8192), n(48), log)
		}},
	}
}

// agentChain lets each agent ask turn after turn: the same beginning, and what its tools have answered so far. A tool
// takes 200 ms.
func agentChain(p *daemonproc.Proc, seed, agents, turns, system, tokens int, log func(Served)) error {
	origin := time.Now()
	shared := prompt(0, seed, system)
	return concurrently(agents, func(i int) error {
		text := shared + " " + prompt(i, seed+1, 60)
		for turn := range turns {
			a, err := begin(p, streaming(text, tokens), fmt.Sprintf("turn %d", turn+1), origin)
			if err == nil {
				err = a.wait(nil)
				log(a.Served)
			}
			if err != nil {
				return err
			}
			text += " " + prompt(i*100+turn, seed+2, 120)
			time.Sleep(200 * time.Millisecond)
		}
		return nil
	})
}

// twoApp lets an editor ask edits times, every so long on average whatever the answers, while clients of background
// work ask one after the other until it has its answers.
func twoApp(p *daemonproc.Proc, seed, clients, edits, length int, every time.Duration, log func(Served)) error {
	origin := time.Now()
	over := make(chan struct{})
	stopped := func() bool {
		select {
		case <-over:
			return true
		default:
			return false
		}
	}
	var batch sync.WaitGroup
	errs := make([]error, clients)
	for c := range clients {
		batch.Go(func() {
			for k := 0; !stopped(); k++ {
				r := streaming(prompt(c*1000+k, seed, length), 100)
				r.Priority = wire.PriorityBackground
				a, err := begin(p, r, "batch", origin)
				if err == nil {
					err = a.wait(stopped)
					log(a.Served)
				}
				if err != nil {
					errs[c] = err
					return
				}
			}
		})
	}
	rng := rand.New(rand.NewPCG(uint64(seed), 1))
	var editor sync.WaitGroup
	asked := make([]error, edits)
	at := origin.Add(every)
	for i := range edits {
		r := streaming(prompt(i, seed+1, 100+rng.IntN(300)), 8+rng.IntN(24))
		time.Sleep(time.Until(at))
		at = at.Add(time.Duration(rng.ExpFloat64() * float64(every)))
		editor.Go(func() {
			a, err := begin(p, r, "editor", origin)
			if err == nil {
				err = a.wait(nil)
				log(a.Served)
			}
			asked[i] = err
		})
	}
	editor.Wait()
	close(over)
	batch.Wait()
	return errors.Join(append(errs, asked...)...)
}

// longContext asks prompts of a first length (about 1.6 tokens to each of it) and twice as many each time, up to a
// longest, rounds times.
func longContext(p *daemonproc.Proc, seed, rounds, first, longest, tokens int, log func(Served)) error {
	origin := time.Now()
	for length := first; length <= longest; length *= 2 {
		for round := range rounds {
			a, err := begin(p, streaming(prompt(round, seed+length, length), tokens), fmt.Sprintf("%d tokens", length),
				origin)
			if err == nil {
				err = a.wait(nil)
				log(a.Served)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}
