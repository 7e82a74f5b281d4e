//go:build cgo && llama_engine && !llama_no_images

package llama

// #include <stdlib.h>
// #include "images.h"
import "C"

import (
	"container/list"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/uma-serve/uma-serve/runtime"
)

const builtImages = true

// viewBytes bounds the embeddings that are kept after their request has ended: 220 pictures of 1,024 rows for a model
// of width 576, 31 for one of 4,096.
const viewBytes = 512 << 20

// images is the projector of an engine and what it has encoded.
type images struct {
	im    *C.struct_uma_images
	facts *runtime.Images
	mark  [32]byte // of the projector: part of every hash
	width int

	encode  sync.Mutex // held while a picture is cut and encoded
	working atomic.Int32
	idle    chan struct{} // closed and replaced at the end of an encoding; under mu

	mu     sync.Mutex
	views  map[owned]*list.Element // of *kept, the front is the newest
	order  list.List
	counts runtime.ImageCounts
}

// owned names a view: the picture of a projector, and the namespace that has sent it. A picture that another user has
// sent is encoded again: the time of an answer would tell that it was sent before.
type owned struct {
	hash [32]byte
	ns   uint64
}

type kept struct {
	of    owned
	view  *runtime.View
	bytes int64
}

// imageState has an engine's projector. later and at are scratch of decodeImages.
type imageState struct {
	images *images // nil: no projector
	later  []int   // by sequence
	at     []int32 // by row of the batch: its place in llama.cpp's last batch
	mixed  bool    // the last Decode had rows of images
}

// openImages opens the projector of o. The error names its file.
func (e *engine) openImages(o runtime.Options) error {
	if o.Projector == "" {
		return nil
	}
	refuse := func(why string) error {
		return fmt.Errorf("%w: the projector %s: %s", runtime.ErrModel, o.Projector, why)
	}
	switch {
	case e.encoder:
		return refuse("the model is an encoder, which reads text alone")
	case e.caps.Seals:
		return refuse(fmt.Sprintf("architecture %q has recurrent layers or windows that cannot go back; images are "+
			"read by models with full attention or with several sequences (--parallel 2)", e.info.Architecture))
	case e.everyRow || e.oneSequence || e.positions > 0:
		return refuse(fmt.Sprintf("architecture %q cannot have embeddings beside tokens in its batches",
			e.info.Architecture))
	}
	mark, size, err := fileMark(o.Projector)
	if err != nil {
		return refuse(err.Error())
	}
	path := C.CString(o.Projector)
	defer C.free(unsafe.Pointer(path))
	flash, err := flashAttn(o.FlashAttn)
	if err != nil {
		return err
	}
	C.uma_opening(path)
	none := C.CString("")
	defer C.free(unsafe.Pointer(none))
	defer C.uma_opening(none)
	drainLogs(slog.LevelError)
	var facts C.uma_images_facts
	im := C.uma_images_open(path, e.model, C.bool(e.caps.Device != runtime.DeviceCPU), firstOf(o.Placed),
		C.int32_t(e.caps.Threads), C.int32_t(flash), &facts)
	if im == nil {
		return refuse(drainLogs(slog.LevelError))
	}
	e.images = &images{
		im: im, mark: mark, width: int(C.llama_model_n_embd_inp(e.model)), idle: make(chan struct{}),
		facts: &runtime.Images{Projector: o.Projector, Together: bool(facts.together), Bytes: size},
		views: map[owned]*list.Element{},
	}
	why := error(nil)
	switch {
	case !bool(facts.sees):
		why = refuse("it makes no embeddings of images")
	case bool(facts.plane):
		why = refuse(fmt.Sprintf("architecture %q has positions in several dimensions (M-RoPE), with which prefixes "+
			"cannot be shared yet: serve this model with --mmproj off", e.info.Architecture))
	}
	if why != nil {
		e.closeImages()
		e.images = nil
		return why
	}
	if name := C.GoString(&facts.device[0]); name != "" {
		e.caps.Placed = withProjector(e.caps.Placed, name, uint64(facts.bytes))
	}
	return nil
}

// fileMark names a projector by its size and its beginning, which has all of its metadata and the first weights.
func fileMark(path string) (mark [32]byte, size int64, err error) {
	f, err := os.Open(path)
	if err != nil {
		return mark, 0, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return mark, 0, err
	}
	h := sha256.New()
	fmt.Fprintln(h, st.Size())
	if _, err = io.CopyN(h, f, min(st.Size(), 1<<20)); err != nil {
		return mark, 0, err
	}
	return [32]byte(h.Sum(nil)), st.Size(), nil
}

func (e *engine) closeImages() {
	if im := e.images; im != nil {
		im.encode.Lock() // a request may still be encoding
		C.uma_images_close(im.im)
		im.im = nil
		im.encode.Unlock()
	}
}

// Images implements runtime.Viewer.
func (e *engine) Images() *runtime.Images {
	if e.images == nil {
		return nil
	}
	return e.images.facts
}

// Encoding implements runtime.Viewer.
func (e *engine) Encoding() bool { return e.images != nil && e.images.working.Load() > 0 }

// WaitEncoded implements runtime.Viewer.
func (e *engine) WaitEncoded(d time.Duration) {
	if !e.Encoding() || d <= 0 {
		return
	}
	e.images.mu.Lock()
	idle := e.images.idle
	e.images.mu.Unlock()
	timer := time.NewTimer(d)
	defer timer.Stop()
	if !e.Encoding() {
		return
	}
	select {
	case <-idle:
	case <-timer.C:
	}
}

// ImageCounts implements runtime.Viewer.
func (e *engine) ImageCounts() runtime.ImageCounts {
	if e.images == nil {
		return runtime.ImageCounts{}
	}
	e.images.mu.Lock()
	defer e.images.mu.Unlock()
	return e.images.counts
}

// View implements runtime.Viewer.
func (e *engine) View(p *runtime.Picture, ns uint64, goOn func() bool) (*runtime.View, error) {
	im := e.images
	if im == nil {
		return nil, errors.New("this model reads no images: it has no projector")
	}
	if p.Width < 1 || p.Height < 1 || len(p.RGB) != 3*p.Width*p.Height {
		return nil, fmt.Errorf("%d × %d pixels in %d bytes", p.Width, p.Height, len(p.RGB))
	}
	hash := sha256.Sum256(append(im.mark[:], p.Hash[:]...))
	of := owned{hash, ns}
	if v := im.find(of); v != nil {
		return v, nil
	}
	im.working.Add(1)
	im.encode.Lock()
	defer func() {
		im.encode.Unlock()
		if im.working.Add(-1) == 0 {
			im.mu.Lock()
			close(im.idle)
			im.idle = make(chan struct{})
			im.mu.Unlock()
		}
	}()
	if v := im.find(of); v != nil { // another request has encoded it meanwhile
		return v, nil
	}
	if im.im == nil {
		return nil, errors.New("the engine is closed")
	}
	begin := time.Now()
	v, err := im.view(p, hash, e.caps, goOn)
	if err != nil {
		return nil, err
	}
	im.keep(of, v, time.Since(begin))
	return v, nil
}

func (im *images) find(of owned) *runtime.View {
	im.mu.Lock()
	defer im.mu.Unlock()
	el := im.views[of]
	if el == nil {
		return nil
	}
	im.order.MoveToFront(el)
	im.counts.Cached++
	return el.Value.(*kept).view
}

func (im *images) keep(of owned, v *runtime.View, took time.Duration) {
	k := &kept{of: of, view: v}
	for _, p := range v.Parts {
		k.bytes += int64(len(p.Rows)) * 4
	}
	im.mu.Lock()
	defer im.mu.Unlock()
	im.counts.Encoded += uint64(len(v.Parts))
	im.counts.Seconds += took.Seconds()
	im.counts.CacheSize += k.bytes
	im.views[of] = im.order.PushFront(k)
	for im.counts.CacheSize > viewBytes {
		old := im.order.Remove(im.order.Back()).(*kept)
		delete(im.views, old.of)
		im.counts.CacheSize -= old.bytes
	}
}

// maxParts bounds the tiles of a picture and the texts between them.
const maxParts = 1024

// view cuts and encodes a picture.
func (im *images) view(p *runtime.Picture, hash [32]byte, caps runtime.Capabilities, goOn func() bool) (
	*runtime.View, error) {
	drainLogs(slog.LevelError)
	parts := C.uma_images_cut(im.im, (*C.uint8_t)(unsafe.SliceData(p.RGB)), C.int32_t(p.Width), C.int32_t(p.Height))
	if parts == nil {
		return nil, fmt.Errorf("the model's projector cannot cut it into parts: %s", drainLogs(slog.LevelError))
	}
	defer C.uma_images_free_cut(parts)
	// Its length is known before anything is encoded, which takes seconds.
	v := &runtime.View{}
	var encoded []int
	for i := 0; ; i++ {
		var text *C.int32_t
		var positions C.int32_t
		n := int(C.uma_images_part(parts, C.int32_t(i), &text, &positions))
		switch {
		case n < 0:
			return v, im.encodeParts(parts, v, encoded, goOn)
		case i == maxParts:
			return nil, fmt.Errorf("it has more than %d parts", maxParts)
		case n == 0:
			continue
		case text != nil:
			v.Tokens = append(v.Tokens, unsafe.Slice((*runtime.Token)(unsafe.Pointer(text)), n)...)
			continue
		case int(positions) != n:
			return nil, fmt.Errorf("its %d rows have %d positions, which this model's memory cannot "+
				"share", n, positions)
		case im.facts.Together && n > min(caps.MaxMicroBatch, caps.MaxBatch):
			return nil, fmt.Errorf("a part of it has %d rows, which are computed at once, and --ubatch-size is %d: "+
				"set --ubatch-size %d", n, caps.MaxMicroBatch, n)
		}
		v.Parts = append(v.Parts, runtime.ViewPart{At: len(v.Tokens), N: n})
		v.Tokens = appendImage(v.Tokens, hash, len(v.Parts), n)
		if encoded = append(encoded, i); len(v.Tokens) > caps.ContextTokens {
			return nil, fmt.Errorf("it takes more than the %d tokens of the context: make it smaller, or start "+
				"uma-serve with a larger --ctx-size", caps.ContextTokens)
		}
	}
}

func (im *images) encodeParts(parts *C.struct_mtmd_input_chunks, v *runtime.View, encoded []int,
	goOn func() bool) error {
	if len(v.Parts) == 0 {
		return errors.New("the model's projector makes nothing of it")
	}
	for k, i := range encoded {
		if !goOn() {
			return runtime.ErrAborted
		}
		p := &v.Parts[k]
		p.Rows = make([]float32, p.N*im.width)
		if !C.uma_images_encode(im.im, parts, C.int32_t(i), (*C.float)(unsafe.SliceData(p.Rows)),
			C.int64_t(len(p.Rows))) {
			return fmt.Errorf("the model's projector failed: %s", drainLogs(slog.LevelError))
		}
	}
	return nil
}

// appendImage appends the ids of the n rows of a picture's part.
func appendImage(dst []runtime.Token, hash [32]byte, part, n int) []runtime.Token {
	var in [40]byte
	copy(in[:], hash[:])
	binary.LittleEndian.PutUint32(in[32:], uint32(part))
	for i := 0; i < n; {
		binary.LittleEndian.PutUint32(in[36:], uint32(i))
		sum := sha256.Sum256(in[:])
		for k := 0; k < len(sum) && i < n; k += 4 {
			dst = append(dst, runtime.ImageToken(binary.LittleEndian.Uint32(sum[k:]), i == 0))
			i++
		}
	}
	return dst
}

// decodeImages is the Decode of a batch with rows of images. llama.cpp takes tokens or embeddings in one batch, so the
// rows up to the last one of an image in each sequence are computed one run after the other, and then the others
// together: among them are all rows with logits.
func (e *engine) decodeImages() (rc C.int32_t, err error) {
	b := &e.batch
	if err := e.checkImages(); err != nil {
		return 0, err
	}
	e.mixed = true
	// The rest moves to the front of the batch, behind which the caller finds what it has written.
	save := e.saveBatch()
	defer save()
	e.mixes.split, e.mixes.kept = false, 0
	e.stop.decide = 0 // of several graphs no share is known
	image := b.Images
	n, rest := len(b.Token), 0
	for i := 0; i < n && rc == 0; {
		to, s := i+1, b.Seq[i]
		if i >= e.later[s] { // of the rest
			e.moveRow(i, rest)
			e.at[i] = int32(rest)
			rest++
			i = to
			continue
		}
		if len(image) == 0 || image[0].Row != i {
			for to < n && b.Seq[to] == s && to < e.later[s] && e.sameMix(i, to) &&
				(len(image) == 0 || image[0].Row != to) {
				to++
			}
			e.useMixOf(i)
			rc = C.uma_decode_rows(e.ctx, e.cbatch, C.int32_t(i), C.int32_t(to-i), e.stop)
			e.guard(s)
			i = to
			continue
		}
		part, at := image[0].Part, image[0].At
		for image = image[1:]; len(image) > 0 && image[0].Row == to && image[0].Part == part && b.Seq[to] == s &&
			e.sameMix(i, to); to++ {
			image = image[1:]
		}
		if e.images.facts.Together && to-i != part.N {
			return 0, fmt.Errorf("%w: rows %d … %d of an image of %d rows, which must be in one batch",
				runtime.ErrDecode, at, at+to-i-1, part.N)
		}
		rows := part.Rows[at*e.images.width : (at+to-i)*e.images.width]
		e.useMixOf(i)
		rc = C.uma_images_decode(e.ctx, (*C.float)(unsafe.SliceData(rows)), C.int32_t(to-i), C.int32_t(e.images.width),
			C.int32_t(b.Pos[i]), C.int32_t(s), C.bool(e.images.facts.Together), e.stop)
		e.guard(s)
		i = to
	}
	if rc == 0 && rest > 0 {
		rc = e.computeRest(rest)
	}
	return rc, nil
}

// saveBatch returns what puts the batch back as it is now.
func (e *engine) saveBatch() func() {
	b, n := &e.batch, len(e.batch.Token)
	tokens, pos, seqs, what := slices.Clone(b.Token), slices.Clone(b.Pos), slices.Clone(b.Seq), slices.Clone(b.Logits)
	mix, has := slices.Clone(b.Mix), slices.Clone(e.has[:n])
	return func() {
		b.Token, b.Pos, b.Seq, b.Logits, b.Mix = b.Token[:n], b.Pos[:n], b.Seq[:n], b.Logits[:n], b.Mix[:len(mix)]
		copy(b.Token, tokens)
		copy(b.Pos, pos)
		copy(b.Seq, seqs)
		copy(b.Logits, what)
		copy(b.Mix, mix)
		copy(e.has, has)
	}
}

func (e *engine) moveRow(from, to int) {
	b := &e.batch
	b.Token[to], b.Pos[to], b.Seq[to], b.Logits[to] = b.Token[from], b.Pos[from], b.Seq[from], b.Logits[from]
	if e.has[to] = e.has[from]; len(b.Mix) > 0 {
		b.Mix[to] = b.Mix[from]
	}
}

// computeRest computes the first rows of the batch.
func (e *engine) computeRest(rows int) C.int32_t {
	b := &e.batch
	b.Token, b.Pos, b.Seq, b.Logits = b.Token[:rows], b.Pos[:rows], b.Seq[:rows], b.Logits[:rows]
	b.Mix = b.Mix[:min(rows, len(b.Mix))]
	return e.compute(rows)
}

// sameMix reports whether two rows have the same adapters.
func (e *engine) sameMix(i, j int) bool {
	return len(e.batch.Mix) == 0 || e.batch.Mix[i] == e.batch.Mix[j]
}

// useMixOf applies the adapters of row i.
func (e *engine) useMixOf(i int) {
	if e.mixes.piece != nil {
		e.use(e.batch.Mix[i])
	}
}

// checkImages refuses images that the projector has not made, and sets later: for each sequence the first row behind
// those of its images.
func (e *engine) checkImages() error {
	b := &e.batch
	if e.images == nil {
		return fmt.Errorf("%w: rows of images, and the model has no projector", runtime.ErrDecode)
	}
	if e.later == nil {
		e.later, e.at = make([]int, e.caps.MaxSequences), make([]int32, cap(b.Token))
	}
	clear(e.later)
	for _, r := range b.Images {
		if p := r.Part; r.At < 0 || r.At >= p.N || len(p.Rows) != p.N*e.images.width {
			return fmt.Errorf("%w: row %d: row %d of an image with %d, in %d "+
				"values", runtime.ErrDecode, r.Row, r.At, p.N,
				len(p.Rows))
		}
		e.later[b.Seq[r.Row]] = r.Row + 1
	}
	for i, s := range b.Seq {
		if i < e.later[s] && b.Logits[i] != 0 {
			return fmt.Errorf("%w: row %d has logits and lies before rows of an image", runtime.ErrDecode, i)
		}
	}
	return nil
}

// dropBatch removes what a batch of several parts has left in the cells: its caller sees none of it computed.
func (e *engine) dropBatch() {
	b := &e.batch
	for i, s := range b.Seq {
		if i == 0 || b.Seq[i-1] != s {
			e.SeqRemove(s, b.Pos[i], -1)
		}
	}
}

// place returns where row i of the batch was when it was computed.
func (e *engine) place(i int) int {
	if e.mixed {
		return int(e.at[i])
	}
	return i
}
