// Archs compares uma-serve with llama-server on a small random model of each architecture, and writes
// docs/architectures.md. scripts/archs.sh builds what it needs and calls it; `make archs` calls that.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"sync"
	"time"
)

func main() {
	if err := command(); err != nil {
		fmt.Fprintln(os.Stderr, "archs:", err)
		os.Exit(1)
	}
}

func command() error {
	var t tools
	var models, work, doc, only, record string
	var parallel int
	var keep, heads bool
	var limit time.Duration
	flag.StringVar(&t.ours, "ours", "bin/uma-serve", "the built uma-serve")
	flag.StringVar(&t.reference, "reference", "", "llama-server of the same tree")
	flag.StringVar(&models, "models", "", "folder of models as llama.cpp's generator saves them")
	flag.StringVar(&work, "work", "", "folder for the models with a vocabulary, and results")
	flag.StringVar(&doc, "doc", "", "file to write the table to; with -only nothing is written")
	flag.StringVar(&only, "only", "", "regular expression of file names")
	flag.StringVar(&record, "rewrite", "", "folder for the skeletons and recorded answers of one model in ten")
	flag.BoolVar(&keep, "keep", false, "take what an interrupted run has found equal; compare the others")
	flag.BoolVar(&heads, "heads", false, "compare the answers with heads alone, and write their part of the table")
	flag.DurationVar(&limit, "limit", 0, "begin no model after this time; the table names those that are left; 0: none")
	flag.IntVar(&parallel, "parallel", runtime.NumCPU(), "models at a time")
	flag.Parse()
	if t.reference == "" || models == "" || work == "" {
		return fmt.Errorf("-reference, -models and -work are needed; scripts/archs.sh sets them")
	}
	match, err := regexp.Compile(only)
	if err != nil {
		return fmt.Errorf("-only: %w", err)
	}
	saved, err := modelFiles(models)
	if err != nil {
		return err
	}
	ready := filepath.Join(work, "ready")
	if err := os.MkdirAll(ready, 0o755); err != nil {
		return err
	}
	saved = slices.DeleteFunc(saved, func(path string) bool { return !match.MatchString(filepath.Base(path)) })
	if record != "" {
		return rewrite(t, saved, ready, record, max(parallel, 1))
	}
	results := make([]*result, len(saved))
	var mu sync.Mutex
	say := func(line string) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Println(line)
	}
	begin := time.Now()
	next := make(chan int)
	var wait sync.WaitGroup
	for range max(parallel, 1) {
		wait.Go(func() {
			for i := range next {
				found := filepath.Join(work, filepath.Base(saved[i])+".json")
				if b, err := os.ReadFile(found); err == nil && keep && json.Unmarshal(b, &results[i]) == nil &&
					!results[i].apart() {
					continue
				}
				if limit > 0 && time.Since(begin) > limit {
					if results[i] == nil {
						results[i] = &result{File: filepath.Base(saved[i]), Note: "not compared: the run was too short"}
					}
					continue
				}
				results[i] = one(t, saved[i], ready, heads, say)
				if b, err := json.Marshal(results[i]); err == nil && !heads {
					os.WriteFile(found, b, 0o644)
				} else {
					os.Remove(found)
				}
			}
		})
	}
	for i := range saved {
		next <- i
	}
	close(next)
	wait.Wait()
	s := count(results)
	if heads {
		return headsOnly(results, doc)
	}
	fmt.Println(s)
	if doc != "" && only == "" {
		if err := os.WriteFile(doc, table(results), 0o644); err != nil {
			return err
		}
	}
	if s.apart > 0 {
		return fmt.Errorf("%d models differ from llama-server", s.apart)
	}
	return nil
}

// one gives a saved model its vocabulary and compares it; with heads, only with its heads.
func one(t tools, saved, ready string, heads bool, say func(string)) *result {
	fail := func(err error) *result {
		say(fmt.Sprintf("%s: %v", filepath.Base(saved), err))
		return &result{File: filepath.Base(saved), Cells: map[string]*cell{"prompts": {Failed: err.Error()}}}
	}
	model := filepath.Join(ready, filepath.Base(saved))
	if err := complete(saved, model); err != nil {
		return fail(err)
	}
	dir, err := os.MkdirTemp("", "archs")
	if err != nil {
		return fail(err)
	}
	defer os.RemoveAll(dir)
	if heads {
		r := &result{File: filepath.Base(model)}
		r.addHeads(t, model)
		say(r.File + r.headsText())
		return r
	}
	return timed(t, model, dir, say)
}
