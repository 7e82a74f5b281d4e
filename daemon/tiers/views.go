package tiers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/uma-serve/uma-serve/kvsnap/snapshot"
	"github.com/uma-serve/uma-serve/kvsnap/snapshot/format"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/runtime/views"
)

// viewStore keeps the views of images and sounds on disk, as named parts of the snapshot cache (runtime.ViewStore).
type viewStore struct {
	cache  *snapshot.Cache
	limits views.Limits
	log    *slog.Logger
	slots  chan struct{} // one for each view that is or will be copied
	copies sync.Mutex    // held while one is copied
}

const (
	// viewPatience is the longest time that a request waits for a view's file before its image is encoded: a disk that
	// hangs must not stop it.
	viewPatience = 5 * time.Second
	// viewCopies bounds the views that wait to be copied for their files, on a machine that has no time left; their
	// bytes are bounded by the engine's cache of views, which holds them meanwhile. Further ones are in memory alone,
	// until newer ones take their place there, and on disk only after they are made again.
	viewCopies = 16
)

// viewOrigin is the origin of the views on disk: the model, with everything that its cells depend on, and the
// projector. The zero value: the model reads no images, or its projector cannot be read.
func viewOrigin(o *Options) format.Origin {
	viewer, ok := o.Engine.(runtime.Viewer)
	if !ok || viewer.Images() == nil {
		return format.Origin{}
	}
	model, facts := fmt.Sprintf("model %x", o.Origin.Fingerprint), viewer.Images()
	sum, err := snapshot.Fingerprint([]string{facts.Projector}, model)
	if err != nil && o.caps.Device == runtime.DeviceFake { // its projector is not a file
		sum, err = snapshot.Fingerprint(nil, model, fmt.Sprintf("%+v", *facts))
	}
	if err != nil {
		o.Log.Warn("embeddings of images are not kept on disk", "error", err)
		return format.Origin{}
	}
	return format.Origin{EngineBuild: o.Origin.EngineBuild, Fingerprint: sum, KVTypeK: "view 1", KVTypeV: "f32"}
}

// openViews has the engine keep the views that it makes on disk too, if there is a disk.
func (s *Stores) openViews() {
	viewer, ok := s.o.Engine.(runtime.Viewer)
	if !ok || viewer.Images() == nil {
		return
	}
	s.kept = viewer.KeptViews()
	if s.Cache == nil || s.Cache.DiskError() != nil {
		return
	}
	s.views = &viewStore{cache: s.Cache, log: s.o.Log, slots: make(chan struct{}, viewCopies), limits: views.Limits{
		Width: viewer.Images().Width, Vocab: s.o.Info.VocabSize, Tokens: s.o.caps.ContextTokens,
		Together: min(s.o.caps.MaxMicroBatch, s.o.caps.MaxBatch), Grids: viewer.Images().Grids}}
	s.kept.StoreIn(s.views)
}

// Load implements runtime.ViewStore.
func (v *viewStore) Load(hash [32]byte, ns uint64) (view *runtime.View) {
	ctx, cancel := context.WithTimeout(context.Background(), viewPatience)
	defer cancel()
	err := v.cache.ReadNamed(ctx, snapshot.Namespace(ns), hash, v.limits.Most(), func(b []byte) (err error) {
		if view, err = views.Parse(b, &v.limits); errors.Is(err, views.ErrBytes) {
			err = fmt.Errorf("%w: %w", format.ErrFormat, err)
		}
		return err
	})
	if err != nil {
		if !errors.Is(err, snapshot.ErrNotFound) {
			v.log.Debug("the embeddings of an image are made again", "error", err)
		}
		return nil
	}
	return view
}

// Store implements runtime.ViewStore. A goroutine of low priority copies the view, so that neither its request nor a
// step waits.
func (v *viewStore) Store(hash [32]byte, ns uint64, view *runtime.View, done func()) {
	select {
	case v.slots <- struct{}{}:
	default:
		done()
		return
	}
	go func() {
		defer func() { <-v.slots }()
		defer done()
		v.copies.Lock()
		defer v.copies.Unlock()
		snapshot.Background()
		if err := v.store(hash, ns, view); err != nil && !errors.Is(err, snapshot.ErrClosed) {
			v.log.Debug("the embeddings of an image are not kept on disk", "error", err)
		}
	}()
}

func (v *viewStore) store(hash [32]byte, ns uint64, view *runtime.View) error {
	var buf *snapshot.Buffer
	err := views.Bytes(view, func(n int) (b []byte, err error) {
		if buf, err = v.cache.Buffer(n); err != nil {
			return nil, err
		}
		return buf.Bytes(), nil
	})
	if err != nil {
		if buf != nil {
			buf.Release()
		}
		return err
	}
	return v.cache.PutNamed(snapshot.Namespace(ns), hash, buf)
}

// close waits until no view is copied any more, or ctx ends, and lets none be stored afterwards.
func (v *viewStore) close(ctx context.Context) {
	for range cap(v.slots) {
		select {
		case v.slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
	}
}

// forgetViews drops the views for which of returns true from the engine's memory.
func (s *Stores) forgetViews(of func(hash [32]byte, ns uint64) bool) {
	if s.kept != nil && of != nil {
		s.kept.Forget(of)
	}
}

// ofUser returns which views a user may drop.
func ofUser(uid uint32, operator bool) func([32]byte, uint64) bool {
	return func(_ [32]byte, ns uint64) bool { return operator || ns == uint64(uid) }
}
