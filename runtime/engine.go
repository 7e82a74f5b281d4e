// Package runtime defines the interface between the decode loop and an inference engine.
//
// It contains the interface Engine, its values and its errors. It imports nothing of this project, so that pure
// packages can use its value types.
//
// # The caller's obligations, in order
//
//  1. One goroutine at a time calls an Engine's methods (the decode loop). Only Abort, Vocab and the methods
//     documented as immutable facts (Capabilities, Model) may be called from anywhere, at any time.
//  2. Fill the engine's own Batch (Batch().Reset, then Add), then call Decode, or a Submitter's Submit and Wait.
//  3. Read Logits(i) for each row added with logits=true before the next Decode: the slice is a view of the
//     engine's memory and is overwritten by it.
//  4. On ErrKVFull the engine's state is unchanged: free cells and try again.
//     On ErrAborted (ErrLate is one) or ErrDecode an unknown part of the batch may have been written: shorten every
//     sequence of the batch to its previous length (SeqRemove) before the next call.
//  5. Close once, after the last call returned.
package runtime

import (
	"errors"
	"fmt"
	"time"
)

// Token is an id in the model's vocabulary, 0 ≤ Token < Vocab.Size. NoToken means that there is no token.
type Token = int32

// Seq is a sequence id in the unified KV pool, 0 ≤ Seq < Capabilities.MaxSequences.
type Seq = int32

// Pos is a position in a sequence, in tokens from its start.
type Pos = int32

// NoToken is the value of an optional token that does not exist, for example the BOS of a vocabulary without one.
const NoToken Token = -1

var (
	// ErrKVFull: there are not enough free cells for the batch. The engine's state is unchanged; free some and retry.
	ErrKVFull = errors.New("KV cache is full")
	// ErrAborted: Abort was called during Decode. Part of the batch may have been computed (obligation 4).
	ErrAborted = errors.New("decode aborted")
	// ErrLate: Decode was given up because it would have taken longer than Batch.Bound allows. It is an ErrAborted.
	ErrLate = fmt.Errorf("%w: it would have taken too long", ErrAborted)
	// ErrDecode: the backend failed. Part of the batch may have been computed (obligation 4).
	ErrDecode = errors.New("decode failed")
	// ErrModel: the model file cannot be used; the text names the field or tensor and the reason.
	ErrModel = errors.New("model cannot be loaded")
	// ErrNotBuilt: this binary was built without llama.cpp (CGO_ENABLED=0).
	ErrNotBuilt = errors.New("this build has no llama.cpp engine; run `make`")
	// ErrUnsupported: the model's memory does not support the operation (ranges of a recurrent or SWA cache).
	ErrUnsupported = errors.New("not supported by this model's memory")
	// ErrSnapshot: the snapshot does not fit this engine, or the target sequence is in use.
	ErrSnapshot = errors.New("snapshot cannot be restored")
)

// DeviceKind says where the layers run.
type DeviceKind string

const (
	DeviceCPU   DeviceKind = "cpu"
	DeviceGPU   DeviceKind = "gpu"   // discrete memory (CUDA, ROCm, Vulkan)
	DeviceIGPU  DeviceKind = "igpu"  // shares the host's memory
	DeviceMetal DeviceKind = "metal" // Apple silicon, unified memory
	DeviceFake  DeviceKind = "fake"
)

// Capabilities are immutable facts about an open engine. They state what the model cannot do, so that callers can fall
// back.
type Capabilities struct {
	UnifiedKV bool `json:"unified_kv"` // one pool of cells shared by all sequences
	// PagedKV: the cells of a sequence may lie anywhere in the pool, so that cells freed here and there are as good as
	// a region of as many (a page has one cell). False without cells, and for an Encoder.
	PagedKV  bool `json:"paged_kv"`
	CanShift bool `json:"can_shift"` // SeqAdd works (context shift)
	// Seals says that a sequence has a state besides cells (recurrent layers): it can be copied, saved and removed
	// whole only. Else any range of it can.
	Seals bool `json:"seals"`
	// CopiesBytes: each sequence has cells to itself, so that SeqCopy copies them, all at once.
	CopiesBytes bool `json:"copies_bytes,omitempty"`
	// SnapshotTokens is the most positions of one Snapshot, where a longer one would lose some; 0 = any number.
	SnapshotTokens int  `json:"snapshot_tokens,omitempty"`
	CanAbort       bool `json:"can_abort"` // Abort takes effect inside a Decode
	// Beside: steps of answers are computed beside the host, which is free meanwhile; see Submitter.
	Beside bool `json:"beside_host"`
	// ProbesRows: rows with RowProbe alone are probed where they are computed, and their logits stay there.
	ProbesRows      bool `json:"probes_rows"`
	PersistentGraph bool `json:"persistent_graph"` // a second step of the same shape reused the graph of the first
	MaxBatch        int  `json:"max_batch"`        // tokens per Decode (n_batch)
	MaxMicroBatch   int  `json:"max_ubatch"`       // tokens per device pass (n_ubatch)
	MaxSequences    int  `json:"max_sequences"`    // n_seq_max
	// ContextTokens are the cells in the KV pool; of an Encoder, the longest text. A model with learned positions has
	// at most as many as its table has rows, whatever Options.ContextTokens says.
	ContextTokens int `json:"n_ctx"`
	// MaxEmbeddingRows is the most rows of a Decode with RowEmbedding; 0 = the engine is no Embedder.
	MaxEmbeddingRows int        `json:"max_embedding_rows"`
	Threads          int        `json:"threads"`
	Device           DeviceKind `json:"device"`
	DeviceName       string     `json:"device_name"`
	// Devices are those that a step computes on: bit 0 is the processor, bit 1 + n the GPU n in the engine's order.
	Devices uint32 `json:"devices"`
	// Placed is the memory of the model on each device; nil where the engine does not report it.
	Placed      []DeviceMemory `json:"-"`
	EngineBuild string         `json:"engine_build"` // the llama.cpp build; part of a snapshot's fingerprint
	// products of weights: "amx", "avx512", "avxvnni", "avx2", "i8mm", "neon"; "ggml" = none of ours
	Kernels string `json:"kernels"`
	// what of this project's code beside or in the place of the engine library's is at work, tried when the process
	// starts, and what is missing (docs/engines.md); nil = nothing
	Ours    []string `json:"ours,omitempty"`
	LeftOut []string `json:"left_out,omitempty"`
}

// ModelInfo are immutable facts about the loaded model.
type ModelInfo struct {
	Path         string `json:"path"`
	Name         string `json:"name"` // general.name, or the file's base name
	Architecture string `json:"architecture"`
	Description  string `json:"description"` // llama.cpp's one-line summary, "llama 135M Q8_0"
	Parameters   uint64 `json:"parameters"`
	Bytes        uint64 `json:"bytes"` // tensor data
	// SharedBytes are those of Bytes that another engine of the process holds: of a head, weights of its model.
	SharedBytes uint64 `json:"shared_bytes,omitempty"`
	// RepackedBytes is the size of the tensor data that the engine keeps a second time, rearranged for the processor's
	// vector instructions: anonymous memory, which cannot be paged out to the model's file. 0 also where the engine
	// does not report it.
	RepackedBytes uint64 `json:"repacked_bytes"`
	TrainContext  int    `json:"n_ctx_train"`
	// Positions are the rows of the table of learned positions, the most that one sequence can have; 0 = no such table.
	Positions       int    `json:"positions,omitempty"`
	Layers          int    `json:"layers"`
	Embedding       int    `json:"embedding"` // width of a hidden state, and of an embedding
	Heads           int    `json:"heads"`
	KVHeads         int    `json:"kv_heads"`
	VocabSize       int    `json:"n_vocab"`
	KVTypeK         string `json:"kv_type_k"` // "f16", "q8_0", …
	KVTypeV         string `json:"kv_type_v"`
	KVBytesPerToken int    `json:"kv_bytes_per_token"` // one cell, all layers, K and V
	SlidingWindow   int    `json:"sliding_window"`     // tokens, 0 = none
	Recurrent       bool   `json:"recurrent"`
	// Pooling is the pooling kind in the file; "" = the file has none.
	Pooling Pooling `json:"pooling"`
	// Encoder: the model reads a text in both directions, whole and in one Decode. It has no KV memory and generates
	// nothing; Capabilities.ContextTokens is its longest text.
	Encoder bool `json:"encoder"`
	// StateBytes is the size of the state of a sequence that does not depend on its length (Recurrent); 0 = none.
	StateBytes int64 `json:"state_bytes,omitempty"`
	// Experts are those of a layer of a mixture, ExpertsUsed those that a token passes through, and ExpertBytes the
	// tensor data of all of them in all layers. 0 = the model has no experts.
	Experts     int    `json:"experts,omitempty"`
	ExpertsUsed int    `json:"experts_used,omitempty"`
	ExpertBytes uint64 `json:"expert_bytes,omitempty"`
}

// Vocab is the model's vocabulary. All methods are pure after opening and safe from any goroutine.
type Vocab interface {
	Size() int
	// Tokenize appends the tokens of text to dst. addSpecial adds the tokens that the model needs at a sequence's start
	// (BOS). parseSpecial reads markers such as "<|im_start|>" as single tokens; it must be false for text from a user
	// and true for a rendered chat template.
	Tokenize(dst []Token, text string, addSpecial, parseSpecial bool) ([]Token, error)
	// Piece returns the bytes of token t: possibly part of a UTF-8 character, empty for a control token. The slice is
	// shared and read-only. It allocates nothing.
	Piece(t Token) []byte
	// Text returns t's text in the vocabulary, also for control tokens ("<|im_end|>").
	Text(t Token) string
	// IsControl reports whether t is a marker that is never shown as text.
	IsControl(t Token) bool
	// IsEOG reports whether t ends a generation.
	IsEOG(t Token) bool
	BOS() Token
	EOS() Token
	// Find returns the token whose Text is exactly text ("</think>"), or NoToken.
	Find(text string) Token
	// ChatTemplate returns the model's Jinja template, "" when it has none.
	ChatTemplate() string
}

// TextCutter is an optional interface of a Vocab. It finds places where the tokens of a text do not depend on what
// follows, so that the tokens of a common beginning can be reused.
type TextCutter interface {
	// Cut returns the least n ≥ min (and ≥ 1) such that the tokens of text are those of text[:n] with the same
	// addSpecial, followed by those of text[n:] without it; len(text) when there is none. It is safe from any
	// goroutine.
	Cut(text string, min int, parseSpecial bool) int
}

// The bits of Batch.Logits: what a row is computed for besides its KV cell.
const (
	RowLogits    int8 = 1 << iota // Engine.Logits has the row
	RowEmbedding                  // Embedder.Embedding has the row
	// RowProber.ProbeRow has the row, Engine.Logits does not, unless the engine is no RowProber. With
	// Capabilities.ProbesRows close ids are not looked up, of equal logits Argmax is any, and a row with NaN or +Inf,
	// or with nothing above -Inf, is refused.
	RowProbe
)

// Bound says when a Decode is given up. The zero value: never.
type Bound struct {
	Decide   time.Duration // so long after its begin the engine estimates how long it takes in all
	Limit    time.Duration // it is given up if that is longer
	Expected time.Duration // how long the caller expects it to take
}

// Batch is one Decode's input: row i is Token[i] at position Pos[i] of sequence Seq[i], computed for what the bits of
// Logits[i] say (RowLogits, RowEmbedding). The slices are the engine's memory (C arrays for llama.cpp). They have
// length n and capacity Capabilities.MaxBatch, and are valid until the engine is closed.
type Batch struct {
	Token  []Token
	Pos    []Pos
	Seq    []Seq
	Logits []int8
	Mix    []uint8 // of the row's adapters, see Adapters; 0 = none
	Bound  Bound   // obeyed with Capabilities.CanAbort
	// Cancelled, if not nil, is asked once at the beginning of a Decode, when an Abort has begun to reach it: true ends
	// it with ErrAborted and nothing computed. So no Abort is lost that comes just before a Decode.
	Cancelled func() bool
	// Images are the rows whose tokens stand for images, ascending. Only a Viewer computes them; of a sequence they
	// come before its rows with logits.
	Images []ImageRow

	mix uint8
}

// Reset empties the batch and removes its Bound, Cancelled and its mix.
func (b *Batch) Reset() {
	b.Bound, b.Cancelled, b.mix = Bound{}, nil, 0
	clear(b.Images) // the parts are not kept alive
	b.Images = b.Images[:0]
	b.Token, b.Pos, b.Seq, b.Logits, b.Mix = b.Token[:0], b.Pos[:0], b.Seq[:0], b.Logits[:0], b.Mix[:0]
}

// UseMix gives the rows that are added from now on a mix of adapters; 0 = none.
func (b *Batch) UseMix(mix uint8) { b.mix = mix }

// Len returns the number of rows.
func (b *Batch) Len() int { return len(b.Token) }

// Add appends a row and returns its index for Logits. It panics when the batch is full: the scheduler must not plan
// more tokens than fit.
func (b *Batch) Add(t Token, p Pos, s Seq, logits bool) int {
	var what int8
	if logits {
		what = RowLogits
	}
	return b.AddFor(t, p, s, what)
}

// AddFor is Add of a row that is computed for what the bits say: RowLogits, RowEmbedding, both or neither.
func (b *Batch) AddFor(t Token, p Pos, s Seq, what int8) int {
	i := len(b.Token)
	if i == cap(b.Token) {
		panic("runtime: batch is full")
	}
	b.Token, b.Pos, b.Seq, b.Logits = b.Token[:i+1], b.Pos[:i+1], b.Seq[:i+1], b.Logits[:i+1]
	b.Token[i], b.Pos[i], b.Seq[i], b.Logits[i] = t, p, s, what
	b.Mix = append(b.Mix, b.mix)
	return i
}

// Engine computes logits over a pool of KV cells. See the package comment for the caller's obligations.
type Engine interface {
	Capabilities() Capabilities
	Model() ModelInfo
	Vocab() Vocab

	// Batch returns the engine's only batch, the same pointer at every call.
	Batch() *Batch
	// Decode computes the filled batch and allocates nothing. Errors: ErrKVFull, ErrAborted, ErrLate, ErrDecode.
	Decode() error
	// Logits returns a view of the n_vocab raw logits of batch row i, valid until the next Decode. It is nil when row i
	// was not added with logits=true. Logits neither copies nor allocates.
	Logits(i int) []float32
	// Abort makes a running Decode return ErrAborted soon, but not the first one after a SeqAdd. Without one it has no
	// lasting effect. It is safe from any goroutine.
	Abort()

	// SeqRemove frees the cells of s at positions [p0, p1); p1 < 0 means to the end. It returns false when the memory
	// cannot remove that range (Capabilities.Seals). A whole sequence can always be removed.
	SeqRemove(s Seq, p0, p1 Pos) bool
	// SeqCopy makes dst share the cells of src at positions [p0, p1), without copying them unless
	// Capabilities.CopiesBytes.
	SeqCopy(src, dst Seq, p0, p1 Pos)
	// SeqAdd shifts the positions of s in [p0, p1) by delta. It fails with ErrUnsupported unless Capabilities.CanShift.
	SeqAdd(s Seq, p0, p1, delta Pos) error
	// SeqRange returns the lowest and highest position of s, or -1, -1 when s is empty.
	SeqRange(s Seq) (first, last Pos)

	// SnapshotSize returns the number of bytes that Snapshot writes for the same range.
	SnapshotSize(s Seq, p0, p1 Pos) (int, error)
	// Snapshot writes the cells of s at positions [p0, p1) to dst and returns the number of bytes. It uses the empty
	// sequence scratch and leaves it empty.
	Snapshot(dst []byte, s, scratch Seq, p0, p1 Pos) (int, error)
	// Restore adds the cells that Snapshot wrote to s, which must have none in that range. The caller must verify the
	// bytes first (checksum, fingerprint): malformed ones may abort the process.
	Restore(src []byte, s, scratch Seq) error

	// LastDecode returns how long the last Decode took in the backend.
	LastDecode() time.Duration
	// Close frees everything. A second Close panics in invariant builds.
	Close() error
}

// Pooling is the kind of pooling: the function from the hidden states of a text's rows to its embedding.
type Pooling string

const (
	PoolNone Pooling = "none" // not at all: a text has an embedding for each token
	PoolMean Pooling = "mean" // their mean
	PoolCLS  Pooling = "cls"  // the first row
	PoolLast Pooling = "last" // the last row
	PoolRank Pooling = "rank" // a classifier scores pairs of texts: there is no embedding
)

// Embedder is an optional interface of an Engine. It returns hidden states behind the last norm, of which embeddings
// are made. Computing them changes no logits: rows for answers and rows for embeddings may be in one batch.
type Embedder interface {
	// Embedding returns a view of the ModelInfo.Embedding values of batch row i, valid until the next Decode. It is nil
	// when row i was not added with RowEmbedding. It allocates nothing.
	Embedding(i int) []float32
}

// RowScanner is an optional interface of an Engine. It finds a row's largest logit in the engine's memory by vector
// code, so that greedy sampling needs no Go loop over the vocabulary.
type RowScanner interface {
	// Argmax returns the token with the largest logit of batch row i, and that logit. Of equal logits the lowest id
	// wins; NaN never does. It returns NoToken when row i has no logits or none above -Inf. It allocates nothing.
	Argmax(i int) (Token, float32)
}

// GraphReuser is an optional interface of an Engine that keeps the graph of a pass while shapes stay equal.
type GraphReuser interface {
	// GraphsReused returns the number of passes so far that needed no new graph. Between two Decodes only.
	GraphsReused() uint64
}

// ThreadSetter is an optional interface of an Engine that computes on threads of the CPU.
type ThreadSetter interface {
	// SetThreads has later Decodes use n threads, 1 … Capabilities.Threads; n beyond them is cut. Rows are the same
	// with any number of threads.
	SetThreads(n int)
	// ComputeThreads appends the kernel's ids of the live threads of the process that have computed; none where they
	// are not known. It is safe from any goroutine.
	ComputeThreads(dst []int) []int
	// BarrierSleeps returns the number of times that compute threads of the process have slept at a barrier, because
	// another thread was late; 0 where barriers only spin. It is safe from any goroutine.
	BarrierSleeps() uint64
}

// RowStats are the statistics of a row of raw logits, for the entropy probe and for sampling. NaN and +Inf are ignored
// and counted. -Inf is a masked entry of probability 0. For a row without other entries, Max and LogSumExp are -Inf,
// Argmax is NoToken, and Entropy and CloseMass are 0.
type RowStats struct {
	Max       float32
	Argmax    Token   // the lowest id among equals
	LogSumExp float64 // ln Σ e^logit
	Entropy   float64 // of softmax(logits), in nats
	CloseMass float64 // Σ probability of the close ids
	CloseRank int     // number of entries larger than the best close id's logit; -1 = no close id has a logit
	NonFinite int     // entries that are NaN or +Inf
}

// RowProber is an optional interface of an Engine. It computes a row's statistics in the engine's memory by vector
// code. Package meridian has a Go implementation for engines without it.
type RowProber interface {
	// ProbeRow fills out from the row of batch row i, which has RowLogits or RowProbe. close are the distinct token ids
	// that end thinking and may be empty; ids outside the vocabulary are ignored. The error of Entropy and CloseMass is
	// at most EntropyError, that of LogSumExp at most LogSumExpError. ProbeRow returns false and leaves out unchanged
	// when row i has neither bit. It allocates nothing.
	ProbeRow(i int, close []Token, out *RowStats) bool
}

// ProbedRows are counters of an engine whose output layer is on a device.
type ProbedRows struct {
	Logits uint64 // bytes of logits that were copied to the host
	Rows   uint64 // probed on the device, without a copy
}

// RowCounter is an optional interface of an Engine.
type RowCounter interface {
	// ProbedRows returns the counters since the engine was opened; zeros without Capabilities.ProbesRows.
	ProbedRows() ProbedRows
}

// Largest errors of a RowProber. The thresholds on entropy are coarser, and the sampler checks whether LogSumExp is
// exact enough for it.
const (
	EntropyError   = 1e-5 // nats
	LogSumExpError = 5e-6 // so also the relative error of the mass
)

// Progress receives the fraction of the model that is loaded, 0 … 1. Returning false stops the load.
type Progress func(fraction float32) bool

// Options open an engine. Zero values mean the engine's default unless a unit is given.
type Options struct {
	ModelPath     string
	ContextTokens int // n_ctx, cells of the KV pool; 0 = the model's training context
	Batch         int // n_batch, tokens per Decode; 0 = 2048
	MicroBatch    int // n_ubatch, tokens per device pass; 0 = 512
	Sequences     int // n_seq_max, 1…256
	// SealBytes is memory for more sequences than Sequences, where each has its state (recurrent layers); up
	// to 256 in all.
	SealBytes    int64
	Threads      int    // 0 = physical cores
	ThreadsBatch int    // for prompts; 0 = Threads
	GPULayers    int    // layers to offload, the output counted; -1 = all
	CPUMoE       int    // the first layers, whose experts stay in host memory; -1 = all layers
	FlashAttn    string // "auto", "on", "off"
	KVTypeK      string // "f16" (default), "f32", "bf16", "q8_0", "q4_0", …
	KVTypeV      string
	MLock        bool
	NoMMap       bool
	NoRepack     bool // keep weights as the file has them: less memory, slower prompts
	NoKVOffload  bool // keep the KV cache in the host's memory beside layers on a device
	// ProbeRows says where rows with RowProbe alone are probed: "" = on the device of the output layer, if that is not
	// the processor, "always" = also if it is, "never".
	ProbeRows string
	// Kernels chooses the products of weights, of every engine in the process: auto, ggml, amx, avx512, avxvnni, avx2,
	// i8mm or neon. "" leaves the choice as it is, which is auto at first.
	Kernels string
	// Placed are the GPULayers by device: the first ones on the first device. nil: the engine divides them. The
	// projector is on the first device.
	Placed []DeviceLayers
	// Projector is the file (mmproj) that makes embeddings of images; "" = none.
	Projector string
	// ProjectorFound: it was not named by an option, so that the engine opens without it where it does not fit.
	ProjectorFound bool
	// Head: load the layer that guesses tokens, if the file has one (Headed).
	Head     bool
	Progress Progress // called from Open's goroutine
}
