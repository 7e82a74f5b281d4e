//go:build cgo && (llama_engine || llama_system)

package llama

// #include <stdlib.h>
// #include "bridge.h"
// #include "rank.h"
import "C"

import (
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"github.com/uma-serve/uma-serve/model/gguf"
	"github.com/uma-serve/uma-serve/runtime"
)

// classifiers are the architectures whose head is known: build_pooling of llama-graph.cpp.
var classifiers = map[string]struct{ last, softmax bool }{
	"bert": {}, "jina-bert-v2": {}, "neo-bert": {},
	"qwen3": {last: true, softmax: true},
}

// Ranking implements runtime.Ranker.
func (e *engine) Ranking() (*runtime.Ranking, error) { return e.ranking, e.noRanking }

// readRanking fills ranking, or noRanking with why the model of the file at path ranks nothing.
func (e *engine) readRanking(path string) {
	e.ranking, e.noRanking = func() (*runtime.Ranking, error) {
		form, known := classifiers[e.info.Architecture]
		switch {
		case e.info.Pooling != runtime.PoolRank:
			return nil, errors.New(`this model's file does not say that it ranks (pooling_type "rank")`)
		case !known:
			return nil, fmt.Errorf("the classifier of architecture %q is not known", e.info.Architecture)
		}
		c, err := readClassifier(path, e.info.Embedding)
		if err != nil {
			return nil, err
		}
		c.Softmax = form.softmax
		r := &runtime.Ranking{Last: form.last, Classifier: *c, Template: e.rankTemplate()}
		e.markPair(r)
		return r, nil
	}()
}

// rankTemplate returns the file's "tokenizer.chat_template.rerank", "" when it has none.
func (e *engine) rankTemplate() string {
	name := C.CString("rerank")
	defer C.free(unsafe.Pointer(name))
	if t := C.llama_model_chat_template(e.model, name); t != nil {
		return C.GoString(t)
	}
	return ""
}

// markPair fills the tokens around the texts of a pair as llama-server chooses them (format_prompt_rerank):
// [BOS] query [EOS] [SEP] document [EOS], of which the vocabulary says which are there.
func (e *engine) markPair(r *runtime.Ranking) {
	v := C.llama_model_get_vocab(e.model)
	sep, eos := C.llama_vocab_sep(v), C.llama_vocab_eos(v)
	if eos < 0 {
		eos = sep
	}
	add := func(to *[]runtime.Token, t C.llama_token, wanted C.bool) {
		if wanted && t >= 0 {
			*to = append(*to, runtime.Token(t))
		}
	}
	add(&r.Begin, C.llama_vocab_bos(v), C.llama_vocab_get_add_bos(v))
	add(&r.Between, eos, C.llama_vocab_get_add_eos(v))
	add(&r.Between, sep, C.llama_vocab_get_add_sep(v))
	add(&r.End, eos, C.llama_vocab_get_add_eos(v))
}

// readClassifier reads the head's weights for hidden states of so many values.
func readClassifier(path string, width int) (*runtime.Classifier, error) {
	var c runtime.Classifier
	head := []struct {
		name string
		to   *[]float32
	}{{"cls.weight", &c.Dense}, {"cls.bias", &c.DenseBias}, {"cls.output.weight", &c.Out},
		{"cls.output.bias", &c.OutBias}}
	files := []string{path}
	if prefix, _, count, ok := gguf.Shard(path); ok {
		for no := 2; no <= count; no++ {
			files = append(files, gguf.ShardName(prefix, no, count))
		}
	}
	columns := make([]int, len(head))
	for _, file := range files {
		p := C.CString(file)
		tensors := (*C.uma_tensor)(C.calloc(C.size_t(len(head)), C.sizeof_uma_tensor))
		list := unsafe.Slice(tensors, len(head))
		for i := range list {
			list[i].name = C.CString(head[i].name)
		}
		failed := C.uma_read_tensors(p, tensors, C.int32_t(len(head)))
		for i := range list {
			if t := &list[i]; t.data != nil {
				*head[i].to = slices.Clone(unsafe.Slice((*float32)(t.data), int(t.rows*t.columns)))
				columns[i] = int(t.columns)
				C.free(unsafe.Pointer(t.data))
			}
			C.free(unsafe.Pointer(list[i].name))
		}
		C.free(unsafe.Pointer(tensors))
		C.free(unsafe.Pointer(p))
		if failed != nil {
			return nil, errors.New(C.GoString(failed))
		}
	}
	// What each matrix reads is what the one before it makes.
	in := width
	for i := 0; i < len(head); i += 2 {
		m, bias := *head[i].to, *head[i+1].to
		if len(m) == 0 && len(bias) == 0 {
			continue
		}
		if len(m) == 0 || columns[i] != in || len(bias) != 0 && len(bias) != len(m)/in {
			return nil, fmt.Errorf("%s has %d values in rows of %d, and %s %d: they do not fit a state of %d",
				head[i].name, len(m), columns[i], head[i+1].name, len(bias), in)
		}
		in = len(m) / in
	}
	if len(c.Dense)+len(c.Out) == 0 {
		return nil, errors.New("its file has no classifier (cls.weight, cls.output.weight): convert it again")
	}
	return &c, nil
}
