package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/uma-serve/uma-serve/internal/cli/clierr"
	"github.com/uma-serve/uma-serve/sim/workload"
)

// inputs are a server and a workload, as files and --set describe them.
type inputs struct {
	serverFile   string
	workloadFile string
	set          []string // KEY=VALUE
	seed         int64

	command *pflag.FlagSet // nil: none
	keys    *pflag.FlagSet // all keys of both; those that were given have Changed
	server  serverFlags
	work    workloadFlags
}

const serverUsage = "the simulated server: a `FILE` of keys (JSON; uma-sim keys lists them)"

// register declares the flags of a verb that takes one server and one workload.
func (in *inputs) register(fs *pflag.FlagSet) {
	in.command = fs
	fs.StringVar(&in.serverFile, "server", "", serverUsage)
	fs.StringVar(&in.workloadFile, "workload", "", "the requests: a `FILE` (keys, a specification, a trace, a "+
		"recording of uma-serve) or one of distribution, meridian, "+strings.Join(workload.PresetNames(), ", "))
	in.registerSet(fs)
}

func (in *inputs) registerSet(fs *pflag.FlagSet) {
	fs.StringArrayVar(&in.set, "set", nil, "set a `KEY=VALUE` over those of the files; repeatable")
	fs.Int64Var(&in.seed, "seed", 42, "random seed")
}

// init makes the keys. warn gets what does not end the command.
func (in *inputs) init(warn io.Writer) {
	in.keys = pflag.NewFlagSet("--set", pflag.ContinueOnError)
	in.server.register(in.keys)
	in.work.register(in.keys)
	in.server.warnTo(warn)
}

// load reads the files. Call it once, after the command line.
func (in *inputs) load(warn io.Writer) error {
	in.init(warn)
	if in.serverFile != "" {
		if err := in.loadServer(in.serverFile); err != nil {
			return err
		}
	}
	if in.workloadFile != "" {
		if err := in.loadWorkload(in.workloadFile); err != nil {
			return err
		}
	}
	for _, pair := range in.set {
		key, value, ok := strings.Cut(pair, "=")
		if !ok {
			return usagef("--set %s: want KEY=VALUE", pair)
		}
		if err := in.assign(strings.TrimSpace(key), strings.TrimSpace(value)); err != nil {
			return usageError{fmt.Errorf("--set %w", err)}
		}
	}
	if in.command != nil && in.command.Changed("seed") {
		return in.assign("seed", fmt.Sprint(in.seed))
	}
	return nil
}

// assign sets a key, by its name in a file or with - for _.
func (in *inputs) assign(key, value string) error {
	name := strings.ReplaceAll(key, "_", "-")
	for flag, of := range keyOf {
		if of == key {
			name = flag
		}
	}
	f := in.keys.Lookup(name)
	if f == nil {
		text := ""
		if near := clierr.Nearest(name, clierr.FlagNames(in.keys)); near != "" {
			text = "; did you mean " + strings.ReplaceAll(near, "-", "_") + "?"
		}
		return fmt.Errorf("%s: there is no such key%s", key, text)
	}
	if err := in.keys.Set(f.Name, value); err != nil {
		return fmt.Errorf("%s=%s: %w", key, value, clierr.Value(f, errors.Unwrap(err)))
	}
	return nil
}

// serverOnly are keys of a server's file that are not in blis.Config: they say where its numbers are.
var serverOnly = []string{"model", "vllm_version", "cost_model"}

func (in *inputs) loadServer(file string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var keys map[string]any
	if err := json.Unmarshal(data, &keys); err == nil { // ReadConfig reports its errors with their line
		for _, key := range serverOnly {
			text, ok := keys[key].(string)
			if !ok {
				continue
			}
			if key == "cost_model" && !filepath.IsAbs(text) {
				text = filepath.Join(filepath.Dir(file), text)
			}
			if err := in.assign(key, text); err != nil {
				return fmt.Errorf("%s: %w", file, err)
			}
		}
	}
	in.server.config, in.server.has = file, keys
	return nil
}

// loadWorkload takes a preset's name, or finds out what the file is.
func (in *inputs) loadWorkload(file string) error {
	w := &in.work
	if file == "distribution" || file == "meridian" || slices.Contains(workload.PresetNames(), file) {
		w.name = file
		return nil
	}
	head, err := readFile(file, func(r io.Reader) ([]byte, error) { return io.ReadAll(io.LimitReader(r, 1<<16)) })
	if errors.Is(err, os.ErrNotExist) && !strings.ContainsAny(file, "./") {
		return usagef("--workload %s: there is neither such a file nor such a preset; presets are distribution, "+
			"meridian, %s", file, strings.Join(workload.PresetNames(), ", "))
	}
	if err != nil {
		return err
	}
	line, _, _ := strings.Cut(string(head), "\n")
	switch {
	case strings.HasPrefix(line, "config "):
		w.recorded = file
		return nil
	case strings.HasSuffix(file, ".csv") || strings.HasSuffix(file, ".csv.gz"):
		w.trace = file
		return nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var keys map[string]any
	if err := yaml.Unmarshal(data, &keys); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	for _, key := range []string{"clients", "cohorts", "version", "category"} {
		if _, ok := keys[key]; ok {
			w.spec = file
			return nil
		}
	}
	for key, v := range keys {
		if key == "preset" {
			w.name = fmt.Sprint(v)
			continue
		}
		if err := in.assign(key, fmt.Sprint(v)); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	return nil
}

// question is in with some keys set anew.
func (in *inputs) question(set map[string]string) (*inputs, error) {
	out := &inputs{server: serverFlags{mend: in.server.mend, target: in.server.target}}
	out.init(io.Discard)
	out.server.warn = in.server.warn
	out.server.config, out.server.has = in.server.config, in.server.has
	w, from := &out.work, &in.work
	w.name, w.trace, w.recorded, w.spec = from.name, from.trace, from.recorded, from.spec
	w.prepared, w.rows, w.parsed, w.recording = from.prepared, from.rows, from.parsed, from.recording
	var errs []error
	in.keys.Visit(func(f *pflag.Flag) {
		to := out.keys.Lookup(f.Name)
		if s, ok := f.Value.(pflag.SliceValue); ok {
			errs = append(errs, to.Value.(pflag.SliceValue).Replace(s.GetSlice()))
			to.Changed = true
			return
		}
		errs = append(errs, out.keys.Set(f.Name, f.Value.String()))
	})
	for key, value := range set {
		if err := out.assign(key, value); err != nil {
			errs = append(errs, usageError{err})
		}
	}
	return out, errors.Join(errs...)
}

// goneFlag says where an option of earlier versions is now, nil if err is about no such one.
func goneFlag(err error) error {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return nil
	}
	name := unknown.GetSpecifiedName()
	switch name {
	case "config":
		return errors.New("--config is --server")
	case "trace", "uma-trace", "workload-spec":
		return fmt.Errorf("--%s is --workload, which takes every kind of file", name)
	}
	in := &inputs{}
	in.init(io.Discard)
	f := in.keys.Lookup(name)
	if f == nil {
		return nil
	}
	file, key := "--workload", strings.ReplaceAll(f.Name, "-", "_")
	if of, ok := keyOf[f.Name]; ok {
		file, key = "--server", of
	} else if slices.Contains(serverOnly, key) {
		file = "--server"
	}
	return fmt.Errorf("--%s is no option any more: it is the key %s of the file of %s, or --set %s=VALUE", name, key,
		file, key)
}

func newKeys() *cobra.Command {
	return &cobra.Command{
		Use:   "keys",
		Short: "List the keys of the files of --server and --workload",
		Long: `List the keys of the files of --server (JSON) and --workload (YAML), with their defaults.
--set KEY=VALUE takes them all.

  uma-sim keys`,
		RunE: func(c *cobra.Command, _ []string) error {
			in := &inputs{}
			in.init(io.Discard)
			w := bufio.NewWriter(c.OutOrStdout())
			var server, work bytes.Buffer
			in.keys.SortFlags = false
			in.keys.VisitAll(func(f *pflag.Flag) {
				key, to := strings.ReplaceAll(f.Name, "-", "_"), &work
				if of, ok := keyOf[f.Name]; ok {
					key, to = of, &server
				} else if slices.Contains(serverOnly, key) {
					to = &server
				}
				kind, usage := pflag.UnquoteUsage(f)
				fmt.Fprintf(to, "  %-32s %-8s %s", key, kind, usage)
				if f.DefValue != "" && f.DefValue != "0" && f.DefValue != "[]" && f.DefValue != "false" {
					fmt.Fprintf(to, " (default %s)", f.DefValue)
				}
				fmt.Fprintln(to)
			})
			fmt.Fprintf(w, "--server FILE\n%s\n--workload FILE\n  %-32s %-8s %s\n%s", server.String(), "preset", "name",
				"distribution, meridian, "+strings.Join(workload.PresetNames(), ", "), work.String())
			return w.Flush()
		},
	}
}

// readFile opens a file, also one that gzip has compressed (.gz), and reads it.
func readFile[T any](name string, read func(io.Reader) (T, error)) (out T, err error) {
	f, err := os.Open(name)
	if err != nil {
		return out, err
	}
	defer f.Close()
	var in io.Reader = bufio.NewReaderSize(f, 1<<16)
	if strings.HasSuffix(name, ".gz") {
		if in, err = gzip.NewReader(in); err != nil {
			return out, fmt.Errorf("%s: %w", name, err)
		}
	}
	if out, err = read(in); err != nil {
		return out, fmt.Errorf("%s: %w", name, err)
	}
	return out, nil
}
