//go:build cgo && (llama_engine || llama_system)

package llama

// #cgo noescape uma_tokenize
// #cgo nocallback uma_tokenize
// #include "bridge.h"
import "C"

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"sync"
	"unsafe"

	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/runtime/llama/cuts"
)

// maxText is the longest text that Tokenize accepts, in bytes.
const maxText = 256 << 20

const (
	flagControl = 1
	flagEOG     = 2
	flagMarker  = 4
	flagStrips  = 8
)

// vocab answers from tables that Open makes; only Tokenize calls llama.cpp. Safe from any goroutine.
type vocab struct {
	pieces   []byte   // what all tokens show, one behind the other
	pieceEnd []uint32 // token t shows pieces[pieceEnd[t-1]:pieceEnd[t]]
	texts    string   // the same for how the vocabulary writes them
	textEnd  []uint32
	flags    []uint8
	bos, eos runtime.Token
	template string
	cuts     cuts.Cuts

	mu      sync.RWMutex          // held for reading while llama.cpp tokenizes, for writing by close
	v       *C.struct_llama_vocab // nil after close
	scratch sync.Pool             // *[]runtime.Token, as long as the longest piece so far has bytes
}

// check tokenizes a plain text, so that a tokenizer that does not fit the vocabulary fails at load time.
func (v *vocab) check() error {
	const sample = "Hello, world 1\n"
	tokens, err := v.Tokenize(nil, sample, true, true)
	if err != nil {
		return fmt.Errorf("its tokenizer cannot read a plain text: %w", err)
	}
	for _, t := range tokens {
		if t < 0 || int(t) >= v.Size() {
			return fmt.Errorf("its tokenizer makes token %d of %q, which is not in the vocabulary (0 … %d)", t, sample,
				v.Size()-1)
		}
	}
	return nil
}

func newVocab(cv *C.struct_llama_vocab) (*vocab, error) {
	n := int(C.llama_vocab_n_tokens(cv))
	v := &vocab{
		v: cv, flags: make([]uint8, n),
		bos: runtime.Token(C.llama_vocab_bos(cv)), eos: runtime.Token(C.llama_vocab_eos(cv)),
	}
	if n == 0 {
		return nil, errors.New("the vocabulary is empty")
	}
	v.scratch.New = func() any { return new([]runtime.Token) }
	var texts []byte
	var err1, err2 error
	v.pieces, v.pieceEnd, err1 = vocabStrings(cv, n, false)
	texts, v.textEnd, err2 = vocabStrings(cv, n, true)
	v.texts = string(texts)
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	if !C.uma_vocab_flags(cv, (*C.uint8_t)(&v.flags[0])) {
		return nil, errors.New("read the vocabulary: " + drainLogs(slog.LevelError))
	}
	kind := C.llama_vocab_type(cv)
	v.cuts.Recursive = kind == C.LLAMA_VOCAB_TYPE_BPE
	v.cuts.AtMarkers = (kind == C.LLAMA_VOCAB_TYPE_BPE || kind == C.LLAMA_VOCAB_TYPE_SPM) &&
		!bool(C.llama_vocab_get_add_eos(cv))
	v.cuts.Words = v.cuts.Recursive && v.cuts.AtMarkers
	for t := range runtime.Token(n) {
		if v.flags[t]&flagMarker != 0 {
			v.cuts.Add(v.Text(t), v.flags[t]&flagStrips == 0)
		} else if cuts.Crosses(v.Piece(t)) {
			v.cuts.Words = false
		}
	}
	return v, nil
}

func vocabStrings(cv *C.struct_llama_vocab, n int, text bool) ([]byte, []uint32, error) {
	end := make([]uint32, n)
	var none [1]byte
	size := int64(C.uma_vocab_strings(cv, C.bool(text), (*C.char)(unsafe.Pointer(&none)), 0, (*C.uint32_t)(&end[0])))
	if size < 0 || size > math.MaxUint32 {
		return nil, nil, errors.New("the vocabulary cannot be read: " + drainLogs(slog.LevelError))
	}
	buf := make([]byte, max(size, 1))
	C.uma_vocab_strings(cv, C.bool(text), (*C.char)(unsafe.Pointer(&buf[0])), C.int64_t(size), (*C.uint32_t)(&end[0]))
	return buf[:size], end, nil
}

func (v *vocab) close() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.v = nil
}

func (v *vocab) Size() int { return len(v.flags) }

func (v *vocab) Tokenize(dst []runtime.Token, text string, addSpecial, parseSpecial bool) ([]runtime.Token, error) {
	if len(text) > maxText {
		return dst, fmt.Errorf("tokenize: the text has %d bytes, the limit is %d", len(text), maxText)
	}
	v.mu.RLock()
	defer v.mu.RUnlock()
	if v.v == nil {
		return dst, errors.New("tokenize: the engine is closed")
	}
	buf := v.scratch.Get().(*[]runtime.Token)
	defer v.scratch.Put(buf)
	n := len(dst)
	for {
		k := v.cuts.First(text, parseSpecial)
		var err error
		if dst, err = v.tokenize(dst, buf, text[:k], addSpecial, parseSpecial); err != nil {
			return dst[:n], err
		}
		if text, addSpecial = text[k:], false; text == "" {
			return dst, nil
		}
	}
}

// Cut implements runtime.TextCutter.
func (v *vocab) Cut(text string, min int, parseSpecial bool) int {
	return v.cuts.Part(text, min, len(text), parseSpecial)
}

// tokenize is Tokenize of one piece.
func (v *vocab) tokenize(dst []runtime.Token, buf *[]runtime.Token, text string, addSpecial,
	parseSpecial bool) ([]runtime.Token, error) {
	stack := 0
	if v.cuts.Recursive && len(text) > cuts.Shallow {
		stack = cuts.DeepStack
	}
	// One token a byte is more than enough for almost every vocabulary; otherwise llama.cpp reports the number.
	want := len(text) + 16
	for {
		if len(*buf) < want {
			*buf = make([]runtime.Token, want)
		}
		n := int(C.uma_tokenize(v.v, (*C.char)(unsafe.Pointer(unsafe.StringData(text))), C.int32_t(len(text)),
			(*C.llama_token)(&(*buf)[0]), C.int32_t(len(*buf)), C.bool(addSpecial), C.bool(parseSpecial),
			C.size_t(stack)))
		switch {
		case n >= 0:
			return append(slices.Grow(dst, n), (*buf)[:n]...), nil
		case n == C.UMA_THREW:
			return dst, errors.New(drainLogs(slog.LevelError))
		case -n <= want:
			return dst, fmt.Errorf("tokenize: llama.cpp asks for room for %d tokens and had %d", -n, want)
		}
		want = -n
	}
}

func (v *vocab) known(t runtime.Token) bool { return uint(t) < uint(len(v.flags)) }

// span returns the range of token t's string, given the end of each token's.
func span(end []uint32, t runtime.Token) (from, to uint32) {
	if t > 0 {
		from = end[t-1]
	}
	return from, end[t]
}

func (v *vocab) Piece(t runtime.Token) []byte {
	if !v.known(t) {
		return nil
	}
	from, to := span(v.pieceEnd, t)
	return v.pieces[from:to:to]
}

func (v *vocab) Text(t runtime.Token) string {
	if !v.known(t) {
		return ""
	}
	from, to := span(v.textEnd, t)
	return v.texts[from:to]
}

func (v *vocab) IsControl(t runtime.Token) bool { return v.known(t) && v.flags[t]&flagControl != 0 }
func (v *vocab) IsEOG(t runtime.Token) bool     { return v.known(t) && v.flags[t]&flagEOG != 0 }
func (v *vocab) BOS() runtime.Token             { return v.bos }
func (v *vocab) EOS() runtime.Token             { return v.eos }
func (v *vocab) ChatTemplate() string           { return v.template }

// Find compares with every token: it is called at start, not per token.
func (v *vocab) Find(text string) runtime.Token {
	for t := range runtime.Token(len(v.flags)) {
		if v.Text(t) == text {
			return t
		}
	}
	return runtime.NoToken
}
