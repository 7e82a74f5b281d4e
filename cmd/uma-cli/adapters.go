package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/uma-serve/uma-serve/internal/cli/ui"
)

// adapterFlags are those with which `load` and `unload` mean an adapter.
type adapterFlags struct {
	file    string // of load
	unload  bool   // of unload
	model   string
	scale   float32
	replace bool
}

func (a *adapterFlags) ofLoad(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&a.file, "lora", "", "load the LoRA adapter in this GGUF `FILE` of the daemon's machine as NAME")
	f.Float32Var(&a.scale, "scale", 1, "with --lora: the scale with which the adapter applies")
	f.BoolVar(&a.replace, "replace", false, "with --lora: an adapter NAME that is loaded gives way, when its running "+
		"answers have ended")
	a.ofBoth(cmd)
}

func (a *adapterFlags) ofUnload(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&a.unload, "lora", false, "NAME is a LoRA adapter: unload that, when its running answers have "+
		"ended")
	a.ofBoth(cmd)
}

func (a *adapterFlags) ofBoth(cmd *cobra.Command) {
	cmd.Flags().StringVar(&a.model, "model", "", "with --lora: the `MODEL` that the adapter is for (default: the "+
		"daemon's)")
}

// check refuses flags that mean an adapter without --lora.
func (a *adapterFlags) check(cmd *cobra.Command) error {
	for _, name := range []string{"model", "scale", "replace"} {
		if f := cmd.Flags().Lookup(name); f != nil && f.Changed && a.file == "" && !a.unload {
			return usagef("--%s is for an adapter: give --lora as well", name)
		}
	}
	return nil
}

// load loads the adapter in the daemon.
func (a *adapterFlags) load(ctx context.Context, address, name string) error {
	path, err := filepath.Abs(a.file)
	if err != nil {
		return err
	}
	body := map[string]any{"lora_name": name, "lora_path": path, "scale": a.scale, "load_inplace": a.replace}
	if a.model != "" {
		body["model"] = a.model
	}
	if err := askHTTP(ctx, address, http.MethodPost, "/v1/load_lora_adapter", body, nil); err != nil {
		return err
	}
	text := fmt.Sprintf("loaded the adapter %s: requests name it as their model\n", clean(name))
	return ui.Open(os.Stdout).Print(text)
}

// remove unloads the adapter.
func (a *adapterFlags) remove(ctx context.Context, address, name string) error {
	body := map[string]any{"lora_name": name}
	if a.model != "" {
		body["model"] = a.model
	}
	if err := askHTTP(ctx, address, http.MethodPost, "/v1/unload_lora_adapter", body, nil); err != nil {
		return err
	}
	return ui.Open(os.Stdout).Print(fmt.Sprintf("unloaded the adapter %s\n", clean(name)))
}
