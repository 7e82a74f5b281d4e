// Package config has the options of uma-serve: declared once, merged from their layers, validated and printed. It also
// computes, from the options and the header of a model's file, the facts of a model before it is loaded: its file, the
// size of its context, its memory, its chat template.
//
// It knows no request, engine or HTTP. Package daemon translates a Config into the configurations of the scheduler, the
// core and the engine (daemon/opening).
//
// # Where things are
//
//	options.go    every option with its default, and with it --help and contrib/uma-serve.toml
//	validate.go   the range of each
//	config.go     the Config that they set
//	layers.go     which layer sets an option: command line, environment, file, default
//	meridian.go   the table [meridian] and --meridian
//	models.go     the options of one model, [models.NAME]
//	front.go      the options of a front, and the configurations of its engine processes
//	listen.go     the TCP listeners
//	size.go       an amount of memory
//	print.go      --print-config and the sample file
//	modelname.go  which file -m, -hf and --draft-model name
//	memory.go     context and memory of a model, and whether it fits
//	template.go   which chat template is used
//	here.go       options that this program or this machine cannot honour
//	backend.go    the folder of the engine's back ends
//	derived.go    values that are computed from options
package config
