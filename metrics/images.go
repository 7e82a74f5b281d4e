package metrics

import "sync/atomic"

// Images counts what a reader of images has done.
type Images struct {
	Encoded, Cached uint64
	Seconds         float64
	CacheBytes      int64
}

// bound has sources of counts.
type bound struct {
	turns  atomic.Pointer[func() Turns]
	images atomic.Pointer[func() Images]
}

// BindImages sets the source of the counts of images, which must be safe from any goroutine.
func (m *Metrics) BindImages(f func() Images) { m.images.Store(&f) }

func (m *Metrics) imagesNow() Images {
	if f := m.images.Load(); f != nil {
		return (*f)()
	}
	return Images{}
}

// declareImages declares the metrics of images, which are 0 for a model that reads none.
func (m *Metrics) declareImages(scrape string) {
	m.total("images_encoded_total", "uma_images_encoded_total", "parts", "Parts of images (a tile, or the whole "+
		"image) that the projector has encoded", scrape, func() float64 { return float64(m.imagesNow().Encoded) })
	m.total("image_cache_hits_total", "uma_image_cache_hits_total", "images", "Images whose embeddings were at hand",
		scrape, func() float64 { return float64(m.imagesNow().Cached) })
	m.total("image_encode_ms_total", "uma_image_encode_seconds_total", "ms", "Time in which images were encoded, "+
		"beside the steps", scrape, func() float64 { return float64(int64(m.imagesNow().Seconds * 1000)) }).scale = 1e-3
	m.value("image_cache_bytes", "uma_image_cache_bytes", "bytes", "Embeddings of images that are kept", scrape,
		func() float64 { return float64(m.imagesNow().CacheBytes) }).whole = true
}
