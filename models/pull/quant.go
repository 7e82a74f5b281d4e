package pull

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/uma-serve/uma-serve/model/gguf"
	"github.com/uma-serve/uma-serve/models/store"
)

// preference is the order in which a quantisation is chosen: of those that fit in memory, the first. Four bits a weight
// come first, Q4_K_M before all, as llama.cpp and ollama choose; then more bits, for repositories without these; then
// fewer, for machines on which four do not fit.
var preference = []string{
	"Q4_K_M", "UD-Q4_K_XL", "Q4_K_XL", "Q4_K_L", "MXFP4_MOE", "MXFP4", "NVFP4", "Q4_K_S", "Q4_K", "IQ4_NL", "IQ4_XS",
	"Q4_1", "Q4_0",
	"Q5_K_M", "UD-Q5_K_XL", "Q5_K_XL", "Q5_K_L", "Q5_K_S", "Q5_K", "Q5_1", "Q5_0", "Q6_K", "UD-Q6_K_XL", "Q6_K_XL",
	"Q6_K_L",
	"Q8_0", "UD-Q8_K_XL", "Q8_K_XL", "BF16", "F16", "FP16", "F32",
	"Q3_K_XL", "UD-Q3_K_XL", "Q3_K_L", "Q3_K_M", "IQ3_M", "Q3_K_S", "Q3_K", "IQ3_S", "IQ3_XS", "UD-IQ3_XXS", "IQ3_XXS",
	"UD-Q2_K_XL", "Q2_K_XL", "Q2_K_L", "Q2_K", "IQ2_M", "UD-IQ2_M", "Q2_K_S", "IQ2_S", "IQ2_XS", "UD-IQ2_XXS",
	"IQ2_XXS", "TQ2_0",
	"UD-IQ1_M", "IQ1_M", "UD-IQ1_S", "IQ1_S", "TQ1_0",
}

// remote is a file at a source.
type remote struct {
	path string // in the repository; of a registry: the name the file gets
	size int64  // bytes
	sum  sum
	url  string // where it is asked for
	at   string // where it is stored in the model's folder, "" = at path
}

// dest returns the path of the file in the model's folder.
func (r *remote) dest() string {
	if r.at != "" {
		return r.at
	}
	return r.path
}

// variant is one choice of a repository: the files of one quantisation.
type variant struct {
	quant  string // "" = unknown
	name   string // the path without the shard's number and .gguf
	shards int    // the number of files it is split over
	files  []remote
}

func (v variant) size() (n int64) {
	for _, f := range v.files {
		n += f.size
	}
	return n
}

// label returns the quantisation, or the file's name without one.
func (v variant) label() string {
	if v.quant != "" {
		return v.quant
	}
	return path.Base(v.name)
}

// split takes a path apart: what it has in common with the other files of its model, the shard and the number of shards
// (1 of 1).
func split(p string) (name string, shard, shards int) {
	if prefix, no, count, ok := gguf.Shard(p); ok {
		return prefix, no, count
	}
	return p[:len(p)-len(".gguf")], 1, 1
}

// variants groups a repository's files, sorted by path. Those of a split model that lacks shards are left out.
func variants(files []remote) (list []variant) {
	byName := map[string]*variant{}
	var order []string
	for _, f := range files {
		if !store.IsModel(f.path) {
			continue
		}
		name, shard, shards := split(f.path)
		key := fmt.Sprintf("%s of %d", name, shards)
		v := byName[key]
		if v == nil {
			v = &variant{quant: store.QuantOf(f.path), name: name, shards: shards}
			byName[key] = v
			order = append(order, key)
		}
		if shard == len(v.files)+1 { // the list is sorted
			v.files = append(v.files, f)
		}
	}
	for _, key := range order {
		if v := byName[key]; len(v.files) == v.shards {
			list = append(list, *v)
		}
	}
	return list
}

// need returns the memory in bytes that a model of so many bytes of weights takes to be of use: an eighth more, at
// least 256 MiB, for the KV cells of a few thousand tokens, compute buffers and the daemon. uma-cli models computes it
// exactly once the header is here.
func need(size int64) uint64 {
	return uint64(size) + max(uint64(size)/8, 256<<20)
}

// match returns the variants that tag means: those of that quantisation, or, if there are none, those whose path
// contains the tag as a word, as llama.cpp matches it.
func match(list []variant, tag string) []variant {
	var found []variant
	for _, v := range list {
		if strings.EqualFold(v.quant, tag) || strings.EqualFold(v.quant, "UD-"+tag) && !hasQuant(list, tag) {
			found = append(found, v)
		}
	}
	if len(found) == 0 {
		for _, v := range list {
			if hasWord(v.name, tag) {
				found = append(found, v)
			}
		}
	}
	return found
}

// hasWord reports whether word is in text, in any case, between separators of file names.
func hasWord(text, word string) bool {
	const separators = "/._-"
	text, word = strings.ToLower("-"+text+"-"), strings.ToLower(word)
	for i := 1; word != "" && i+len(word) < len(text); i++ {
		if strings.HasPrefix(text[i:], word) && strings.ContainsRune(separators, rune(text[i-1])) &&
			strings.ContainsRune(separators, rune(text[i+len(word)])) {
			return true
		}
	}
	return false
}

func hasQuant(list []variant, quant string) bool {
	return slices.ContainsFunc(list, func(v variant) bool { return strings.EqualFold(v.quant, quant) })
}

// choose returns the variant that is pulled without a quantisation in the name: by preference, the first that memory
// bytes hold (0 = unknown: any). ok is false when none fits.
func choose(list []variant, memory uint64) (v variant, ok bool) {
	fits := func(v variant) bool { return memory == 0 || need(v.size()) <= memory }
	for _, quant := range preference {
		if i := slices.IndexFunc(list, func(v variant) bool { return v.quant == quant && fits(v) }); i >= 0 {
			return list[i], true
		}
	}
	if i := slices.IndexFunc(list, func(v variant) bool {
		return !slices.Contains(preference, v.quant) &&
			fits(v)
	}); i >= 0 {
		return list[i], true
	}
	return variant{}, false
}

// projectorKinds are the types of weights of projectors, the preferred first: they are small, and read each image once.
var projectorKinds = []string{"F16", "BF16", "Q8_0", "F32"}

// projectorOf chooses a model's projector: of its folder or the nearest above it, there the one whose name begins as
// the model's, and of those the one of the best kind. It is stored beside the model, where the server looks for it.
func projectorOf(model string, projectors []remote) (p remote, ok bool) {
	agreed := func(f remote) int {
		n, a, b := 0, strings.ToLower(path.Base(model)), strings.ToLower(path.Base(f.path))
		b = strings.TrimPrefix(b, "mmproj-")
		for n < min(len(a), len(b)) && a[n] == b[n] {
			n++
		}
		return n
	}
	kind := func(f remote) int {
		if i := slices.Index(projectorKinds, store.QuantOf(f.path)); i >= 0 {
			return i
		}
		return len(projectorKinds)
	}
	for dir := path.Dir(model); ; dir = path.Dir(dir) {
		var here []remote
		for _, f := range projectors {
			if path.Dir(f.path) == dir {
				here = append(here, f)
			}
		}
		if len(here) > 0 {
			p = slices.MinFunc(here, func(a, b remote) int {
				return cmp.Or(cmp.Compare(agreed(b), agreed(a)), cmp.Compare(kind(a), kind(b)))
			})
			p.at = path.Join(path.Dir(model), path.Base(p.path))
			return p, true
		}
		if dir == "." {
			return p, false
		}
	}
}
