package runtime

import (
	"slices"
	"time"
)

// Picture is a decoded image: rows of pixels from the top, each pixel three bytes, red, green and blue.
type Picture struct {
	Width, Height int
	RGB           []byte
}

// Sound is a decoded recording: samples of one channel, -1 … 1.
type Sound struct {
	Samples []float32
}

// Medium is a picture or a sound whose bytes may have to be decoded, which takes up to seconds. One of its functions is
// nil.
type Medium struct {
	Hash    [32]byte // names the bytes: of two media with equal hashes the engine computes one
	Picture func() (*Picture, error)
	Sound   func(rate int) (*Sound, error) // at that rate, in samples a second
}

// View stands for a picture or a sound in a prompt: tokens of text, which the model's family puts around its images,
// and rows of embeddings. Each row has a token too, an id below NoToken that is made from the content's hash, so that
// equal prompts have equal tokens. Only a Viewer makes such ids.
//
// Invariant: Tokens[i] < NoToken exactly if i lies in one of Parts.
type View struct {
	Tokens   []Token
	Segments []ViewSegment // ascending
}

// ViewSegment is a run of rows of a View: the whole picture or a tile of it, or up to half a minute of a sound. It is
// immutable.
type ViewSegment struct {
	At, N int
	Rows  []float32 `json:"-"` // N embeddings, one behind the other
	// Together: the rows see each other, so that one Decode has them all.
	Together bool
	// Width is the number of rows in a line, where the model's positions have several dimensions and the rows are a
	// grid; 0: the rows' positions follow one another.
	Width int `json:",omitempty"`
}

// Row returns the embedding of row i of the segment.
func (p *ViewSegment) Row(i int) []float32 {
	width := len(p.Rows) / p.N
	return p.Rows[i*width : (i+1)*width]
}

// IsImage reports whether t stands for a row of an image.
func IsImage(t Token) bool { return t < NoToken }

// BeginsImage reports whether t stands for the first row of a segment of an image.
func BeginsImage(t Token) bool { return int64(NoToken)-1-int64(t) >= imageBegin }

// imageBegin is the bit of an id, as its distance below NoToken, that the first row of a segment has.
const imageBegin = 1 << 30

// ImageToken returns the id of a row of an image: of the first one of a segment if begin is set. Only the low 30 bits
// of hash are used.
func ImageToken(hash uint32, begin bool) Token {
	n := int64(hash % (imageBegin - 1)) // so that the id never wraps
	if begin {
		n += imageBegin
	}
	return Token(int64(NoToken) - 1 - n)
}

// WholeImages returns the largest n ≤ most such that tokens[:n] cuts no segment of an image in two. A segment is shared
// and restored whole: its ids are hashes, and only all of them together name the picture safely.
func WholeImages(tokens []Token, most int) int {
	for n := most; n > 0; n-- {
		if n >= len(tokens) || !IsImage(tokens[n]) || BeginsImage(tokens[n]) {
			return n
		}
	}
	return 0
}

// Images are immutable facts about the images and sounds that an engine reads.
type Images struct {
	Projector string `json:"projector"` // path of the file
	Sees      bool   `json:"sees"`      // it reads images
	// Together: the rows of a segment of an image see each other (ViewSegment.Together).
	Together bool `json:"together"`
	// SampleRate is the rate of the sounds that it reads, in samples a second; 0: it reads none.
	SampleRate int `json:"sample_rate,omitempty"`
	// Bytes is the memory of the projector's weights, as the size of the file.
	Bytes int64 `json:"bytes"`
	// Width is the number of values of a row.
	Width int `json:"-"`
	// Grids: the rows of an image are a grid (ViewSegment.Width).
	Grids bool `json:"-"`
}

// See reports whether images are read; im may be nil.
func (im *Images) See() bool { return im != nil && im.Sees }

// Hear reports whether sounds are read; im may be nil.
func (im *Images) Hear() bool { return im != nil && im.SampleRate > 0 }

// Reads reports whether sounds, or images, are read; im may be nil.
func (im *Images) Reads(sound bool) bool {
	if sound {
		return im.Hear()
	}
	return im.See()
}

// ImageCounts counts the work of a Viewer since it was opened.
type ImageCounts struct {
	Encoded   uint64 // segments of pictures that were encoded
	Heard     uint64 // segments of sounds that were encoded
	Cached    uint64 // pictures and sounds whose view was in memory
	Loaded    uint64 // those whose view came from a ViewStore
	Seconds   float64
	CacheSize int64 // bytes of the embeddings that are kept or being stored
}

// Viewer is an optional interface of an Engine whose model has a projector: it reads images, sounds or both.
type Viewer interface {
	// Images returns the facts; nil: the model reads neither.
	Images() *Images
	// View returns the view of m. It decodes and encodes m unless it has done so lately for the same namespace, which
	// may take seconds; it is safe from any goroutine, and media are encoded one at a time, at a low priority. goOn is
	// asked between two segments; after false the error is ErrAborted. Other errors are those of m, or say what is
	// wrong with it or with the model.
	View(m *Medium, ns uint64, goOn func() bool) (*View, error)
	// Encoding reports whether a picture or a sound is being decoded or encoded. It is safe from any goroutine.
	Encoding() bool
	// WaitEncoded returns when Encoding reports false, at the latest after d.
	WaitEncoded(d time.Duration)
	// ImageCounts is safe from any goroutine.
	ImageCounts() ImageCounts
	// KeptViews returns the views that are kept in memory.
	KeptViews() KeptViews
}

// KeptViews are the views that a Viewer keeps in memory. Its methods are safe from any goroutine.
type KeptViews interface {
	// StoreIn has every view that is made from now on stored too, and looks there for those that are not in memory.
	StoreIn(ViewStore)
	// Forget drops those for which of returns true from memory.
	Forget(of func(hash [32]byte, ns uint64) bool)
}

// ViewStore keeps views outside the memory of the engine. Its methods are safe from any goroutine and may wait for a
// disk. hash names the medium and the projector.
type ViewStore interface {
	// Load returns a view that this engine may use as if it had made it; nil: there is none.
	Load(hash [32]byte, ns uint64) *View
	// Store stores v, or leaves it out, and calls done when it reads v no more, perhaps later.
	Store(hash [32]byte, ns uint64, v *View, done func())
}

// ImageRow says that row Row of a Batch is row At of a segment of an image.
type ImageRow struct {
	Row, At int
	Segment *ViewSegment
}

// IsImage reports whether row i is one of Images.
func (b *Batch) IsImage(i int) bool {
	_, found := slices.BinarySearchFunc(b.Images, i, func(r ImageRow, i int) int { return r.Row - i })
	return found
}

// AddImage appends row at of segment at position p of sequence s; t is its token.
func (b *Batch) AddImage(t Token, p Pos, s Seq, segment *ViewSegment, at int) int {
	i := b.AddFor(t, p, s, 0)
	b.Images = append(b.Images, ImageRow{Row: i, At: at, Segment: segment})
	return i
}

// Save returns what puts the rows of b back as they are now, but for Images, after Move and Shorten.
func (b *Batch) Save() (restore func()) {
	n := len(b.Token)
	tokens, pos, seqs := slices.Clone(b.Token), slices.Clone(b.Pos), slices.Clone(b.Seq)
	what, mix := slices.Clone(b.Logits), slices.Clone(b.Mix)
	return func() {
		b.Token, b.Pos, b.Seq, b.Logits, b.Mix = b.Token[:n], b.Pos[:n], b.Seq[:n], b.Logits[:n], b.Mix[:len(mix)]
		copy(b.Token, tokens)
		copy(b.Pos, pos)
		copy(b.Seq, seqs)
		copy(b.Logits, what)
		copy(b.Mix, mix)
	}
}

// Move writes row from over row to.
func (b *Batch) Move(from, to int) {
	b.Token[to], b.Pos[to], b.Seq[to], b.Logits[to] = b.Token[from], b.Pos[from], b.Seq[from], b.Logits[from]
	if len(b.Mix) > 0 {
		b.Mix[to] = b.Mix[from]
	}
}

// Shorten leaves the first n rows.
func (b *Batch) Shorten(n int) {
	b.Token, b.Pos, b.Seq, b.Logits, b.Mix = b.Token[:n], b.Pos[:n], b.Seq[:n], b.Logits[:n], b.Mix[:min(n, len(b.Mix))]
}
