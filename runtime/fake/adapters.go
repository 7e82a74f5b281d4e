package fake

import (
	"bytes"
	"fmt"
	"hash/fnv"
	"io"
	"math"
	"os"

	"github.com/uma-serve/uma-serve/runtime"
)

var _ runtime.Adapters = (*Engine)(nil)

// LoadAdapter implements runtime.Adapters: any file that begins as a GGUF file does is an adapter. The tokens of a last
// line "invocation TEXT" activate it.
func (e *Engine) LoadAdapter(f *os.File) (runtime.Adapter, runtime.AdapterInfo, error) {
	e.enter()
	defer e.leave()
	data, err := io.ReadAll(io.NewSectionReader(f, 0, math.MaxInt64))
	if err != nil || !bytes.HasPrefix(data, []byte("GGUF")) || e.cfg.Encoder {
		return 0, runtime.AdapterInfo{}, fmt.Errorf("%w: it is no GGUF file", runtime.ErrAdapter)
	}
	h := fnv.New64a()
	h.Write(data)
	e.adapters = append(e.adapters, h.Sum64())
	info := runtime.AdapterInfo{Bytes: int64(len(data))}
	if _, text, ok := bytes.Cut(data, []byte("\ninvocation ")); ok {
		if info.Invocation, err = e.Vocab().Tokenize(nil, string(text), false, false); err != nil {
			return 0, info, fmt.Errorf("%w: %w", runtime.ErrAdapter, err)
		}
	}
	return runtime.Adapter(len(e.adapters) - 1), info, nil
}

// UnloadAdapter implements runtime.Adapters.
func (e *Engine) UnloadAdapter(id runtime.Adapter) {
	e.enter()
	defer e.leave()
	e.adapters[id] = 0
}

// SetMix implements runtime.Adapters.
func (e *Engine) SetMix(n uint8, parts []runtime.Scaled) {
	e.enter()
	defer e.leave()
	sum := uint64(0)
	for _, p := range parts {
		if e.adapters[p.Adapter] == 0 {
			panic(fmt.Sprintf("fake: mix %d has adapter %d, which is not loaded", n, p.Adapter))
		}
		if p.Scale != 0 {
			sum += mix(e.adapters[p.Adapter] + uint64(math.Float32bits(p.Scale)))
		}
	}
	e.mixes[n] = uint16(sum>>48 | min(sum, 1)) // 0 only without any
}

// passes returns the number of mixes in the batch: each takes a pass over the weights.
func (e *Engine) passes() int {
	var seen [runtime.MaxMixes + 1]bool
	n := 0
	for _, m := range e.batch.Mix {
		if !seen[m] {
			seen[m] = true
			n++
		}
	}
	return n
}
