package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/uma-serve/uma-serve/bench/real"
	"github.com/uma-serve/uma-serve/internal/testutil/daemonproc"
	"github.com/uma-serve/uma-serve/model/gguf"
	"github.com/uma-serve/uma-serve/runtime/ggufgen"
)

// imageProjectors are random ones, by name: one that is encoded in no time, so that decoding and resizing the image is
// all, and one of the size of a small CLIP, whose 1,024 patches take seconds on two cores.
var imageProjectors = []struct {
	name string
	ggufgen.Projector
}{
	{"small projector", ggufgen.Projector{Kind: ggufgen.Llava}},
	{"12 layers of 768", ggufgen.Projector{Kind: ggufgen.Llava, Image: 256, Layers: 12, Hidden: 768, FFN: 3072}},
}

// imageCheck sends an image of 4,096 × 4,096 pixels beside four streams, and again to a daemon that was started again.
func (o *realOptions) imageCheck(ctx context.Context) (real.Check, error) {
	start := time.Now()
	info, err := gguf.Inspect(o.model)
	if err != nil {
		return real.Check{}, err
	}
	dir, err := os.MkdirTemp("", "uma-bench")
	if err != nil {
		return real.Check{}, err
	}
	defer os.RemoveAll(dir)
	c := real.Sight{Streams: 4, Target: time.Duration(o.target * float64(time.Millisecond)), Alone: 5 * time.Second}
	var all []*real.Seen
	for i, p := range imageProjectors {
		p.Width, p.Seed = int(info.Embedding), 1
		file := filepath.Join(dir, fmt.Sprintf("mmproj%d.gguf", i))
		if err := ggufgen.WriteProjector(file, p.Projector); err != nil {
			return real.Check{}, err
		}
		args := append([]string{"--mmproj", file, "--ctx-size", "32768", "--itl-target-ms", fmt.Sprint(o.target),
			"--cache-dir", filepath.Join(dir, fmt.Sprintf("kv%d", i))}, o.threadArgs()...)
		var seen *real.Seen
		for restart := range 2 {
			if err := o.serve(args, func(d *daemonproc.Proc) (err error) {
				c.Ours = &real.Server{Name: "uma-serve", Socket: d.Socket}
				defer c.Ours.Close()
				c.Counter = func(name string) (float64, error) { return counter(d, name) }
				if restart == 0 {
					seen, err = c.Measure(ctx, p.name)
					return err
				}
				return c.Restarted(ctx, seen)
			}); err != nil {
				return real.Check{}, err
			}
		}
		all = append(all, seen)
	}
	return c.Judge(all, time.Since(start).Seconds()), nil
}

// counter reads one of a daemon's metrics.
func counter(d *daemonproc.Proc, name string) (float64, error) {
	text, err := d.Ask("metrics")
	if err != nil {
		return 0, err
	}
	var all map[string]any
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		return 0, fmt.Errorf("metrics: %w", err)
	}
	v, ok := all[name].(float64)
	if !ok {
		return 0, fmt.Errorf("metrics: there is no number %q", name)
	}
	return v, nil
}
