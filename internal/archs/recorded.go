package main

import (
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sync/errgroup"
)

// One model in ten is kept as a skeleton beside llama-server's answers, so that the comparison runs where llama-server
// is not built.

const (
	skeletonEnd = ".skeleton.gz"
	answersEnd  = ".answers.gz"
	oneIn       = 10
)

// key stands for a prompt in a recording.
func key(tokens []int32) string {
	h := fnv.New64a()
	fmt.Fprint(h, tokens)
	return fmt.Sprintf("%d-%016x", len(tokens), h.Sum64())
}

// rewrite records every tenth of the saved models in a folder, whose content it replaces.
func rewrite(t tools, saved []string, ready, folder string, parallel int) error {
	for _, end := range []string{skeletonEnd, answersEnd} {
		old, err := filepath.Glob(filepath.Join(folder, "*"+end))
		if err != nil {
			return err
		}
		for _, path := range old {
			if err := os.Remove(path); err != nil {
				return err
			}
		}
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	var g errgroup.Group
	g.SetLimit(parallel)
	for i := oneIn / 2; i < len(saved); i += oneIn {
		g.Go(func() error {
			// The next one that generates stands in for one that does not.
			for j := i; j < min(i+oneIn, len(saved)); j++ {
				ok, err := recordOne(t, saved[j], ready, folder)
				if err != nil {
					return fmt.Errorf("%s: %w", saved[j], err)
				}
				if ok {
					break
				}
			}
			return nil
		})
	}
	return g.Wait()
}

// recordOne records one model. ok is false for a model that generates no text.
func recordOne(t tools, saved, ready, folder string) (ok bool, err error) {
	name := strings.TrimSuffix(filepath.Base(saved), ".gguf")
	model := filepath.Join(ready, name+".gguf")
	skeleton := filepath.Join(folder, name+skeletonEnd)
	if err := complete(saved, model); err != nil {
		return false, err
	}
	if err := saveSkeleton(model, skeleton); err != nil {
		return false, err
	}
	if err := revive(skeleton, model); err != nil {
		return false, err
	}
	dir, err := os.MkdirTemp("", "archs")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(dir)
	known := map[string]*answer{}
	r := run(t, model, dir, known)
	fmt.Println(name, r.Refused, r.Note, "apart:", r.apart(), len(known), "answers")
	if len(known) == 0 {
		return false, os.Remove(skeleton)
	}
	if r.apart() {
		return false, errors.New("it differs from llama-server: make archs says how")
	}
	f, err := os.Create(filepath.Join(folder, name+answersEnd))
	if err != nil {
		return false, err
	}
	defer f.Close()
	z, _ := gzip.NewWriterLevel(f, gzip.BestCompression) // the level is valid
	return true, errors.Join(json.NewEncoder(z).Encode(known), z.Close())
}
