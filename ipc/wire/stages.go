package wire

import (
	"fmt"
	"slices"

	"github.com/valyala/fastjson"

	"github.com/uma-serve/uma-serve/sampler"
)

// stages are the names of "samplers", llama-server's, in the usual order, with what turns each of them off; nil for
// those that are off unless they are named. The index is the sampler.Stage.
var stages = []struct {
	name   string
	letter byte
	off    func(*sampler.Params)
}{
	{"penalties", 'e', func(p *sampler.Params) { p.RepeatPenalty, p.FrequencyPenalty, p.PresencePenalty = 1, 0, 0 }},
	{"dry", 'd', func(p *sampler.Params) { p.DryMultiplier = 0 }},
	{"top_n_sigma", 's', func(p *sampler.Params) { p.TopNSigma = -1 }},
	{"top_k", 'k', func(p *sampler.Params) { p.TopK = 0 }},
	{"typ_p", 'y', func(p *sampler.Params) { p.TypicalP = 1 }},
	{"top_p", 'p', func(p *sampler.Params) { p.TopP = 1 }},
	{"min_p", 'm', func(p *sampler.Params) { p.MinP = 0 }},
	{"xtc", 'x', func(p *sampler.Params) { p.XTCProbability = 0 }},
	{"temperature", 't', func(p *sampler.Params) { p.Temperature, p.DynatempRange = 1, 0 }},
	{"infill", 'i', nil},
}

// Stages returns the names of the stages of sampling that change something, in their order.
func Stages(p *sampler.Params) []string {
	names := []string{}
	if p.Order != nil {
		for _, stage := range p.Order {
			names = append(names, stages[stage].name)
		}
		return names
	}
	for i := range stages {
		if stages[i].off == nil {
			continue
		}
		off := *p
		stages[i].off(&off)
		if slices.ContainsFunc(Parameters, func(f Parameter) bool { return !f.Same(p, &off) }) {
			names = append(names, stages[i].name)
		}
	}
	return names
}

// readSamplers takes the stages of sampling that are wanted, by name or in llama-server's string of letters, in any
// order. Those left out are off.
func readSamplers(d *decoder, name string, v *fastjson.Value) error {
	must := fmt.Sprintf(`an array of up to %d of the names penalties, dry, top_n_sigma, top_k, typ_p, top_p, min_p, `+
		`xtc, temperature, infill, or a string of their letters edskypmxti`, sampler.MaxStages)
	var wanted []int
	stage := func(entry string, text []byte, is func(i int) bool) error {
		for i := range stages {
			if !is(i) {
				continue
			}
			if wanted = append(wanted, i); len(wanted) > sampler.MaxStages {
				return fmt.Errorf("field %q has more than %d entries; it must be %s", name, sampler.MaxStages, must)
			}
			return nil
		}
		return fmt.Errorf("field %q is %s; it must be %s", entry, quoted(text), must)
	}
	switch v.Type() {
	case fastjson.TypeString:
		letters, _ := v.StringBytes()
		for _, c := range letters {
			if err := stage(name, letters, func(i int) bool { return stages[i].letter == c }); err != nil {
				return err
			}
		}
	case fastjson.TypeArray:
		list, _ := v.Array()
		for i, e := range list {
			at := entry(name, i)
			text, err := e.StringBytes()
			if err != nil {
				return wrongType(at, e, must)
			}
			if err := stage(at, text, func(i int) bool {
				return string(text) == stages[i].name || string(text) == "typical_p" && stages[i].name == "typ_p"
			}); err != nil {
				return err
			}
		}
	default:
		return wrongType(name, v, must)
	}
	d.stages = append([]int{}, wanted...)
	return nil
}

// order turns off the stages that are not named, and sets the order of the others if it is not the usual one.
func (d *decoder) order(p *sampler.Params) {
	usual := true
	for i := range stages {
		if stages[i].off != nil && !slices.Contains(d.stages, i) {
			stages[i].off(p)
		}
	}
	for at, i := range d.stages {
		usual = usual && stages[i].off != nil && (at == 0 || i > d.stages[at-1])
	}
	if p.Order = nil; usual {
		return
	}
	for _, i := range d.stages {
		p.Order = append(p.Order, sampler.Stage(i))
	}
}
