package real

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
)

// Truth says how far both servers are, at the places where their tokens differ, from the same weights in F32.
//
// Both round activations to 8 bits, each in its own order of sums, so a place where they are far apart does not tell
// which of them is wrong. Weights in F32 round no activations.
type Truth struct {
	Places int      `json:"places"` // of both servers' partings, those where all three tell alternatives
	Ours   Distance `json:"ours"`
	Theirs Distance `json:"theirs"`
}

// Place is the truth at one place: the most likely token of the weights in F32, and both servers' distances.
type Place struct {
	Token  string  `json:"token"`
	Ours   float64 `json:"ours"`
	Theirs float64 `json:"theirs"`
}

// Distance is of distances over places.
type Distance struct {
	Mean float64 `json:"mean"`
	Max  float64 `json:"max"`
}

func (d *Distance) add(v float64, places int) {
	d.Mean += v / float64(places)
	d.Max = max(d.Max, v)
}

// distance returns the share of probability that a server has on other tokens than the truth, 0 … 1: the total
// variation between the two over the truth's alternatives and all other tokens together.
func distance(truth, server *Token) float64 {
	sum, restTruth, restServer := 0., 1., 1.
	for i := range truth.Top {
		p, q := math.Exp(truth.Top[i].Logprob), 0.
		if lp, known := server.logprob(truth.Top[i].ID); known {
			q = math.Exp(lp)
		}
		sum += math.Abs(p - q)
		restTruth -= p
		restServer -= q
	}
	return (sum + math.Abs(restTruth-restServer)) / 2
}

// meanSlack is the factor by which uma-serve's mean distance from the truth may exceed llama-server's: a hundred places
// of equal rounding leave the two means within a quarter of each other.
const meanSlack = 1.25

// explain asks s, which computes the weights in F32, at each parting, and notes which of those that are no near ties
// are explained: the places where uma-serve is no further from the truth than llama-server is there, or at its
// furthest. Partings are chosen by both servers' words alike, so over all of them neither is favoured: nothing is
// explained where uma-serve is further from the truth in the mean.
func (g *Greedy) explain(ctx context.Context, s *Server) error {
	var places []*Parting
	for i := range g.Partings {
		p := &g.Partings[i]
		if len(p.ours.Top) == 0 || len(p.theirs.Top) == 0 {
			continue
		}
		c, err := s.Complete(ctx, p.row, 1)
		if err != nil {
			return err
		}
		if len(c.Probs) == 0 || len(c.Probs[0].Top) == 0 {
			continue
		}
		truth := &c.Probs[0]
		p.Truth = &Place{truth.Text, distance(truth, &p.ours), distance(truth, &p.theirs)}
		places = append(places, p)
	}
	t := &Truth{Places: len(places)}
	g.Truth = t
	for _, p := range places {
		t.Ours.add(p.Truth.Ours, len(places))
		t.Theirs.add(p.Truth.Theirs, len(places))
	}
	if t.Ours.Mean > meanSlack*t.Theirs.Mean {
		return nil
	}
	for _, p := range places {
		p.Explained = !p.Near && p.Truth.Ours <= t.Theirs.Max
	}
	return nil
}

// explain is Greedy.explain with a server that c.Truth starts.
func (c *Compare) explain(ctx context.Context, g *Greedy) error {
	s, stop, err := c.Truth(ctx)
	if err != nil {
		return err
	}
	defer stop()
	if err := g.explain(ctx, s); err != nil {
		return err
	}
	g.count()
	return nil
}

// String describes a place for a report.
func (p *Parting) String() string {
	text := fmt.Sprintf("token %d is %q, llama-server's %q, a gap of %.3f nats", p.At, p.Ours, p.Theirs, p.Gap)
	if t := p.Truth; t != nil {
		text += fmt.Sprintf("; the weights in F32 say %q, from which uma-serve is %.3f off, llama-server %.3f", t.Token,
			t.Ours, t.Theirs)
	}
	return text
}

// CopyF32 writes the weights of model in F32 into a temporary folder: four bytes a parameter. quantize is
// llama-quantize. The caller calls remove.
func CopyF32(ctx context.Context, quantize, model string) (path string, remove func() error, err error) {
	dir, err := os.MkdirTemp("", "uma-f32")
	if err != nil {
		return "", nil, err
	}
	path = filepath.Join(dir, "f32.gguf")
	out, err := exec.CommandContext(ctx, quantize, "--allow-requantize", model, path, "F32").CombinedOutput()
	if err != nil {
		err = fmt.Errorf("the weights in F32: %s: %w\n%s", quantize, err, out[max(0, len(out)-2000):])
		return "", nil, errors.Join(err, os.RemoveAll(dir))
	}
	return path, func() error { return os.RemoveAll(dir) }, nil
}

// StartTruth starts a llama-server with the weights of model in F32 (CopyF32), computed without flash attention and
// with an F32 cache. The caller calls stop.
func StartTruth(ctx context.Context, server, quantize, model string, threads int) (s *Server, stop func(), err error) {
	path, remove, err := CopyF32(ctx, quantize, model)
	if err != nil {
		return nil, nil, err
	}
	p, err := StartLlamaServer(ctx, server, path, slices.Concat([]string{"-c", "16384", "--parallel", "1",
		"--flash-attn", "off", "--cache-type-k", "f32", "--cache-type-v", "f32"}, threadArgs(threads))...)
	if err != nil {
		return nil, nil, errors.Join(err, remove())
	}
	return p.Server, func() {
		p.Stop()
		remove()
	}, nil
}

func threadArgs(n int) []string {
	if n == 0 {
		return nil
	}
	return []string{"--threads", strconv.Itoa(n)}
}
