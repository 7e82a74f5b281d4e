package wire

import (
	"bytes"
	"fmt"

	"github.com/valyala/fastjson"

	"github.com/uma-serve/uma-serve/sampler"
)

// stages are the names of "samplers", llama-server's, in the order in which they are applied here and there, with
// what turns each of them off.
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
}

// Stages are the names of the stages of sampling that change something, in their order.
func Stages(p *sampler.Params) []string {
	names := []string{}
	for i := range stages {
		off := *p
		if stages[i].off(&off); !bytes.Equal(appendSampling(nil, &off, nil), appendSampling(nil, p, nil)) {
			names = append(names, stages[i].name)
		}
	}
	return names
}

// readSamplers takes the stages of sampling that are wanted, by name or in llama-server's string of letters. Their
// order is fixed; those left out are off.
func readSamplers(d *decoder, name string, v *fastjson.Value) error {
	const must = `an array of the names penalties, dry, top_n_sigma, top_k, typ_p, top_p, min_p, xtc, temperature, ` +
		`or a string of their letters edskypmxt, in this order`
	var wanted []int
	stage := func(entry string, text []byte, is func(i int) bool) error {
		for i := range stages {
			if !is(i) {
				continue
			}
			if len(wanted) > 0 && i <= wanted[len(wanted)-1] {
				return fmt.Errorf("field %q is %s, after %q; the order of the stages is fixed: it must be %s", entry,
					quoted(text), stages[wanted[len(wanted)-1]].name, must)
			}
			wanted = append(wanted, i)
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
		for at, e := range list {
			entry := fmt.Sprintf("%s[%d]", name, at)
			text, err := e.StringBytes()
			if err != nil {
				return wrongType(entry, e, must)
			}
			if err := stage(entry, text, func(i int) bool {
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
