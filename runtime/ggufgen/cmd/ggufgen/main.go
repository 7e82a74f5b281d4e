// Command ggufgen writes a GGUF model with seeded random weights.
//
//	go run ./runtime/ggufgen/cmd/ggufgen -preset bench135m -o model.gguf
package main

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/uma-serve/uma-serve/runtime/ggufgen"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "ggufgen:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	presets := ggufgen.Presets()
	names := strings.Join(slices.Sorted(maps.Keys(presets)), ", ")
	fs := flag.NewFlagSet("ggufgen", flag.ExitOnError)
	preset := fs.String("preset", "tiny", "one of "+names)
	out := fs.String("o", "", "the file to write (required)")
	typ := fs.String("type", "", ggufgen.TypeNames()+" (default: the preset's)")
	seed := fs.Uint64("seed", 1, "seed of the weights")
	thinkClose := fs.Int("think-close-every", 0,
		"make </think> the likeliest token about once in so many tokens; 0 = never")
	endEvery := fs.Int("end-every", 0, "the same for <|im_end|>, which ends a generation")
	vision := fs.String("vision", "", "a folder for a projector of each family, and for pictures")
	keep := fs.Bool("keep-thinking", false, "a chat template that keeps past thinking")
	fs.Parse(args) // exits on error
	cfg, ok := presets[*preset]
	switch {
	case !ok:
		return fmt.Errorf("-preset %q is unknown: use one of %s", *preset, names)
	case *out == "":
		return fmt.Errorf("-o is missing: name the file to write")
	case fs.NArg() > 0:
		return fmt.Errorf("unexpected argument %q: the file to write goes after -o", fs.Arg(0))
	}
	if *typ != "" {
		cfg.Type = ggufgen.Type(*typ)
	}
	if *keep {
		cfg.Template = ggufgen.ChatMLKeepThinking
	}
	cfg.Seed, cfg.ThinkCloseEvery, cfg.EndEvery = *seed, *thinkClose, *endEvery
	if *vision != "" {
		if err := ggufgen.WriteVision(*vision, cfg); err != nil {
			return err
		}
	}
	start := time.Now()
	if err := ggufgen.Write(*out, cfg); err != nil {
		return err
	}
	fi, err := os.Stat(*out)
	if err != nil {
		return err
	}
	fmt.Printf("%s: %s, %.1f M parameters, %s, %.1f MB, %v\n", *out, cfg.Name, float64(cfg.Parameters())/1e6, cfg.Type,
		float64(fi.Size())/1e6, time.Since(start).Round(time.Millisecond))
	return nil
}
